"""The command line of one benchmark, and its sections as text."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import record
from rounds import Rows
from section import Bar, Measured, Plot, Section

__all__ = ["Bar", "Plot", "Section", "figure", "grid", "main", "text", "verdicts"]


def main(measure: Callable[[], Measured], once: Callable[[], Rows] | None = None) -> None:
    """The command line of one benchmark: measures, prints, and fails where a bar is missed.

    Args:
        measure: gives its section, or several.
        once: gives the figures of this process alone, for `rounds.median_of_runs`.
    """
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
    return [["what", *columns]] + [
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
