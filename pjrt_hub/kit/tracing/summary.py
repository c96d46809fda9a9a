"""How often each function was called and how long it took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from pjrt_hub.kit.tracing.call import Call


@dataclass(frozen=True)
class Row:
    """One function's calls; times are nanoseconds, of the calls that returned."""

    function: str
    count: int
    errors: int
    total: int
    mean: float
    p50: int
    p99: int
    max: int


def summary(calls: Iterable[Call]) -> list[Row]:
    """Return a row for each function, the slowest first.

    Args:
        calls: the calls to count.
    """
    known: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        known[call.function].append(call)
    rows = [_row(function, those) for function, those in known.items()]
    return sorted(rows, key=lambda row: (-row.total, row.function))


def _row(function: str, calls: list[Call]) -> Row:
    times = sorted(call.duration_ns for call in calls if call.duration_ns is not None) or [0]
    return Row(
        function,
        count=len(calls),
        errors=sum(call.error != 0 for call in calls),
        total=sum(times),
        mean=sum(times) / len(times),
        p50=_percentile(times, 50),
        p99=_percentile(times, 99),
        max=times[-1],
    )


def _percentile(times: list[int], percent: int) -> int:
    """Return the least of `times`, which are sorted, that `percent` % of them do not exceed."""
    return times[max(-(-len(times) * percent // 100), 1) - 1]
