"""What a call costs: raw C, `exe(a, a)`, and JAX's dispatch of the same program, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import programs
import report
import rounds

ROUNDS, RUNS, CALLS = 61, 5, 1_000  # A busy machine interrupts few of such short turns.

TANH = "2 → 1, tanh(a·b+1)"
THIRTY = "30 → 30, sums"
ROUND_TRIP = "numpy → numpy, 2 → 1"
#: The ratio without the plugin's time, which is a quarter to a half of a call in JAX.
ADDED = "added ÷ jit's"
#: Row -> its arguments and its results.
PROGRAMS = {
    "1 → 1, a+1": (1, 1),
    TANH: (2, 1),
    "8 → 8, sums": (8, 8),
    "30 → 1, their sum": (30, 1),
    THIRTY: (30, 30),
    "200 → 200, sums": (200, 200),
}
BARS = (
    report.Bar("`exe(a, a)`, times a raw C loop over the same plugin", TANH, "÷ raw C", 1.3, 1.15),
    report.Bar(
        "`call = exe.bind(a, a)`, then `call()`, times raw C", TANH, "bound ÷ raw C", 1.15, 1.05
    ),
    report.Bar("what `exe(a, a)` adds to raw C, times what `jax.jit` adds", TANH, ADDED, 0.19, 0.1),
    report.Bar("30 arguments and results, times raw C", THIRTY, "÷ raw C", 1.25, 1.1),
    report.Bar("the same of 30 arguments and results", THIRTY, ADDED, 0.21, 0.1),
    report.Bar(
        "`np.asarray(exe(x, x))` of a numpy array, times raw C", ROUND_TRIP, "÷ raw C", 2.2, 1.6
    ),
)


def measure() -> report.Section:
    """The median of several processes."""
    return report.Section(
        "A call",
        "Microseconds for running a program on float32[8] (a scalar for 1 → 1) and freeing "
        "its results, without waiting; pinned\nto one CPU. Bound is `call = exe.bind(a, b)` "
        "before the loop and `call()` in it. JAX runs the same computation on its\nown CPU "
        "backend, by `jax.jit` and by its compiled form. From numpy to numpy the raw C loop "
        "puts two arguments, runs,\nwaits, copies and frees. `added ÷ jit's` is what pjrt-hub"
        " takes more than raw C, divided by what `jax.jit` takes more.",
        rounds.median_of_runs(__file__, RUNS),
        BARS,
    )


def once() -> rounds.Rows:
    """One process's figures."""
    rounds.pin()
    import jax
    import numpy
    import raw

    import pjrt_hub

    client = pjrt_hub.client("cpu")
    loop = raw.RawLoop(client)
    rows: rounds.Rows = {}
    for row, (parameters, outputs) in PROGRAMS.items():
        x = numpy.float32(0.5) if row == "1 → 1, a+1" else _floats()
        text, in_jax = _program(parameters, outputs)
        exe, jit = client.compile(text), jax.jit(in_jax)
        ours = [client.buffer_from_host(x)] * parameters
        theirs = [jax.device_put(x)] * parameters
        compiled = jit.lower(*theirs).compile()
        _compare(exe(*ours, simplify=False), jax.tree.leaves(jit(*theirs)))
        count = CALLS // max(outputs, parameters // 4, 1)

        rows[row] = _row(
            count,
            {
                "raw C": partial(loop.call, exe, ours, outputs, count),
                "bound": timed("call", exe.bind(*ours), [], count),
                "pjrt-hub": timed("exe", exe, ours, count),
                "jax.jit": timed("jit", jit, theirs, count),
                "jax compiled": timed("compiled", compiled, theirs, count),
            },
        )
    rows[ROUND_TRIP] = _round_trip(client, loop)
    return rows


def _round_trip(client: Any, loop: Any) -> dict[str, float]:
    """From a numpy array to a numpy array, as a person writes it."""
    import jax
    import numpy as np

    x, count = _floats(), CALLS // 3
    text, in_jax = _program(2, 1)
    exe, jit = client.compile(text), jax.jit(in_jax)
    np.testing.assert_allclose(np.asarray(exe(x, x)), jit(x, x), rtol=1e-6)
    known = {"np": np, "x": x, "exe": exe, "jit": jit}
    return _row(
        count,
        {
            "raw C": lambda: loop.round_trip(x, exe, count),
            "pjrt-hub": partial(rounds.turns("np.asarray(exe(x, x))", **known), count),
            "jax.jit": partial(rounds.turns("np.asarray(jit(x, x))", **known), count),
        },
    )


def _row(count: int, variants: dict[str, Callable[[], float]]) -> dict[str, float]:
    times = rounds.interleave(variants, ROUNDS)
    cells = rounds.cells(times, count, "raw C")
    for column, base in {"÷ jit": "jax.jit", "÷ compiled": "jax compiled"}.items():
        if base in times:
            cells[column] = rounds.ratio(times, "pjrt-hub", base)
    if {"raw C", "jax.jit"} <= times.keys():
        cells[ADDED] = rounds.share(times, "pjrt-hub", "jax.jit", "raw C")
    if "bound" in times:
        cells["bound ÷ raw C"] = rounds.ratio(times, "bound", "raw C")
    return cells


def timed(
    name: str, function: Callable[..., object], arguments: Sequence[object], count: int
) -> Callable[[], float]:
    """Measure `function` called as a person would write it: `exe(a, a)`."""
    names = [f"a{index}" for index in range(len(arguments))]
    known = {name: function, **dict(zip(names, arguments, strict=True))}
    return partial(rounds.turns(f"{name}({', '.join(names)})", **known), count)


def _program(parameters: int, outputs: int) -> tuple[Any, Callable[..., object]]:
    """What pjrt-hub compiles, and the same for JAX."""
    import raw

    if parameters == 1:
        return raw.PROGRAMS / "scalar.mlir", lambda a: a + 1.0
    if parameters == 2:
        return raw.PROGRAMS / "tanh_mul_add.mlir", programs.tanh_in_jax()
    if outputs == 1:
        return programs.total(parameters), programs.total_in_jax
    return programs.sums(parameters), programs.sums_in_jax


def _floats() -> Any:
    import numpy

    return numpy.linspace(0, 1, 8, dtype=numpy.float32)


def _compare(ours: Iterable[Any], theirs: Iterable[Any]) -> None:
    import numpy

    for a, b in zip(ours, theirs, strict=True):
        numpy.testing.assert_allclose(a.to_numpy(), numpy.asarray(b), rtol=1e-6)


if __name__ == "__main__":
    report.main(measure, once)
