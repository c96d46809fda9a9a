"""Charts as SVG: bars beside each other, and lines over an axis.

The same figures give the same bytes. Nothing is loaded and no script is in them; a chart brings its
own ground, light or dark as the reader's system is, so that it can be read on any page.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle

from report import figure
from section import Plot, Section

WIDTH = 760
INK, FAINT, GROUND = ("#1f2330", "#e8eaf6"), ("#c9ccd6", "#40444f"), ("#ffffff", "#1e2129")
#: Light and dark; the first is ours, the second the floor, the third others.
ROLES = {
    "ours": ("#3f51b5", "#8c9eff"),
    "floor": ("#6f7786", "#a3aab8"),
    "other": ("#d08a3c", "#e0a461"),
}
LINES = (
    ("#3f51b5", "#8c9eff"),
    ("#c2571a", "#f0a35e"),
    ("#0b7a75", "#4fc3b8"),
    ("#a0307e", "#e58acb"),
    ("#6f7786", "#a3aab8"),
    ("#7a6a00", "#d8c452"),
    ("#20639b", "#6fb6e8"),
    ("#8a3033", "#ef8f8f"),
)
#: What begins so has a colour of its own, which is the same in every chart.
OWN = {"pjrt-hub": 0, "jax": 1, "bound": 2, "raw C": 4}
#: A bar that is more times the next is cut, or the others could not be told apart.
LONGEST = 6.0


@dataclass(frozen=True)
class Comparison:
    """Bars of one unit.

    Attributes:
        name: of the file that is drawn, without its suffix.
        title: what is compared.
        unit: of the figures.
        base: the bar whose multiples longer ones are told to be.
        bars: label, value, and the role that colours it.
        sources: the titles of the sections that they come from.
    """

    name: str
    title: str
    unit: str
    base: str
    bars: tuple[tuple[str, float, str], ...]
    sources: tuple[str, ...]


#: A label, its role, and the cell of the table that it is taken from.
Pick = tuple[str, str, str, str, str]
_CALL, _ROW = "A call", "2 → 1, tanh(a·b+1)"
#: A section of other processes, and the cell of it that is the same as one of the first section:
#: by them its figures are brought to the first's, since a busy machine slows whole processes.
SAME = {"Peers": (("pjrt-hub", "a call µs"), (_CALL, _ROW, "pjrt-hub µs"))}
#: Name, title, unit, base and bars of those at the top of the page.
MAIN: tuple[tuple[str, str, str, str, tuple[Pick, ...]], ...] = (
    (
        "one_call",
        "One call: tanh(a·b+1) on 8 floats, its result freed",
        "µs",
        "raw C",
        (
            ("raw C", "floor", _CALL, _ROW, "raw C µs"),
            ("pjrt-hub, bound", "ours", _CALL, _ROW, "bound µs"),
            ("pjrt-hub", "ours", _CALL, _ROW, "pjrt-hub µs"),
            ("jax.jit", "other", _CALL, _ROW, "jax.jit µs"),
            ("jax, compiled", "other", _CALL, _ROW, "jax compiled µs"),
            ("pypjrt", "other", "Peers", "pypjrt", "a call µs"),
        ),
    ),
    (
        "starting",
        "A process, from its start to its end",
        "ms",
        "first result, pjrt-hub",
        (
            ("python -c pass", "floor", "Starting", "pass", "ms"),
            ("import pjrt_hub", "ours", "Starting", "import pjrt_hub", "ms"),
            ("first result, pjrt-hub", "ours", "Starting", "first result", "ms"),
            ("first result, jax", "other", "Starting", "first result, jax", "ms"),
        ),
    ),
)


def main_charts(sections: Mapping[str, Section]) -> list[Comparison]:
    """Those at the top of the page; a bar whose cell was not measured is left out."""
    found = []
    for name, title, unit, base, picks in MAIN:
        there = [
            (
                label,
                role,
                sections[section].rows[row][column] * _brought(section, sections),
                section,
            )
            for label, role, section, row, column in picks
            if section in sections and column in sections[section].rows.get(row, ())
        ]
        if len(there) > 1:
            bars = tuple((label, value, role) for label, role, value, _ in there)
            sources = tuple(dict.fromkeys(section for *_, section in there))
            found.append(Comparison(name, title, unit, base, bars, sources))
    return found


def _brought(title: str, sections: Mapping[str, Section]) -> float:
    """By what a section's figures are multiplied."""
    if title not in SAME:
        return 1.0
    (row, column), (first, first_row, first_column) = SAME[title]
    if first not in sections:
        return 1.0
    return sections[first].rows[first_row][first_column] / sections[title].rows[row][column]


def bars(comparison: Comparison) -> str:
    """Horizontal bars, each with its value."""
    left, top, step, thick, right = 190, 56, 34, 22, 170
    values = sorted((value for _, value, _ in comparison.bars), reverse=True)
    cut = len(values) > 1 and values[0] > LONGEST * values[1]
    most = values[1] * 1.35 if cut else values[0]
    scale = (WIDTH - left - right) / most
    base = next((value for name, value, _ in comparison.bars if name == comparison.base), 0.0)
    height = top + step * len(comparison.bars) + 12
    parts = []
    for index, (label, value, role) in enumerate(comparison.bars):
        y = top + index * step
        length = max(min(value, most) * scale, 1)
        middle = y + thick / 2 + 5
        parts.append(_text(left - 12, middle, label, "end"))
        parts.append(
            f'<rect class="{role}" x="{left}" y="{y}" width="{_n(length)}" height="{thick}" '
            f'rx="3" fill="{ROLES[role][0]}"/>'
        )
        if value > most:
            x = left + length - 34
            zigzag = f"M{_n(x)} {y - 3}l8 7l-8 7l8 7l-8 7"
            parts.append(
                f'<path class="cut" d="{zigzag}" fill="none" stroke="{GROUND[0]}" '
                'stroke-width="5"/>'
            )
        times = f", {figure(value / base)} times" if value > base > 0 else ""
        told = f"{figure(value)} {comparison.unit}{times}"
        parts.append(_text(left + length + 8, middle, told, "start"))
    return _svg(comparison.title, height, parts, ROLES)


def lines(plot: Plot) -> str:
    """Lines with a point for each figure, named at their ends."""
    left, top, right, bottom, height = 74, 68, 200, 56, 420
    points = [point for series in plot.series.values() for point in series]
    x_axis = _Axis([x for x, _ in points], "x" in plot.log, left, WIDTH - right, whole=True)
    y_axis = _Axis([y for _, y in points], "y" in plot.log, height - bottom, top)
    parts = []
    for y in y_axis.ticks():
        at = _n(y_axis.place(y))
        parts.append(_rule(left, at, WIDTH - right, at))
        parts.append(_text(left - 8, y_axis.place(y) + 4, _tick(y), "end", 12))
    names = plot.x_names or {x: _tick(x) for x in x_axis.ticks()}
    room = 8 * max(map(len, names.values()))
    names = {x: names[x] for x in x_axis.apart(sorted(names), room)}
    for x, name in names.items():
        at = _n(x_axis.place(x))
        parts.append(_rule(at, height - bottom, at, height - bottom + 5))
        parts.append(_text(x_axis.place(x), height - bottom + 20, name, "middle", 12))
    parts.append(_text((left + WIDTH - right) / 2, height - 12, plot.x, "middle", 13))
    parts.append(_text(left, top - 12, plot.y, "start", 13))
    colours = _colours(plot.series)
    ends = {name: y_axis.place(series[-1][1]) for name, series in plot.series.items()}
    labels = _apart(ends, 17, top, height - bottom)
    for (name, series), (role, colour) in zip(plot.series.items(), colours.items(), strict=True):
        places = [(_n(x_axis.place(x)), _n(y_axis.place(y))) for x, y in series]
        path = "L".join(f"{x} {y}" for x, y in places)
        parts.append(
            f'<path class="{role}-stroke" d="M{path}" fill="none" stroke="{colour[0]}" '
            'stroke-width="2.5" stroke-linejoin="round"/>'
        )
        for x, y in places:
            parts.append(f'<circle class="{role}" cx="{x}" cy="{y}" r="3.5" fill="{colour[0]}"/>')
        # A faint thread where the name had to move away from its line, or the line ends early.
        x, y = float(places[-1][0]), float(places[-1][1])
        parts.append(_rule(_n(x + 5), _n(y), WIDTH - right + 12, _n(labels[name])))
        parts.append(
            _text(WIDTH - right + 16, labels[name] + 4, name, "start", 13, role, colour[0])
        )
    return _svg(plot.title, height, parts, colours)


def _colours(names: Collection[str]) -> dict[str, tuple[str, str]]:
    """A class for each line and its colour, no two alike while there are enough."""
    own = {name: index for name in names for first, index in OWN.items() if name.startswith(first)}
    free = [index for index in range(len(LINES)) if index not in (*own.values(), OWN["raw C"])]
    others = cycle(free)
    chosen = [own[name] if name in own else next(others) for name in names]
    return {f"line{place}": LINES[index] for place, index in enumerate(chosen)}


class _Axis:
    """From figures to places, by a straight scale from 0 or by one of factors."""

    def __init__(
        self, values: Sequence[float], log: bool, first: float, last: float, whole: bool = False
    ) -> None:
        self._log, self._whole = log, whole
        self._values = sorted(set(values))
        self._first, self._last = first, last
        low, high = self._values[0], self._values[-1]
        if log:
            # Out to the next of 1, 2 and 5, so that a line has a rule above and below it.
            steps = self._steps(low, high)
            self._low, self._high = (low, high) if whole else (steps[0], steps[-1])
        else:
            self._low, self._high = min(0.0, low), high if whole else self._above(high)
        if self._low == self._high:
            self._high = self._low * 2 if log else self._low + 1

    def place(self, value: float) -> float:
        """Where a value lies, in pixels."""
        low, high = self._low, self._high
        if self._log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self._first + (value - low) / (high - low) * (self._last - self._first)

    def ticks(self) -> list[float]:
        """Between eight and two values to be named."""
        if self._whole and len(self._values) <= 9:
            return self._values
        if self._log:
            steps = self._steps(self._low, self._high)
            decades = [step for step in steps if round(math.log10(step), 9).is_integer()]
            return decades if len(decades) > 3 else steps
        step = self._step(self._high - self._low)
        return [index * step for index in range(int(self._high / step + 1e-9) + 1)]

    def apart(self, values: list[float], room: float) -> list[float]:
        """Those that are so many pixels from each other, the last among them."""
        kept = values[-1:]
        for value in reversed(values[:-1]):
            if abs(self.place(kept[0]) - self.place(value)) >= room:
                kept.insert(0, value)
        return kept

    def _above(self, high: float) -> float:
        step = self._step(high)
        return math.ceil(high / step - 1e-9) * step if high else 1.0

    @staticmethod
    def _step(span: float) -> float:
        rough = (span or 1.0) / 5
        power = 10 ** math.floor(math.log10(rough))
        return next(power * each for each in (1, 2, 5, 10) if power * each >= rough * 0.999)

    @staticmethod
    def _steps(low: float, high: float) -> list[float]:
        powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
        every = [each * 10.0**power for power in powers for each in (1, 2, 5)]
        below = max(step for step in every if step <= low * (1 + 1e-9))
        above = min(step for step in every if step >= high * (1 - 1e-9))
        return [step for step in every if below <= step <= above]


def _apart(ends: Mapping[str, float], step: float, top: float, bottom: float) -> dict[str, float]:
    """The places of names beside their lines, none on another, all within the chart."""
    order = sorted(ends, key=lambda name: ends[name])
    places: dict[str, float] = {}
    free = top
    for name in order:
        places[name] = max(ends[name], free)
        free = places[name] + step
    limit = bottom
    for name in reversed(order):
        places[name] = min(places[name], limit)
        limit = places[name] - step
    return places


def _tick(value: float) -> str:
    """A round number in few characters."""
    for unit, power in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= power * 10 or (value >= power and unit != "k"):
            return f"{value / power:g}{unit}"
    return f"{value:g}"


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _rule(x1: float | str, y1: float | str, x2: float | str, y2: float | str) -> str:
    return (
        f'<line class="faint" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" '
        f'stroke="{FAINT[0]}" stroke-width="1"/>'
    )


def _text(
    x: float,
    y: float,
    words: str,
    anchor: str,
    size: int = 14,
    role: str = "ink",
    colour: str = INK[0],
    weight: str = "",
) -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    return (
        f'<text class="{role}" x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}" '
        f'font-size="{size}" fill="{colour}"{bold} xml:space="preserve">{escape(words)}</text>'
    )


def _svg(
    title: str, height: int, parts: Iterable[str], roles: Mapping[str, tuple[str, str]]
) -> str:
    """The file around the parts; what is drawn dark is told by classes, the rest by attributes."""
    dark = {"ink": INK, **roles}
    rules = [f".{name}{{fill:{colours[1]}}}" for name, colours in dark.items()]
    rules += [f".{name}-stroke{{stroke:{colours[1]}}}" for name, colours in roles.items()]
    rules += [f".ground{{fill:{GROUND[1]}}}", f".cut{{stroke:{GROUND[1]}}}"]
    rules += [f".faint{{stroke:{FAINT[1]}}}"]
    body = "\n".join(
        [
            f"<title>{escape(title)}</title>",
            f"<style>@media (prefers-color-scheme:dark){{{''.join(rules)}}}</style>",
            f'<rect class="ground" width="{WIDTH}" height="{height}" rx="8" fill="{GROUND[0]}"/>',
            _text(20, 28, title, "start", 16, weight="600"),
            *parts,
        ]
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" font-family="system-ui, sans-serif">\n'
        f"{body}\n</svg>\n"
    )
