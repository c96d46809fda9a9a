"""Timing that a busy machine disturbs little: every variant once a round, round after round.

What is slower because the machine is busy is slower for all of a round, so ratios are taken within
a round and their median is reported; a whole run is repeated in fresh processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from statistics import median
from timeit import Timer
from typing import TypeVar

Rows = dict[str, dict[str, float]]
Times = dict[str, list[float]]
Name = TypeVar("Name")


def interleave(
    variants: Mapping[Name, Callable[[], float]], rounds: int
) -> dict[Name, list[float]]:
    """Run every variant once to warm it, then once a round.

    Args:
        variants: each measures itself once and gives seconds.
        rounds: how many times.
    """
    for variant in variants.values():
        variant()
    times: dict[Name, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, variant in variants.items():
            times[name].append(variant())
    return times


def turns(statement: str, **known: object) -> Callable[[int], float]:
    """Give what runs a statement so many times, and tell the seconds.

    Args:
        statement: as a person would write it, `exe(a, a)`: nothing else is timed.
        known: the names in it.
    """
    return Timer(statement, globals=known).timeit


def ratio(times: Times, name: str, base: str) -> float:
    """The median of the rounds' ratios."""
    return median(a / b for a, b in zip(times[name], times[base], strict=True))


def cells(times: Times, count: int, *bases: str, ours: str = "pjrt-hub") -> dict[str, float]:
    """What a row tells: the microseconds of each variant, and the ratios of ours.

    Args:
        times: what `count` turns took in each round.
        count: of turns.
        bases: what ours is divided by, where it was measured.
        ours: the variant that is divided.
    """
    found = {f"{name} µs": median(each) / count * 1e6 for name, each in times.items()}
    return found | {f"÷ {base}": ratio(times, ours, base) for base in bases if base in times}


def excess(times: Times, name: str, base: str) -> float:
    """The median of the rounds' differences, in seconds."""
    return median(a - b for a, b in zip(times[name], times[base], strict=True))


def share(times: Times, name: str, other: str, base: str) -> float:
    """What one adds to the base, divided by what another adds, of the medians of the rounds."""
    return excess(times, name, base) / excess(times, other, base)


def pin() -> None:
    """Keep this process on one of its CPUs, so that it never moves between caches; for `once`."""
    quiet()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def quiet() -> None:
    """Keep the plugins from writing of what they find, and JAX on the CPU."""
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "2", "JAX_PLATFORMS": "cpu"}


def median_of_runs(script: str, runs: int, *words: str) -> Rows:
    """The median of every cell of what `script --once` prints as JSON, each time a new process.

    Args:
        script: a benchmark.
        runs: how many processes.
        words: more for its command line.
    """
    tables: list[Rows] = []
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, script, "--once", *words], stdout=subprocess.PIPE, check=True
        )
        tables.append(json.loads(done.stdout))
    return {
        row: {column: median(table[row][column] for table in tables) for column in cells}
        for row, cells in tables[0].items()
    }
