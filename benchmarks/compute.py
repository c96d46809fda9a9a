"""What programs cost that compute much: on the CPU plugin, and on JAX's own CPU backend.

`--sweep` tries many more, and `--sweep NAME=VALUE ...` also with XLA's flags of these names, whose
booleans are True and False.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import report
import rounds

import pjrt_hub

if TYPE_CHECKING:
    from workloads import Workload

ROUNDS, RUNS, SECONDS = 7, 3, 0.03
#: An option for `once`: use every CPU instead of one.
EVERY_CPU = "--every-cpu"
#: How far results may differ, relative to the largest of them, by the bytes of an element.
TOLERANCE = {8: 1e-10, 4: 2e-5, 2: 2e-2}
JAX, OURS, OWN, AS_JAX = "jax", "pjrt-hub", "the plugin's own flags", "JAX's options"
NOTE = (
    "Milliseconds for one call with its wait, by the same StableHLO and over the same memory "
    "as JAX's CPU backend, another\nversion of XLA; pinned to one CPU, and again on every "
    "CPU. Beside our [default flags](executables.md#flags): the\nplugin without them, and "
    "with the options that JAX sends its own backend."
)
MISSED = (
    "What a build of the CPU plugin misses comes from its version of XLA: beside the JAX that"
    " holds the same XLA, at the end of this page, every row is near 1. `python "
    "benchmarks/compute.py --sweep` compares more than a hundred programs, with any of XLA's "
    "flags."
)

Variants = dict[str, Callable[[], object]]


def measure() -> report.Section:
    """The median of several processes."""
    one = rounds.median_of_runs(__file__, RUNS)
    every = rounds.median_of_runs(__file__, RUNS, EVERY_CPU)
    rows = {
        name: {
            "jax ms": cells["jax ms"],
            "pjrt-hub ms": cells["pjrt-hub ms"],
            "÷ jax": cells["÷ jax"],
            "own flags ÷ jax": cells[f"{OWN} ÷ jax"],
            "JAX's options ÷ jax": cells[f"{AS_JAX} ÷ jax"],
            "÷ jax, every CPU": every[name]["÷ jax"],
        }
        for name, cells in one.items()
    }
    bars = tuple(report.Bar(f"{name}, times JAX's", name, "÷ jax", 1.1, 1.0) for name in rows)
    return report.Section("Computing", NOTE, rows, bars, missed=MISSED)


def once() -> rounds.Rows:
    """One process's figures."""
    rounds.quiet() if EVERY_CPU in sys.argv else rounds.pin()
    import workloads

    client = pjrt_hub.client("cpu")
    rows: rounds.Rows = {}
    for name, workload in workloads.chosen().items():
        rows[name] = compared(client, workload, {OWN: own_flags(client)})
    return rows


def sweep(words: Iterable[str]) -> None:
    """Print every workload's figures as they come; those that lose to JAX are marked.

    Args:
        words: NAME=VALUE of a flag for one more variant; any other word selects workloads.
    """
    rounds.pin()
    import jax

    jax.config.update("jax_enable_x64", True)
    import workloads

    client = pjrt_hub.client("cpu")
    given = [word for word in words if "=" in word]
    wanted = [word for word in words if "=" not in word]
    variants: dict[str, Mapping[str, Any]] = {OWN: own_flags(client)}
    if given:
        variants[" ".join(given)] = dict(word.split("=", 1) for word in given)
    for name, workload in workloads.sweep().items():
        if wanted and not any(word in name for word in wanted):
            continue
        cells = compared(client, workload, variants)
        mark = "*" if cells["÷ jax"] > 1.1 else " "
        figures = "  ".join(f"{column} {value:.3g}" for column, value in cells.items())
        print(f"{mark} {name:26} {figures}", flush=True)


def own_flags(client: pjrt_hub.Client) -> dict[str, None]:
    """Flags that leave all to the plugin."""
    return dict.fromkeys(client.plugin.compile_flags)


def compared(
    client: pjrt_hub.Client, workload: Workload, flags: Mapping[str, Mapping[str, Any]]
) -> dict[str, float]:
    """The figures of one workload.

    Args:
        client: of one device.
        workload: what to compute.
        flags: the name of a variant -> the flags that its program is compiled with.

    Raises:
        AssertionError: the results differ.
    """
    import jax
    import numpy

    arguments = [aligned(each) for each in workload.arguments]
    lowered = jax.jit(workload.function, keep_unused=True).lower(*arguments)
    text = lowered.as_text()
    begun = perf_counter()
    compiled = lowered.compile()
    compile_seconds = {JAX: perf_counter() - begun}
    theirs = [jax.device_put(each) for each in arguments]
    expected = [numpy.asarray(each) for each in jax.tree.leaves(compiled(*theirs))]
    ours = [
        client.buffer_from_host(each, semantics=pjrt_hub.HostBufferSemantics.IMMUTABLE_ZERO_COPY)
        for each in arguments
    ]
    variants: Variants = {JAX: lambda: jax.block_until_ready(compiled(*theirs))}
    for name, named in {OURS: {}, **flags}.items():
        begun = perf_counter()
        executable = client.compile(text, pjrt_hub.CompileOptions(flags=named), cache=False)
        compile_seconds[name] = perf_counter() - begun
        variants[name] = _waited(executable, ours)
        _compare(executable, ours, expected)
    variants[AS_JAX] = _waited(_with_jax_options(client, text), ours)
    times = rounds.interleave(_repeated(variants), ROUNDS)
    return {
        "jax ms": median(times[JAX]) * 1e3,
        "pjrt-hub ms": median(times[OURS]) * 1e3,
        "÷ jax": rounds.ratio(times, OURS, JAX),
        **{f"{name} ÷ jax": rounds.ratio(times, name, JAX) for name in [*flags, AS_JAX]},
        "compile ÷ jax's": compile_seconds[OURS] / compile_seconds[JAX],
    }


def aligned(array: Any) -> Any:
    """A copy that both take without another one, so that they read the same memory."""
    import numpy

    given = numpy.asarray(array)
    copy = pjrt_hub.empty_aligned(given.shape, given.dtype)
    copy[...] = given
    return copy


def _waited(executable: Any, buffers: list[pjrt_hub.Buffer]) -> Callable[[], object]:
    def call() -> None:
        for result in executable(*buffers, simplify=False):
            result.ready.wait()

    return call


def _with_jax_options(client: pjrt_hub.Client, text: str) -> Any:
    """The program by the plugin, with the very bytes that JAX would send it."""
    from jax._src import compiler

    from pjrt_hub.running.executable.loaded_executable import adopt

    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    address = client.api.call(
        "PJRT_Client_Compile",
        client=client.address,
        program={"code": text.encode(), "format": "mlir"},
        compile_options=options.SerializeAsString(),
    )
    return adopt(client, address)


def _repeated(variants: Variants) -> dict[str, Callable[[], float]]:
    """Each as often as the slowest one can in SECONDS; gives the seconds of one."""
    for call in variants.values():
        call()
    slowest = max(_seconds(call, 1) for call in variants.values())
    count = max(1, int(SECONDS / slowest))
    return {name: partial(_seconds, call, count) for name, call in variants.items()}


def _seconds(call: Callable[[], object], count: int) -> float:
    begun = perf_counter()
    for _ in range(count):
        call()
    return (perf_counter() - begun) / count


def _compare(executable: Any, buffers: list[pjrt_hub.Buffer], expected: list[Any]) -> None:
    import numpy

    for buffer, theirs in zip(executable(*buffers, simplify=False), expected, strict=True):
        found = buffer.to_numpy()
        assert found.shape == theirs.shape
        if found.dtype.kind in "biu" or not found.size:
            numpy.testing.assert_array_equal(found, theirs)
            continue
        kind = "complex128" if found.dtype.kind == "c" else "float64"
        difference = numpy.abs(found.astype(kind) - theirs.astype(kind)).max()
        scale = numpy.abs(theirs.astype(kind)).max()
        itemsize = found.dtype.itemsize // (2 if found.dtype.kind == "c" else 1)
        assert difference <= scale * TOLERANCE[itemsize], (difference, scale)


if __name__ == "__main__":
    if "--sweep" in sys.argv:
        sweep(sys.argv[sys.argv.index("--sweep") + 1 :])
    else:
        report.main(measure, once)
