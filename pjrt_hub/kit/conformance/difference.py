"""Two reports compared: of two plugins, or of two versions of one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pjrt_hub.kit.conformance.verdict import Report, Result


class Trend(StrEnum):
    """What became of a check from one report to the other."""

    WORSE = "worse"
    BETTER = "better"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Change:
    """A check whose verdicts in two reports differ."""

    before: Result
    after: Result

    @property
    def name(self) -> str:
        """The name of the check."""
        return self.after.name

    @property
    def trend(self) -> Trend:
        """Worse if only the second verdict is a defect, better if only the first one is."""
        was, now = self.before.verdict.is_defect, self.after.verdict.is_defect
        if was == now:
            return Trend.OTHER
        return Trend.WORSE if now else Trend.BETTER

    @property
    def text(self) -> str:
        """Both verdicts, and what the later one found: "pass -> fail: expected ..."."""
        told = self.after.text or self.before.text
        return f"{self.before.verdict} -> {self.after.verdict}" + (f": {told}" if told else "")


def changes(before: Report, after: Report) -> list[Change]:
    """List the checks in both reports whose verdicts differ, those that became worse first."""
    trends = list(Trend)
    first = {each.name: each for each in before.results}
    found = [
        Change(first[each.name], each)
        for each in after.results
        if each.name in first and first[each.name].verdict is not each.verdict
    ]
    return sorted(found, key=lambda change: trends.index(change.trend))
