"""What one benchmark measured: sections, bars and plots; their text, and their command line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rounds import Rows


@dataclass(frozen=True)
class Bar:
    """What a cell of a section's table must not pass, and what it should reach.

    Attributes:
        what: the cell in words, with its unit.
        row: of the table.
        column: of the table.
        limit: what must hold; a run that misses it fails.
        aim: where it should go; missing it fails nothing.
    """

    what: str
    row: str
    column: str
    limit: float
    aim: float | None = None


@dataclass(frozen=True)
class Plot:
    """Lines over a common axis.

    Attributes:
        name: of the file that is drawn, without its suffix.
        title: what is seen, in a few words.
        x: the axis, with its unit.
        y: the same of the other.
        series: a line's name -> its points, by rising x.
        log: the axes whose steps are factors: "", "x", "y" or "xy".
        x_names: what stands on the axis instead of a number.
    """

    name: str
    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    log: str = "xy"
    x_names: Mapping[float, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """One table: a row for each thing that was measured, a column for each figure of it.

    Attributes:
        title: unique on the page.
        note: how it was measured, in Markdown.
        rows: the table.
        bars: what must hold of it.
        plots: what is seen better in a picture.
        missed: why a bar is missed: what was tried, what the profile shows, where the floor is.
    """

    title: str
    note: str
    rows: Rows
    bars: tuple[Bar, ...] = ()
    plots: tuple[Plot, ...] = ()
    missed: str = ""

    def value(self, bar: Bar) -> float:
        """What was measured for a bar."""
        return self.rows[bar.row][bar.column]

    def holds(self, bar: Bar) -> bool:
        """Whether the bar was met."""
        return self.value(bar) <= bar.limit

    def missed_bars(self) -> list[Bar]:
        """Those that were not."""
        return [bar for bar in self.bars if not self.holds(bar)]

    def reaches(self, bar: Bar) -> bool:
        """Whether it was met and is where it should go."""
        return self.holds(bar) and (bar.aim is None or self.value(bar) <= bar.aim)


Measured = Section | Sequence[Section]


def main(measure: Callable[[], Measured], once: Callable[[], Rows] | None = None) -> None:
    """The command line of one benchmark: measures, prints, and fails where a bar is missed.

    Args:
        measure: gives its section, or several.
        once: gives the figures of this process alone, for `rounds.median_of_runs`.
    """
    import record

    if once is not None and "--once" in sys.argv:
        print(json.dumps(once()))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures in this record")
    options = parser.parse_args()
    name = Path(sys.argv[0]).stem
    begun = record.begin()
    measured = measure()
    sections = [measured] if isinstance(measured, Section) else list(measured)
    for section in sections:
        print(text(section), end="\n\n")
    print("\n".join(begun.machine.lines()), end="\n\n")
    print("\n".join(verdicts(sections)))
    if options.json:
        record.keep(options.json, name, begun.with_sections(sections))
    sys.exit(1 if any(section.missed_bars() for section in sections) else 0)


def verdicts(sections: Sequence[Section]) -> list[str]:
    """A line for each bar: whether it holds, what was measured, what must hold, what should."""
    lines = []
    for section in sections:
        for bar in section.bars:
            word = "FAIL" if not section.holds(bar) else "pass"
            aim = "" if bar.aim is None else f"aim {figure(bar.aim)}"
            value, limit = figure(section.value(bar)), figure(bar.limit)
            lines.append(f"{word}  {value:>8} <= {limit:<6} {aim:<9}  {bar.what}")
    return lines


def figure(value: float) -> str:
    """Three significant digits, without an exponent."""
    decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{decimals}f}"


def grid(section: Section) -> list[list[str]]:
    """The cells as text, the headings first; a row may lack columns."""
    columns = list(dict.fromkeys(column for cells in section.rows.values() for column in cells))
    return [["", *columns]] + [
        [row, *(figure(cells[column]) if column in cells else "" for column in columns)]
        for row, cells in section.rows.items()
    ]


def text(section: Section) -> str:
    """A section for a terminal."""
    table = grid(section)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join([first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])])
        for first, *rest in table
    ]
    return "\n".join([section.title, *lines])
