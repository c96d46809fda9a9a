"""How a cost grows: a table by the number of something, its power, and its plot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import linear_regression

import report
import rounds

POWER = "grows with the power"


@dataclass(frozen=True)
class Growth:
    """One table: what grows, and with what.

    Attributes:
        name: of its rows in one process's figures, and of its chart.
        title: of its section.
        axis: of its chart.
        unit: of the figures.
        steps: the name of a row -> how many there are of what it grows with.
        note: of its section.
        bars: column -> the power that it may grow with.
    """

    name: str
    title: str
    axis: str
    unit: str
    steps: dict[str, float]
    note: str
    bars: dict[str, float]

    def section(self, figures: rounds.Rows) -> report.Section:
        """The table of what one process measured, or the median of several."""
        rows = {row: dict(figures[f"{self.name} {row}"]) for row in self.steps}
        columns = list(next(iter(rows.values())))
        series = {
            column: [(self.steps[row], cells[column]) for row, cells in rows.items()]
            for column in columns
        }
        rows[POWER] = {column: power(points) for column, points in series.items()}
        return report.Section(
            self.title,
            self.note,
            rows,
            tuple(
                report.Bar(f"{self.title}: the power of {column}", POWER, column, limit)
                for column, limit in self.bars.items()
            ),
            (
                report.Plot(
                    f"growth_{self.name}",
                    self.title,
                    self.axis,
                    self.unit,
                    {
                        column.removesuffix(f" {self.unit}"): points
                        for column, points in series.items()
                    },
                    x_names={self.steps[row]: row for row in self.steps},
                ),
            ),
        )


def power(points: list[tuple[float, float]]) -> float:
    """The exponent of y = c·x^p that lies closest to the upper half of the points."""
    upper = points[len(points) // 2 :]
    logs = [(math.log(x), math.log(y)) for x, y in upper]
    return linear_regression(*zip(*logs, strict=True)).slope
