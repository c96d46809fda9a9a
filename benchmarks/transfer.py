"""What moving arrays costs: raw C, pjrt-hub and JAX, both ways, in one process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from timeit import Timer
from typing import Any

import report
import rounds

RUNS = 5

#: Name -> elements of float32, turns in a round, rounds.
SIZES = {
    "4 B": (1, 3000, 9),
    "4 KB": (1 << 10, 3000, 9),
    "1 MB": (1 << 18, 200, 9),
    "4 MB": (1 << 20, 50, 9),
    "16 MB": (1 << 22, 10, 9),
    "64 MB": (1 << 24, 3, 9),
}
#: These are measured in one process, because five would take minutes.
LARGE_SIZES = {"256 MB": (1 << 26, 1, 5), "2 GB": (1 << 29, 1, 1)}
LARGE = "--large"
ALIGNMENT = 64

BARS = (
    report.Bar("a zero-copy put of 64 MB, µs", "put 64 MB, zero-copy", "pjrt-hub µs", 40, 15),
    report.Bar("a copying put of 64 MB, times the plugin's own", "put 64 MB", "÷ raw C", 0.5, 0.3),
    report.Bar("a zero-copy get of 64 MB, µs", "get 64 MB", "pjrt-hub µs", 2.5, 1.2),
    report.Bar("a zero-copy get of 4 B, µs", "get 4 B", "pjrt-hub µs", 2.5, 1.2),
)


def measure() -> report.Section:
    """The median of several processes, and what one took for the largest arrays."""
    rows = rounds.median_of_runs(__file__, RUNS) | rounds.median_of_runs(__file__, 1, LARGE)
    return report.Section(
        "Transfers",
        "Microseconds for `client.buffer_from_host(x)` and freeing the buffer, and for "
        "`buffer.to_numpy()`; pinned to one CPU.\nBy default a put copies: in raw C the "
        "plugin does, in pjrt-hub its own code from 2 MiB on, into huge pages. Zero-copy\nis "
        "`IMMUTABLE_ZERO_COPY` of an array aligned to 64 bytes; the other arrays are aligned "
        "to 16, as numpy's are. A get\nshares the buffer's memory. JAX: "
        "`jax.device_put(x).block_until_ready()`, which shares aligned arrays, and\n"
        "`np.asarray`. Above 64 MB the figures are those of one process.",
        rows,
        BARS,
    )


def once() -> rounds.Rows:
    """One process's figures."""
    rounds.pin()
    import jax
    import numpy
    import raw

    import pjrt_hub
    from pjrt_hub import HostBufferSemantics

    client = pjrt_hub.client("cpu")
    loop = raw.RawLoop(client)
    put = client.buffer_from_host
    zero_copy = HostBufferSemantics.IMMUTABLE_ZERO_COPY
    rows: rounds.Rows = {}
    sizes = LARGE_SIZES if LARGE in sys.argv else SIZES
    for name, (elements, count, times) in sizes.items():
        for row, x, semantics in (
            (f"put {name}", _array(elements, 16), HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL),
            (f"put {name}, zero-copy", _array(elements, 0), zero_copy),
        ):
            statement = "put(x)" if semantics is not zero_copy else "put(x, semantics=zero_copy)"
            rows[row] = _row(
                count,
                times,
                partial(loop.put, x, semantics, count),
                Timer(statement, globals={"put": put, "x": x, "zero_copy": zero_copy}),
                Timer("put(x).block_until_ready()", globals={"put": jax.device_put, "x": x}),
            )
        if elements > 1 << 24:
            continue  # A get is the same for every size.
        x = _array(elements, 0)
        buffer, array = put(x), jax.device_put(x)
        rows[f"get {name}"] = _row(
            1000,
            9,
            partial(loop.get, buffer, 1000),
            Timer("buffer.to_numpy()", globals={"buffer": buffer}),
            Timer("np.asarray(array)", globals={"np": numpy, "array": array}),
        )
    return rows


def _row(
    count: int, turns: int, raw_c: Callable[[], float], ours: Timer, theirs: Timer
) -> dict[str, float]:
    times = rounds.interleave(
        {
            "raw C": raw_c,
            "pjrt-hub": lambda: ours.timeit(count),
            "jax": lambda: theirs.timeit(count),
        },
        turns,
    )
    return rounds.cells(times, count, "raw C", "jax")


def _array(elements: int, offset: int) -> Any:
    """Float32 values that lie `offset` bytes past a multiple of the plugin's alignment."""
    import numpy

    memory = numpy.empty(elements * 4 + 2 * ALIGNMENT, numpy.uint8)
    start = -memory.ctypes.data % ALIGNMENT + offset
    array = memory[start : start + elements * 4].view(numpy.float32)
    array[:] = 1
    return array


if __name__ == "__main__":
    report.main(measure, once)
