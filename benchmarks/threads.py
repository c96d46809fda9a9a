"""Calls from two threads, and calls beside a thread that is busy in Python."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from timeit import Timer

import report
import rounds

ROUNDS, RUNS, CALLS = 9, 3, 10_000
#: The seconds of calls beside a busy thread: many of the time slices of 5 ms between threads.
BESIDE = 0.3

ALONE, TWO, BUSY = "one thread", "two threads", "beside a busy thread"
BARS = (
    report.Bar(
        '`exe(a, a)` beside a busy Python thread, `exe.gil = "adaptive"`, µs',
        BUSY,
        "adaptive µs",
        20,
        10,
    ),
)


def measure() -> report.Section:
    """The median of several processes."""
    return report.Section(
        "Threads",
        "Microseconds that a call of the small program takes (2 → 1) on all CPUs: of one "
        "thread; of two that call the same\nexecutable at once; and of one beside a thread "
        "that only counts, in Python, and keeps the GIL for its time slice of 5\nms. The "
        "plugin runs one execution of an executable at a time, so two threads of C gain "
        'little too. Adaptive is\n`exe.gil = "adaptive"`.',
        rounds.median_of_runs(__file__, RUNS),
        BARS,
    )


def once() -> rounds.Rows:
    """One process's figures."""
    rounds.quiet()
    import jax
    import numpy as np
    import programs
    import raw

    import pjrt_hub

    client = pjrt_hub.client("cpu")
    loop = raw.RawLoop(client)
    x = np.linspace(0, 1, 8, dtype=np.float32)
    exe, jit = client.compile(raw.PROGRAMS / "tanh_mul_add.mlir"), jax.jit(programs.tanh_in_jax())
    kept = client.compile(raw.PROGRAMS / "tanh_mul_add.mlir")
    kept.gil = "adaptive"
    a, b = client.buffer_from_host(x), jax.device_put(x)
    calls: dict[str, Callable[[int], object]] = {
        "pjrt-hub": Timer("exe(a, a)", globals={"exe": exe, "a": a}).timeit,
        "adaptive": Timer("kept(a, a)", globals={"kept": kept, "a": a}).timeit,
        "jax.jit": Timer("jit(b, b)", globals={"jit": jit, "b": b}).timeit,
    }
    rows: rounds.Rows = {}
    for row, threads in {ALONE: 1, TWO: 2}.items():
        total = CALLS // threads
        variants: dict[str, Callable[[], float]] = {
            "raw C": partial(loop.threads, exe, [a, a], total, threads)
        }
        variants |= {
            name: partial(_in_threads, call, total, threads) for name, call in calls.items()
        }
        rows[row] = _row(variants, CALLS)
    with _busy_thread():
        beside = {name: partial(_per_call, call) for name, call in calls.items()}
        rows[BUSY] = _row(beside, 1)
    return rows


def _per_call(call: Callable[[int], object]) -> float:
    """Seconds of a call, over so many as a time of many slices holds."""
    count, begun = 0, perf_counter()
    while (seconds := perf_counter() - begun) < BESIDE:
        call(10)
        count += 10
    return seconds / count


def _in_threads(call: Callable[[int], object], count: int, threads: int) -> float:
    running = [threading.Thread(target=call, args=(count,)) for _ in range(threads)]
    begun = perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return perf_counter() - begun


@contextmanager
def _busy_thread() -> Iterator[None]:
    """A thread that counts as long as this runs."""
    done = False

    def count() -> None:
        turns = 0
        while not done:
            turns += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield
    finally:
        done = True
        thread.join()


def _row(variants: Mapping[str, Callable[[], float]], count: int) -> dict[str, float]:
    return rounds.cells(rounds.interleave(variants, ROUNDS), count, "raw C", "jax.jit")


if __name__ == "__main__":
    report.main(measure, once)
