"""Charts as SVG: bars beside each other, and lines over an axis, drawn by matplotlib.

The same figures give the same bytes. Nothing is loaded and no script is in them; a chart brings its
own ground, light or dark as the reader's system is, so that it can be read on any page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html import escape
from itertools import cycle

from comparison import Comparison
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter
from report import figure
from section import Plot

INK, FAINT, GROUND, GREY, OCHRE = "#1f2330", "#c9ccd6", "#ffffff", "#6f7786", "#d08a3c"
OURS, JAX, BOUND = "#3f51b5", "#c2571a", "#0b7a75"
OTHERS = ("#a0307e", "#7a6a00", "#20639b", "#8a3033", OCHRE)
#: The colours that replace these where the reader's system is dark.
DARK = {
    **{INK: "#e8eaf6", FAINT: "#40444f", GROUND: "#1e2129", GREY: "#a3aab8", OCHRE: "#e0a461"},
    **{OURS: "#8c9eff", JAX: "#f0a35e", BOUND: "#4fc3b8"},
    **dict(zip(OTHERS, ("#e58acb", "#d8c452", "#6fb6e8", "#ef8f8f"), strict=False)),
}
ROLES = {"ours": OURS, "floor": GREY, "other": OCHRE}
#: Labels that begin so have a colour of their own, which is the same in every chart.
OWN = {"pjrt-hub": OURS, "jax": JAX, "bound": BOUND, "raw C": GREY}
#: A bar that is longer than this many times the next is cut, or the others would look the same.
LONGEST = 6.0
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pjrt-hub",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 14,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.titlelocation": "left",
    "axes.titlepad": 14,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": FAINT,
    **dict.fromkeys(("xtick.color", "ytick.color"), FAINT),
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys((f"figure.constrained_layout.{side}_pad" for side in "wh"), 0.15),
}


def bars(comparison: Comparison) -> str:
    """Horizontal bars, each with its value."""
    names, values, roles = zip(*comparison.bars, strict=True)
    base = dict(zip(names, values, strict=True)).get(comparison.base, 0.0)
    most, second = sorted(values, reverse=True)[:2]
    if most > LONGEST * second:
        most = second * 1.35
    told = [
        f"{figure(value)} {comparison.unit}"
        + (f", {figure(value / base)} times" if value > base > 0 else "")
        for value in values
    ]

    def draw(axes: Axes) -> None:
        colours = [ROLES[role] for role in roles]
        drawn = axes.barh(names, [min(value, most) for value in values], 0.65, color=colours)
        axes.bar_label(drawn, told, padding=8)
        for place in (place for place, value in enumerate(values) if value > most):
            steps = [place + step / 5 for step in range(-2, 3)]
            x = [most * (0.92 + step % 2 * 0.02) for step in range(5)]
            axes.plot(x, steps, color=GROUND, linewidth=5, gid="cut")
        axes.set(xlim=(0, most * 1.4), xticks=[])
        axes.invert_yaxis()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)

    return _svg(comparison.title, 62 + 34 * len(values), draw)


def lines(plot: Plot) -> str:
    """Lines with a point for each figure, the axes by factors, the highest named first."""
    others = cycle(OTHERS)
    by_their_ends = sorted(plot.series.items(), key=lambda line: line[1][-1][1], reverse=True)

    def draw(axes: Axes) -> None:
        for name, points in by_their_ends:
            own = (colour for begin, colour in OWN.items() if name.startswith(begin))
            colour = next(own, None) or next(others)
            style = {"color": colour, "linewidth": 2.5, "label": name, "gid": name}
            axes.loglog(*zip(*points, strict=True), "o-", **style)
        turned = 30 if len(plot.x_names) > 5 else 0
        axes.set_xticks(list(plot.x_names), list(plot.x_names.values()), rotation=turned)
        axes.set(xlabel=plot.x, ylabel=plot.y)
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1e3 * low else (1,)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.minorticks_off()
        axes.grid(axis="y")
        place = {"loc": "upper left", "bbox_to_anchor": (1, 1)}
        axes.legend(labelcolor="linecolor", frameon=False, **place)

    return _svg(plot.title, 420, draw)


def _svg(title: str, height: int, draw: Callable[[Axes], None]) -> str:
    """The file around what is drawn, its text as text, with another value for each colour."""
    with rc_context(STYLE):
        drawing = Figure(figsize=(760 / 72, height / 72), layout="constrained", facecolor=GROUND)
        axes = drawing.subplots()
        axes.set_title(title, fontsize=16, weight="bold")
        draw(axes)
        file = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        drawing.savefig(file, format="svg", metadata=nothing)
    text = file.getvalue().replace("'DejaVu Sans'", "system-ui")
    text = re.sub(r"(\.\d)\d{3,}", r"\1", text)
    text = re.sub(r"\s*\n\s*+(?!<g )", "", text)  # Only groups keep a line of their own.
    dark = "".join(
        f'[style*="{what}: {light}"]{{{what}:{colour}!important}}'
        for light, colour in DARK.items()
        for what in ("fill", "stroke")
        if f"{what}: {light}" in text
    )
    style = f"<style>@media (prefers-color-scheme:dark){{{dark}}}</style>"
    begin = f"<title>{escape(title)}</title>{style}<defs>"
    return text[text.index("<svg") :].replace("<defs>", begin, 1) + "\n"
