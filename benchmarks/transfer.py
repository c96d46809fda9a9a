"""What moving arrays costs: raw C, pjrt-hub and JAX, both ways, in one process."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from timeit import Timer
from typing import Any

import report
import rounds

ROUNDS, RUNS = 9, 5

#: Name -> elements of float32, turns in a round.
SIZES = {"4 B": (1, 3000), "4 KB": (1 << 10, 3000), "1 MB": (1 << 18, 200), "64 MB": (1 << 24, 3)}
ALIGNMENT = 64

BARS = (
    report.Bar("a zero-copy put of 64 MB, µs", "put 64 MB, zero-copy", "pjrt-hub µs", 50),
    report.Bar("a copying put of 64 MB, times raw C", "put 64 MB", "÷ raw C", 1.15),
    report.Bar("a zero-copy get of 64 MB, µs", "get 64 MB", "pjrt-hub µs", 3),
)


def measure() -> report.Section:
    """The median of several processes."""
    return report.Section(
        "Transfers",
        "Microseconds for `client.buffer_from_host(x)` and freeing the buffer, and "
        "for\n`buffer.to_numpy()`; pinned to one CPU. By default a put "
        "copies before it returns; zero-copy is `IMMUTABLE_ZERO_COPY` of an array\naligned to 64 "
        "bytes. A get shares the buffer's memory. JAX: `jax.device_put(x).block_until_ready()`, "
        "which shares the\nmemory of aligned arrays, and `np.asarray`, which keeps its first "
        "answer.",
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
    from pjrt_hub import HostBufferSemantics

    client = pjrt_hub.client("cpu")
    loop = raw.RawLoop(client)
    put = client.buffer_from_host
    zero_copy = HostBufferSemantics.IMMUTABLE_ZERO_COPY
    rows: rounds.Rows = {}
    for name, (elements, count) in SIZES.items():
        for row, x, semantics in (
            (f"put {name}", _array(elements, 16), HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL),
            (f"put {name}, zero-copy", _array(elements, 0), zero_copy),
        ):
            statement = "put(x)" if semantics is not zero_copy else "put(x, semantics=zero_copy)"
            rows[row] = _row(
                count,
                lambda x=x, semantics=semantics, count=count: loop.put(x, semantics, count),
                Timer(statement, globals={"put": put, "x": x, "zero_copy": zero_copy}),
                Timer("put(x).block_until_ready()", globals={"put": jax.device_put, "x": x}),
            )
        x = _array(elements, 0)
        buffer, array = put(x), jax.device_put(x)
        rows[f"get {name}"] = _row(
            1000,
            lambda buffer=buffer: loop.get(buffer, 1000),
            Timer("buffer.to_numpy()", globals={"buffer": buffer}),
            Timer("np.asarray(array)", globals={"np": numpy, "array": array}),
        )
    return rows


def _row(count: int, raw_c: Callable[[], float], ours: Timer, theirs: Timer) -> dict[str, float]:
    times = rounds.interleave(
        {
            "raw C": raw_c,
            "pjrt-hub": lambda: ours.timeit(count),
            "jax": lambda: theirs.timeit(count),
        },
        ROUNDS,
    )
    return {
        **{f"{name} µs": median(each) / count * 1e6 for name, each in times.items()},
        "÷ raw C": rounds.ratio(times, "pjrt-hub", "raw C"),
        "÷ jax": rounds.ratio(times, "pjrt-hub", "jax"),
    }


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
