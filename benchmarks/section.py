"""What one benchmark measured: a table, what must hold of it, and what is drawn of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    """Lines over a common axis, both axes with steps that are factors.

    Attributes:
        name: of the file that is drawn, without its suffix.
        title: what is seen, in a few words.
        x: the axis, with its unit.
        y: the same of the other.
        series: a line's name -> its points, by rising x.
        x_names: what stands on the axis for each number.
    """

    name: str
    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    x_names: Mapping[float, str]


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
