"""The charts at the top of the page as data: what is compared, and where its figures come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from section import Section


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


#: A label, its role, and the section, row and column of its value.
Pick = tuple[str, str, str, str, str]
_CALL, _ROW = "A call", "2 → 1, tanh(a·b+1)"
#: A section that other processes measured -> its cell of a value that another section also has,
#: and that one's cell. Their ratio scales its figures, as a busy machine slows whole processes.
SAME = {"Peers": (("pjrt-hub", "a call µs"), (_CALL, _ROW, "pjrt-hub µs"))}
#: The charts at the top of the page: name, title, unit, base and bars.
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
