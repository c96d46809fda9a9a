"""What it costs that calls are recorded: the raw C loops over the plugin's table and a layered."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from statistics import median
from tempfile import TemporaryDirectory

import report
import rounds

ROUNDS, RUNS, CALLS = 61, 3, 5_000  # A busy machine interrupts few of such short turns.

BARS = (
    report.Bar("a recorded call, ns more than the call", "a question, `IsDeleted`", "added ns", 60),
)
MISSED = (
    "A record is two readings of the clock and a line of memory. Where `clock_gettime` takes 27 "
    "ns, as on an EPYC of family 25, the readings alone are 54; the bar was met where it takes "
    "less."
)


def measure() -> report.Section:
    """The median of several processes."""
    return report.Section(
        "A recorded call",
        "Nanoseconds of raw C loops over the plugin's own table and over the one that\n"
        '`layers.wrap(table, "trace", folder)` gives, in turn and pinned to one CPU, with the\n'
        "recording on this machine's disk. Where no layer is on, the table is the plugin's own.",
        rounds.median_of_runs(__file__, RUNS),
        BARS,
        missed=MISSED,
    )


def once() -> rounds.Rows:
    """One process's figures."""
    rounds.pin()
    import numpy
    import raw

    import pjrt_hub
    from pjrt_hub import HostBufferSemantics
    from pjrt_hub.running.interpose import layers

    client = pjrt_hub.client("cpu")
    x = numpy.linspace(0, 1, 8, dtype=numpy.float32)
    buffer = client.buffer_from_host(x)
    exe = client.compile(raw.PROGRAMS / "tanh_mul_add.mlir")
    plain, layered = raw.RawLoop(client), raw.RawLoop(client)
    semantics = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    turns: dict[str, Callable[[raw.RawLoop], float]] = {
        "a question, `IsDeleted`": lambda loop: loop.ask("is_deleted", buffer, CALLS),
        "a put of 32 bytes, 3 calls": lambda loop: loop.put(x, semantics, CALLS // 20),
        "an execution, 2 calls": lambda loop: loop.call(exe, [buffer] * 2, 1, CALLS // 20),
    }
    counts = dict(zip(turns, (CALLS, CALLS // 20, CALLS // 20), strict=True))
    rows: rounds.Rows = {}
    with TemporaryDirectory() as folder:
        layered._api = ctypes.c_void_p(layers.wrap(client.api.address, "trace", folder))
        for row, turn in turns.items():
            both = {
                "plain": lambda turn=turn: turn(plain),
                "recorded": lambda turn=turn: turn(layered),
            }
            times = rounds.interleave(both, ROUNDS)
            per_call = 1e9 / counts[row]
            rows[row] = {
                "raw C ns": median(times["plain"]) * per_call,
                "recorded ns": median(times["recorded"]) * per_call,
                "added ns": rounds.excess(times, "recorded", "plain") * per_call,
            }
    return rows


if __name__ == "__main__":
    report.main(measure, once)
