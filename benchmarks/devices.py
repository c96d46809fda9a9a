"""What a launch on eight devices costs: raw C, `exe.execute(rows)`, and JAX's two ways."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import report
import rounds

ROUNDS, RUNS, CALLS, DEVICES = 11, 3, 300, 8

ALONE = "2 → 1 on each, tanh(a·b+1)"
TOGETHER = "their sum, an all-reduce"
BARS = (
    report.Bar(
        "`exe.execute(rows)` on eight devices, awaited, times raw C", ALONE, "÷ raw C", 1.75, 1.25
    ),
    report.Bar("the same, times `jax.pmap`", ALONE, "÷ jax.pmap", 1, 0.75),
)


def measure() -> report.Section:
    """The median of several processes."""
    return report.Section(
        "Eight devices",
        "Microseconds for one launch of a program on eight devices of one processor, until "
        "all of them are done; on all CPUs.\n`exe.execute(rows, return_events=True)`, or a "
        "bound call of `exe.bind_rows(rows)`, against raw C, `jax.jit` over\narrays in eight "
        "parts, and `jax.pmap`. The devices share a few threads, so most of a turn is their "
        "waking.",
        rounds.median_of_runs(__file__, RUNS),
        BARS,
    )


def once() -> rounds.Rows:
    """One process's figures."""
    rounds.quiet()
    import jax
    import numpy as np
    import raw
    from jax.sharding import NamedSharding, PartitionSpec

    import pjrt_hub

    jax.config.update("jax_num_cpu_devices", DEVICES)
    client = pjrt_hub.client("cpu", options={"cpu_device_count": DEVICES})
    loop = raw.RawLoop(client)
    mesh = jax.make_mesh((DEVICES,), ("d",))
    parts = NamedSharding(mesh, PartitionSpec("d"))
    rows: rounds.Rows = {}
    for row, (name, arguments, width, on_each, whole) in _programs().items():
        x = np.arange(DEVICES * width, dtype=np.float32).reshape(DEVICES, width) / 64
        exe = client.compile(
            raw.PROGRAMS / f"{name}.mlir", pjrt_hub.CompileOptions(num_replicas=DEVICES)
        )
        ours = [
            [client.buffer_from_host(part, device=device)] * arguments
            for part, device in zip(x, exe.devices, strict=True)
        ]
        pmap, jit = jax.pmap(on_each, axis_name="d"), jax.jit(whole, out_shardings=parts)
        theirs = [jax.device_put(x, parts)] * arguments
        wanted = np.asarray(pmap(*theirs))
        found = np.stack([result.to_numpy() for [result] in exe.execute(ours)])
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
        np.testing.assert_allclose(np.asarray(jit(*theirs)), wanted, rtol=1e-5)
        known = {
            "launch": _launch,
            "wait": _wait,
            "exe": exe,
            "rows": ours,
            "call": exe.bind_rows(ours),
        }
        rows[row] = _row(
            {
                "raw C": partial(loop.call_rows, exe, ours, CALLS),
                "bound": partial(rounds.turns("wait(call())", **known), CALLS),
                "pjrt-hub": partial(rounds.turns("launch(exe, rows)", **known), CALLS),
                "jax.jit": _jax(jit, theirs),
                "jax.pmap": _jax(pmap, theirs),
            }
        )
    return rows


def _programs() -> dict[str, tuple[str, int, int, Callable[..., Any], Callable[..., Any]]]:
    """Row -> program, arguments, floats on a device, the same on each device and on the whole."""
    import jax
    import jax.numpy as jnp

    def tanh(a: Any, b: Any) -> Any:
        return jnp.tanh(a * b + 1.0)

    def total(a: Any) -> Any:
        return jnp.broadcast_to(a.sum(axis=0), a.shape)

    return {
        ALONE: ("tanh_mul_add", 2, 8, tanh, tanh),
        TOGETHER: ("all_reduce", 1, 4, lambda a: jax.lax.psum(a, "d"), total),
    }


def _launch(exe: Any, rows: list[list[Any]]) -> None:
    """A launch to its end, as a person writes it."""
    _results, events = exe.execute(rows, return_events=True)
    for event in events:
        event.wait()


def _wait(rows: list[tuple[Any, ...]]) -> None:
    """The same of a bound call, which gives no events."""
    for [result] in rows:
        result.ready.wait()


def _jax(function: Callable[..., Any], arguments: list[Any]) -> Callable[[], float]:
    from jax import block_until_ready as wait

    return partial(rounds.turns("wait(f(*a))", f=function, a=arguments, wait=wait), CALLS)


def _row(variants: dict[str, Callable[[], float]]) -> dict[str, float]:
    times = rounds.interleave(variants, ROUNDS)
    cells = rounds.cells(times, CALLS, "raw C", "jax.jit", "jax.pmap")
    cells["bound ÷ raw C"] = rounds.ratio(times, "bound", "raw C")
    return cells


if __name__ == "__main__":
    report.main(measure, once)
