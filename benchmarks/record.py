"""The record of what was measured, in JSON: a part for each benchmark, with its date and machine.

docs/benchmarks/figures.json is the last one; the page and the charts are made from it alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from machine import Machine, this
from section import Bar, Plot, Section

#: The number of significant digits that a figure keeps.
DIGITS = 4
#: A list or an object whose values are all numbers.
_NUMBER = r"-?\d[\d.e+-]*"
_TEXT = r'"(?:[^"\\]|\\.)*"'
_INNERMOST = re.compile(
    rf"\[\s+{_NUMBER}(?:,\s+{_NUMBER})*\s+\]"
    rf"|\{{\s+{_TEXT}: {_NUMBER}(?:,\s+{_TEXT}: {_NUMBER})*\s+\}}"
)


@dataclass(frozen=True)
class Part:
    """What one benchmark measured, when, and on what.

    Attributes:
        date: in the form of ISO 8601.
        machine: as it was before.
        sections: in the order of the page.
    """

    date: str
    machine: Machine
    sections: tuple[Section, ...] = ()

    def with_sections(self, sections: Sequence[Section]) -> Part:
        """The same with what was measured."""
        return replace(self, sections=tuple(sections))


Record = dict[str, Part]


def begin() -> Part:
    """Today and this machine, before anything is measured."""
    return Part(date.today().isoformat(), this())


def keep(path: Path, name: str, part: Part) -> None:
    """Put a benchmark's part into the record in `path`, in the place of what it said before."""
    write(path, {**(read(path) if path.exists() else {}), name: part})


def read(path: Path) -> Record:
    """The record that a file holds."""
    held = json.loads(path.read_text("utf-8"))
    return {name: _part(each) for name, each in held["benchmarks"].items()}


def write(path: Path, record: Record) -> None:
    """Write a record, its benchmarks in the order of their names, its figures rounded."""
    parts = {name: _rounded(asdict(record[name])) for name in sorted(record)}
    text = json.dumps({"benchmarks": parts}, indent=1, ensure_ascii=False, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_INNERMOST.sub(_on_one_line, text) + "\n", "utf-8")


def _on_one_line(found: re.Match[str]) -> str:
    """A point or a row of a table."""
    return re.sub(r"\n *", " ", found[0])


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        short = float(f"{value:.{DIGITS}g}")
        return int(short) if short.is_integer() else short
    if isinstance(value, dict):
        return {str(key): _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value


def _part(held: dict[str, Any]) -> Part:
    machine = held["machine"] | {"load": tuple(held["machine"]["load"])}
    return Part(held["date"], Machine(**machine), tuple(map(_section, held["sections"])))


def _section(held: dict[str, Any]) -> Section:
    bars = tuple(Bar(**each) for each in held["bars"])
    plots = tuple(map(_plot, held["plots"]))
    return Section(**held | {"bars": bars, "plots": plots})


def _plot(held: dict[str, Any]) -> Plot:
    series = {name: [(x, y) for x, y in points] for name, points in held["series"].items()}
    names = {float(x): name for x, name in held["x_names"].items()}
    return Plot(**held | {"series": series, "x_names": names})
