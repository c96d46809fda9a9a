"""What a call costs: raw C, `exe(a, a)`, and JAX's dispatch of the same program, in one process."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from timeit import Timer

import report
import rounds

ROUNDS, RUNS, CALLS = 15, 5, 10_000

#: Row -> the program in tests/programs, its parameters, its outputs.
PROGRAMS = {
    "2 → 1, tanh(a·b+1)": ("tanh_mul_add", 2, 1),
    "1 → 1, a+1": ("scalar", 1, 1),
    "8 → 8, sums": ("eight_to_eight", 8, 8),
    "30 → 30, sums": ("thirty_to_thirty", 30, 30),
}
BARS = (
    report.Bar(
        "`exe(a, a)`, times a raw C loop over the same plugin", "2 → 1, tanh(a·b+1)", "÷ raw C", 1.4
    ),
    report.Bar("`exe(a, a)`, times the dispatch of `jax.jit`", "2 → 1, tanh(a·b+1)", "÷ jit", 0.5),
    report.Bar("30 arguments and results, times raw C", "30 → 30, sums", "÷ raw C", 1.35),
)


def measure() -> report.Section:
    """The median of several processes."""
    return report.Section(
        "A call",
        "Microseconds for running a program on float32[8] (a scalar for 1 → 1) and freeing its "
        "results, without waiting;\npinned to one CPU. The raw C loop runs over the same plugin, "
        "client, executable and buffers as pjrt-hub. JAX runs\nthe same computation on its own "
        "CPU backend, by `jax.jit` and by its compiled form (`lower().compile()`).",
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
    for row, (name, parameters, outputs) in PROGRAMS.items():
        x = numpy.float32(0.5) if name == "scalar" else numpy.linspace(0, 1, 8, dtype=numpy.float32)
        exe = client.compile(raw.PROGRAMS / f"{name}.mlir")
        ours = [client.buffer_from_host(x)] * parameters
        theirs = [jax.device_put(x)] * parameters
        jit = jax.jit(_in_jax(name))
        compiled = jit.lower(*theirs).compile()
        _compare(exe(*ours, simplify=False), jax.tree.leaves(jit(*theirs)))
        count = CALLS // outputs

        def raw_c(exe=exe, ours=ours, outputs=outputs, count=count) -> float:
            return loop.call(exe, ours, outputs, count)

        times = rounds.interleave(
            {
                "raw C": raw_c,
                "pjrt-hub": timed("exe", exe, ours, count),
                "jit": timed("jit", jit, theirs, count),
                "compiled": timed("compiled", compiled, theirs, count),
            },
            ROUNDS,
        )
        rows[row] = {
            "raw C µs": median(times["raw C"]) / count * 1e6,
            "pjrt-hub µs": median(times["pjrt-hub"]) / count * 1e6,
            "jax.jit µs": median(times["jit"]) / count * 1e6,
            "jax compiled µs": median(times["compiled"]) / count * 1e6,
            "÷ raw C": rounds.ratio(times, "pjrt-hub", "raw C"),
            "÷ jit": rounds.ratio(times, "pjrt-hub", "jit"),
            "÷ compiled": rounds.ratio(times, "pjrt-hub", "compiled"),
        }
    return rows


def timed(
    name: str, function: Callable[..., object], arguments: list[object], count: int
) -> Callable[[], float]:
    """Measures `function` called as a person would write it: `exe(a, a)`."""
    names = [f"a{index}" for index in range(len(arguments))]
    known = {name: function, **dict(zip(names, arguments, strict=True))}
    timer = Timer(f"{name}({', '.join(names)})", globals=known)
    return lambda: timer.timeit(count)


def _in_jax(name: str) -> Callable[..., object]:
    import jax.numpy as jnp

    def sums(*arguments: object) -> object:
        following = arguments[1:] + arguments[:1]
        return tuple(a + b for a, b in zip(arguments, following, strict=True))

    functions = {"tanh_mul_add": lambda a, b: jnp.tanh(a * b + 1.0), "scalar": lambda a: a + 1.0}
    return functions.get(name, sums)


def _compare(ours: tuple, theirs: list) -> None:
    import numpy

    for a, b in zip(ours, theirs, strict=True):
        numpy.testing.assert_allclose(a.to_numpy(), numpy.asarray(b), rtol=1e-6)


if __name__ == "__main__":
    report.main(measure, once)
