"""What small calls cost over the C functions that they rest on, in one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from timeit import Timer

import report
import rounds

ROUNDS, RUNS, CALLS = 61, 3, 800
LIMIT = 1.5
OVER = "over raw C µs"

#: Row -> the statement; `once` has its loop in C.
STATEMENTS = {
    "execute": "exe(b, b)",
    "put": "put(x)",
    "get": "b.to_numpy()",
    "ready and wait": "b.ready.wait()",
    "copy to a device": "b.copy_to_device(d)",
    "raw copy, awaited": "b.copy_raw_to_host(y).wait()",
    "put and delete": "put(x).delete()",
    "is_deleted": "b.is_deleted",
    "on_device_nbytes": "b.on_device_nbytes",
    "memory": "b.memory",
}
#: The part of a statement that numpy itself takes.
NUMPY = {
    "get": "ndarray((8,), float32, data)",
    "raw copy, awaited": "y.reshape(-1).view(uint8).__array_interface__['data'][0]",
}
BARS = tuple(
    report.Bar(f"`{STATEMENTS[row]}`, µs over raw C", row, OVER, LIMIT) for row in STATEMENTS
)
MISSED = (
    "A raw copy is done by a thread of the plugin, which on one CPU runs only when the "
    "waiting thread sleeps: what is over raw C is the way into that sleep and out of it. On "
    "two CPUs an awaited copy takes what raw C takes."
)


def measure() -> report.Section:
    """The median of several processes."""
    return report.Section(
        "Small calls",
        "Microseconds on float32[8], with the freeing of what a call gives; pinned to one "
        "CPU. What numpy takes to make an\narray, or to tell where one lies, is not counted "
        "as ours.",
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

    client = pjrt_hub.client("cpu")
    loop = raw.RawLoop(client)
    x, y = numpy.ones(8, numpy.float32), numpy.empty(8, numpy.float32)
    exe = client.compile(raw.PROGRAMS / "tanh_mul_add.mlir")
    b = client.buffer_from_host(x)
    known = {"exe": exe, "b": b, "x": x, "y": y, "put": client.buffer_from_host}
    known |= {"d": client.devices[0], "ndarray": numpy.ndarray, "float32": numpy.dtype("f4")}
    known |= {"data": x.tobytes(), "uint8": numpy.uint8}
    copied = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    loops: dict[str, Callable[[], float]] = {
        "execute": lambda: loop.call(exe, [b, b], 1, CALLS),
        "put": lambda: loop.put(x, copied, CALLS),
        "get": lambda: loop.get(b, CALLS),
        "ready and wait": lambda: loop.ask("ready", b, CALLS),
        "copy to a device": lambda: loop.copy(b, CALLS),
        "raw copy, awaited": lambda: loop.copy_to_host(b, y, CALLS),
        "put and delete": lambda: loop.delete(x, CALLS),
        "is_deleted": lambda: loop.ask("is_deleted", b, CALLS),
        "on_device_nbytes": lambda: loop.ask("size", b, CALLS),
        "memory": lambda: loop.ask("memory", b, CALLS),
    }
    rows: rounds.Rows = {}
    for row, statement in STATEMENTS.items():
        ours = Timer(statement, globals=known)
        numpys = Timer(NUMPY.get(row, "pass"), globals=known)
        times = rounds.interleave(
            {
                "raw C": loops[row],
                "pjrt-hub": partial(ours.timeit, CALLS),
                "numpy": partial(numpys.timeit, CALLS),
            },
            ROUNDS,
        )
        each = {name: median(seconds) / CALLS * 1e6 for name, seconds in times.items()}
        over = rounds.excess(times, "pjrt-hub", "raw C") / CALLS * 1e6
        rows[row] = {f"{name} µs": value for name, value in each.items()}
        rows[row][OVER] = over - each["numpy"]
    return rows


if __name__ == "__main__":
    report.main(measure, once)
