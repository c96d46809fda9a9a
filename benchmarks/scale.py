"""How calls and transfers grow: with arguments, results, devices and bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any

import programs
import report
import rounds
from growth import Growth

ROUNDS, FEW_ROUNDS, RUNS = 21, 3, 3
COUNTS = (1, 4, 16, 64, 256)
DEVICES = (1, 2, 4, 8)
SIZES = {
    "4 B": 1 << 2,
    "4 KB": 1 << 12,
    "64 KB": 1 << 16,
    "1 MB": 1 << 20,
    "16 MB": 1 << 24,
    "64 MB": 1 << 26,
    "256 MB": 1 << 28,
}
ALIGNMENT = 64
#: The approximate seconds of a turn: a busy machine interrupts few short ones.
TURN = 1e-3
#: Variants whose calls take this many seconds have few rounds.
LONG = 0.02
OURS = "pjrt-hub µs"

GROWTHS = (
    Growth(
        "arguments",
        "A call, by its arguments",
        "arguments of float32[8], one result",
        "µs",
        {str(count): count for count in COUNTS},
        "Microseconds for summing n arguments of float32[8], without waiting.",
        {OURS: 1.1},
    ),
    Growth(
        "results",
        "A call, by its results",
        "results of float32[8], one argument",
        "µs",
        {str(count): count for count in COUNTS},
        "Microseconds for n results of one argument, without waiting, and freeing them.",
        {OURS: 1.1},
    ),
    Growth(
        "devices",
        "A call, by its devices",
        "devices of one client",
        "µs",
        {str(count): count for count in DEVICES},
        "Microseconds for tanh(a·b+1) on float32[8] on each of n devices of one client on the "
        "CPU, until all are done; on all\nCPUs. The devices share a few threads, whose waking is "
        "most of it, in C as well.",
        {},
    ),
    Growth(
        "bytes",
        "Transfers, by the bytes",
        "bytes",
        "µs",
        dict(SIZES),
        "Microseconds for putting an array that no plugin can share, which is copied; one that is "
        "shared; and for reading a\nbuffer. Above some MB most of the plugin's own copy is the "
        "making of new pages.",
        {"put, shared µs": 0.2, "get µs": 0.2},
    ),
)


def measure() -> list[report.Section]:
    """The medians of several processes."""
    figures = rounds.median_of_runs(__file__, RUNS)
    return [growth.section(figures) for growth in GROWTHS]


def once() -> rounds.Rows:
    """One process's figures; what needs all CPUs is measured before it is pinned to one."""
    rounds.quiet()
    import jax

    jax.config.update("jax_num_cpu_devices", max(DEVICES))
    rows = {row: _figures(variants) for row, variants in _devices()}
    rounds.pin()
    for measured in (_calls, _bytes):
        rows |= {row: _figures(variants) for row, variants in measured()}
    return rows


#: A variant takes a number of turns and returns their seconds.
Variants = Mapping[str, Callable[[int], float]]
Named = Iterator[tuple[str, Variants]]


def _calls() -> Named:
    import jax
    import numpy
    import raw

    import pjrt_hub

    client = pjrt_hub.client("cpu")
    loop = raw.RawLoop(client)
    x = numpy.linspace(0, 1, 8, dtype=numpy.float32)
    # The plugin takes longer for a buffer that is passed hundreds of times at once.
    ours = [client.buffer_from_host(x) for _ in range(max(COUNTS))]
    theirs = [jax.device_put(x) for _ in range(max(COUNTS))]
    for count in COUNTS:
        for row, text, in_jax, arguments, outputs in (
            (f"arguments {count}", programs.total(count), programs.total_in_jax, count, 1),
            (f"results {count}", programs.fan(count), programs.fan_in_jax(count), 1, count),
        ):
            exe, jit = client.compile(text), jax.jit(in_jax)
            mine, others = ours[:arguments], theirs[:arguments]
            _compare(exe(*mine, simplify=False), jax.tree.leaves(jit(*others)))

            yield (
                row,
                {
                    "raw C µs": partial(loop.call, exe, mine, outputs),
                    "bound µs": rounds.turns("call()", call=exe.bind(*mine)),
                    OURS: rounds.turns("exe(*a)", exe=exe, a=mine),
                    "jax.jit µs": rounds.turns("jit(*a)", jit=jit, a=others),
                },
            )


def _devices() -> Named:
    import jax
    import numpy
    import raw
    from jax.sharding import NamedSharding, PartitionSpec

    import pjrt_hub
    from pjrt_hub import CompileOptions

    x = numpy.linspace(0, 1, 8, dtype=numpy.float32)
    for count in DEVICES:
        with pjrt_hub.client("cpu", options={"cpu_device_count": count}) as client:
            loop, program = raw.RawLoop(client), raw.PROGRAMS / "tanh_mul_add.mlir"
            exe = client.compile(program, CompileOptions(num_replicas=count))
            rows = [[client.buffer_from_host(x, device=each)] * 2 for each in exe.devices]
            mesh = jax.make_mesh((count,), ("d",), devices=jax.devices()[:count])
            split = NamedSharding(mesh, PartitionSpec("d"))
            theirs = jax.device_put(numpy.tile(x, (count, 1)), split)
            jit = jax.jit(programs.tanh_in_jax(), in_shardings=split, out_shardings=split)
            _compare(
                [row[0] for row in exe.execute(rows)], list(numpy.asarray(jit(theirs, theirs)))
            )
            yield (
                f"devices {count}",
                {
                    "raw C µs": partial(loop.call_rows, exe, rows),
                    OURS: rounds.turns(
                        "for [result] in exe.execute(rows): result.ready.wait()",
                        exe=exe,
                        rows=rows,
                    ),
                    "jax.jit µs": rounds.turns("jit(a, a).block_until_ready()", jit=jit, a=theirs),
                },
            )


def _bytes() -> Named:
    import jax
    import numpy
    import raw

    import pjrt_hub
    from pjrt_hub import HostBufferSemantics

    client = pjrt_hub.client("cpu")
    loop, put = raw.RawLoop(client), client.buffer_from_host
    shared = HostBufferSemantics.IMMUTABLE_ZERO_COPY
    copied = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    for name, nbytes in SIZES.items():
        memory = numpy.ones(nbytes + 2 * ALIGNMENT, numpy.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        aligned = memory[start : start + nbytes].view(numpy.float32)
        other = memory[start + 16 : start + 16 + nbytes].view(numpy.float32)
        buffer = put(aligned, semantics=shared)
        assert numpy.array_equal(buffer.to_numpy(), put(other).to_numpy())
        yield (
            f"bytes {name}",
            {
                "raw C put µs": partial(loop.put, other, copied),
                "put, copied µs": rounds.turns("put(x)", put=put, x=other),
                "jax put µs": rounds.turns(
                    "put(x).block_until_ready()", put=jax.device_put, x=other
                ),
                "put, shared µs": rounds.turns(
                    "put(x, semantics=shared)", put=put, x=aligned, shared=shared
                ),
                "get µs": rounds.turns("buffer.to_numpy()", buffer=buffer),
            },
        )


def _figures(variants: Variants) -> dict[str, float]:
    """Microseconds of one turn; each variant takes as many as fit into its time."""
    # The second time counts: the first finds its code and data evicted by a large copy.
    lasted = {name: [variant(3), variant(3)][1] / 3 for name, variant in variants.items()}
    counts = {name: max(1, min(2000, int(TURN / each))) for name, each in lasted.items()}
    times = rounds.interleave(
        {name: partial(variant, counts[name]) for name, variant in variants.items()},
        ROUNDS if max(lasted.values()) < LONG else FEW_ROUNDS,
    )
    return {name: median(seconds) / counts[name] * 1e6 for name, seconds in times.items()}


def _compare(ours: Iterable[Any], theirs: Iterable[Any]) -> None:
    import numpy

    for a, b in zip(ours, theirs, strict=True):
        numpy.testing.assert_allclose(a.to_numpy(), numpy.asarray(b), rtol=1e-5)


if __name__ == "__main__":
    report.main(measure, once)
