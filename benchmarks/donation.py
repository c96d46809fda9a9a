"""A loop whose result is the next call's argument: what a turn costs, and that nothing grows."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import report
import rounds

ROUNDS, RUNS, CALLS = 11, 3, 5_000
#: The turns between two readings of the process's memory, and the number of readings.
TURNS, READINGS = 100_000, 5

LOOP = "a = exe(a, b)"
PAGE = os.sysconf("SC_PAGE_SIZE")
BARS = (
    report.Bar("`a = exe(a, b)` with `a` donated, times raw C", LOOP, "÷ raw C", 1.4, 1.2),
    report.Bar(
        "KiB that 100,000 turns with donation grow by", LOOP, "pjrt-hub KiB per 100k", 64, 0
    ),
)


def measure() -> report.Section:
    """The median of several processes."""
    return report.Section(
        "A loop with donation",
        "Microseconds for a turn of `a = exe(a, b)` on float32[8], where the program takes "
        "the memory of `a` for its result;\npinned to one CPU. JAX: `a = jit(a, b)` with "
        f"`donate_argnums=0`. Growth is of the resident memory after {TURNS:,} turns,\nin "
        f"pages of {PAGE // 1024} KiB: the least of {READINGS} readings. A byte lost in each "
        "turn would be 98 KiB.",
        rounds.median_of_runs(__file__, RUNS),
        BARS,
    )


def once() -> rounds.Rows:
    """One process's figures."""
    rounds.pin()
    import jax
    import numpy as np
    import raw

    import pjrt_hub

    client = pjrt_hub.client("cpu")
    loop = raw.RawLoop(client)
    exe = client.compile(raw.PROGRAMS / "donate.mlir")
    jit = jax.jit(lambda a, b: a + b, donate_argnums=0)
    x, step = np.zeros(8, np.float32), np.full(8, 2.0**-20, np.float32)
    put = client.buffer_from_host
    _check(exe(put(x), put(step)), jit(jax.device_put(x), jax.device_put(step)), step)
    ours = _looped(exe, put(x), put(step))
    theirs = _looped(jit, jax.device_put(x), jax.device_put(step))
    b = put(step)
    variants: dict[str, Callable[[int], float]] = {
        "raw C": lambda count: loop.donate(exe, put(x), b, count),
        "pjrt-hub": ours,
        "jax.jit": theirs,
    }
    times = rounds.interleave(
        {name: partial(turns, CALLS) for name, turns in variants.items()}, ROUNDS
    )
    cells = rounds.cells(times, CALLS, "raw C", "jax.jit")
    for name, turns in variants.items():
        cells[f"{name} KiB per 100k"] = _growth(partial(turns, TURNS)) / 1024
    return {LOOP: cells}


def _looped(exe: Callable[..., Any], a: Any, b: Any) -> Callable[[int], float]:
    """Measure so many turns; the next time goes on with the last result."""

    def turns(count: int) -> float:
        nonlocal a
        x = a
        a = None  # Only the loop holds its argument, as in a user's code.
        begun = perf_counter()
        for _ in range(count):
            x = exe(x, b)
        seconds = perf_counter() - begun
        a = x
        return seconds

    return turns


def _growth(turns: Callable[[], object]) -> float:
    """The least bytes that the process grew by in one of several times."""
    grown = []
    for _ in range(READINGS):
        before = _resident()
        turns()
        grown.append(_resident() - before)
    return min(grown)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * PAGE


def _check(ours: Any, theirs: Any, expected: Any) -> None:
    import numpy as np

    np.testing.assert_array_equal(ours.to_numpy(), expected)
    np.testing.assert_array_equal(np.asarray(theirs), expected)


if __name__ == "__main__":
    report.main(measure, once)
