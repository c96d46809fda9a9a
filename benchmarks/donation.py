"""Loops whose results are the next call's arguments: what a turn costs, and that nothing grows."""

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

#: The buffers that a step carries, beside an argument and a result.
CARRIED = 64

LOOP, STEP = "a = exe(a, b)", f"step(b), {CARRIED} carried"
PAGE = os.sysconf("SC_PAGE_SIZE")
BARS = (
    report.Bar("`a = exe(a, b)` with `a` donated, times raw C", LOOP, "÷ raw C", 1.4, 1.2),
    report.Bar(
        f"`step(b)` with {CARRIED} buffers carried, times raw C", STEP, "÷ raw C", 1.25, 1.15
    ),
    report.Bar(
        f"`step(b)` with {CARRIED} buffers carried, times jax.jit", STEP, "÷ jax.jit", 0.5, 0.4
    ),
    *(
        report.Bar(
            f"KiB that 100,000 turns of `{loop}` grow by", loop, "pjrt-hub KiB per 100k", 64, 0
        )
        for loop in (LOOP, STEP)
    ),
)


def measure() -> report.Section:
    """The median of several processes."""
    return report.Section(
        "A loop with donation",
        "Microseconds for a turn of `a = exe(a, b)` on float32[8], where the program takes "
        "the memory of `a` for its result,\nand of a [step](executables.md#steps-with-a-state) "
        f"that carries {CARRIED} such buffers; pinned to one CPU. JAX: `jax.jit` with\n"
        f"`donate_argnums`. Growth is of the resident memory after {TURNS:,} turns, in "
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
    b = put(step)
    variants: dict[str, Callable[[int], float]] = {
        "raw C": lambda count: loop.carry(exe, [put(x), b], 1, count),
        "pjrt-hub": _looped(exe, put(x), b),
        "jax.jit": _looped(jit, jax.device_put(x), jax.device_put(step)),
    }
    return {LOOP: _cells(variants), STEP: _cells(_steps(client, loop, x, step))}


def _cells(variants: dict[str, Callable[[int], float]]) -> dict[str, float]:
    times = rounds.interleave(
        {name: partial(turns, CALLS) for name, turns in variants.items()}, ROUNDS
    )
    cells = rounds.cells(times, CALLS, "raw C", "jax.jit")
    for name, turns in variants.items():
        cells[f"{name} KiB per 100k"] = _growth(partial(turns, TURNS)) / 1024
    return cells


def _steps(client: Any, loop: Any, x: Any, b: Any) -> dict[str, Callable[[int], float]]:
    """The same of many buffers, each of which grows by `b` in a turn."""
    import jax
    import numpy as np

    exe = client.compile(_carrying(CARRIED))
    same = {number: number for number in range(CARRIED)}
    state = [x * 0 for _ in same]
    step = exe.stepper(same, state=dict(enumerate(state)))
    jit = jax.jit(lambda held, b: ([each + b for each in held], held[0] + b + b), donate_argnums=0)
    put = client.buffer_from_host
    _check(step(put(b)), jit(jax.device_put(state), jax.device_put(b))[1], b * 2)
    np.testing.assert_array_equal(step.state[CARRIED - 1], b)
    given, theirs = put(b), jax.device_put(b)
    held = jax.device_put(state)

    def jitted(count: int) -> float:
        nonlocal held
        begun = perf_counter()
        for _ in range(count):
            held, _out = jit(held, theirs)
        return perf_counter() - begun

    def stepped(count: int) -> float:
        begun = perf_counter()
        for _ in range(count):
            step(given)
        return perf_counter() - begun

    return {
        "raw C": lambda count: loop.carry(exe, [*map(put, state), given], CARRIED, count),
        "pjrt-hub": stepped,
        "jax.jit": jitted,
    }


def _carrying(count: int) -> str:
    """A program that adds its last argument to each of the others, which it donates."""
    kind = "tensor<8xf32>"
    takes = [f"%a{n}: {kind} {{tf.aliasing_output = {n} : i32}}" for n in range(count)]
    sums = [f"%s{n} = stablehlo.add %a{n}, %b : {kind}" for n in range(count)]
    gives = ", ".join([*(f"%s{n}" for n in range(count)), "%last"])
    kinds = ", ".join([kind] * (count + 1))
    body = "\n".join([*sums, f"%last = stablehlo.add %s0, %b : {kind}"])
    head = f"func.func public @main({', '.join(takes)}, %b: {kind}) -> ({kinds})"
    return f"{head} {{\n{body}\nreturn {gives} : {kinds}\n}}"


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
