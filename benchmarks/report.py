"""What was measured and how it is told: sections, bars, text, JSON, and docs/benchmarks.md."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import machine
from rounds import Rows


@dataclass(frozen=True)
class Bar:
    """A limit that a cell of a section's table must not pass."""

    what: str
    row: str
    column: str
    limit: float


@dataclass(frozen=True)
class Section:
    """One table: a row for each thing that was measured, a column for each figure of it."""

    title: str
    note: str
    rows: Rows
    bars: tuple[Bar, ...] = ()

    def value(self, bar: Bar) -> float:
        """What was measured for a bar."""
        return self.rows[bar.row][bar.column]

    def holds(self, bar: Bar) -> bool:
        """Whether the bar was met."""
        return self.value(bar) <= bar.limit


def main(measure: Callable[[], Section], once: Callable[[], Rows] | None = None) -> None:
    """The command line of one benchmark: measures, prints, and fails where a bar is missed.

    Args:
        measure: gives its section.
        once: gives the figures of this process alone, for `rounds.median_of_runs`.
    """
    if once is not None and "--once" in sys.argv:
        print(json.dumps(once()))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    options = parser.parse_args()
    machine.notes()
    sys.exit(conclude([measure()], options.json))


def conclude(
    sections: Sequence[Section], json_path: Path | None = None, page_path: Path | None = None
) -> int:
    """Prints tables and bars, writes the files that were asked for, gives the exit status."""
    for section in sections:
        print(text(section), end="\n\n")
    print("\n".join(machine.notes()), end="\n\n")
    bars = [(section, bar) for section in sections for bar in section.bars]
    for section, bar in bars:
        verdict = "pass" if section.holds(bar) else "FAIL"
        print(f"{verdict}  {figure(section.value(bar)):>8} <= {figure(bar.limit):<6} {bar.what}")
    if json_path:
        record = {
            "date": date.today().isoformat(),
            "machine": machine.notes(),
            "sections": [asdict(section) for section in sections],
        }
        json_path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if page_path:
        page_path.write_text(page(sections), "utf-8")
    return 0 if all(section.holds(bar) for section, bar in bars) else 1


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


def page(sections: Sequence[Section]) -> str:
    """The text of docs/benchmarks.md."""
    lines = [
        "# Benchmarks",
        "",
        f"Measured on {date.today().isoformat()}; written by `python benchmarks --page "
        "docs/benchmarks.md`, do not edit. The machine is",
        "shared, so every ratio is taken within a round in which each variant ran once, and the "
        'tables hold medians. "÷ raw C"',
        "is pjrt-hub's time over raw C's. Lower is better everywhere.",
        "",
        *(f"- {note}" for note in machine.notes()),
        "",
        "## Bars",
        "",
        "| what | measured | at most | |",
        "|---|--:|--:|---|",
    ]
    for section in sections:
        for bar in section.bars:
            verdict = "met" if section.holds(bar) else "**missed**"
            value, limit = figure(section.value(bar)), figure(bar.limit)
            lines.append(f"| {bar.what} | {value} | {limit} | {verdict} |")
    for section in sections:
        head, *body = grid(section)
        lines += ["", f"## {section.title}", "", section.note, ""]
        lines += ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
        lines += ["| " + " | ".join(row) + " |" for row in body]
    return "\n".join(lines) + "\n"
