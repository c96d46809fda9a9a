"""What an accelerator costs from Python: calls, transfers, products, beside JAX on the same device.

`python benchmarks/accelerator.py --json FILE` measures the plugin that TESTED_PLATFORM names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import report
import rounds

PLATFORM = os.environ.get("TESTED_PLATFORM", "cpu")
#: Without hardware, everything is only tried out: smaller, and less often.
IS_TRIED = PLATFORM == "cpu" or "discrete" in os.environ.get("PJRT_HUB_LAYERS", "")
#: Elements of float32 -> turns in a round.
SIZES = {1: 200, 1 << 10: 200, 1 << 18: 50, 1 << 24: 4, 1 << 26: 1}
ROUNDS, STARTS, SENTENCES = (1, 1, 10) if IS_TRIED else (7, 5, 256)
TANH = """func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.tanh %a : tensor<8xf32>
  return %0 : tensor<8xf32>
}"""
PRODUCT = """func.func @main(%a: tensor<{n}x{n}x{t}>) -> tensor<{n}x{n}x{t}> {{
  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]
    : (tensor<{n}x{n}x{t}>, tensor<{n}x{n}x{t}>) -> tensor<{n}x{n}x{t}>
  return %0 : tensor<{n}x{n}x{t}>
}}"""
#: Type in StableHLO -> its name in numpy, and the sides of matrices.
PRODUCTS = {"bf16": ("bfloat16", (1024, 8192)), "f32": ("float32", (1024, 4096))}
START = {
    "pjrt-hub": f"""
import numpy as np, pjrt_hub
client = pjrt_hub.client({PLATFORM!r}, offline=True)
print(client.compile({TANH!r})(np.ones(8, np.float32)).tolist())""",
    "JAX": "import jax; print(jax.jit(jax.numpy.tanh)(jax.numpy.ones(8)).tolist())",
}
#: Code that runs a transformer of twelve layers up to its first value; argument 1 is its folder.
MODEL = {
    "pjrt-hub": f"""
import sys, numpy as np, pjrt_hub
client = pjrt_hub.client({PLATFORM!r}, offline=True)
with np.load(sys.argv[1] + "/arguments.npz") as file:
    arguments = [file[name] for name in file]
exe = client.compile(sys.argv[1] + "/program.mlir", cache=True)
print(exe(*arguments).to_numpy().sum())""",
    "JAX": """
import sys; sys.path.insert(0, sys.argv[2])
import jax, numpy as np, workloads
made = workloads.transformer(12)
print(np.asarray(jax.jit(made.function)(*made.arguments)).sum())""",
}
ROOT = Path(__file__).resolve().parents[1]
MINILM = ROOT / "examples" / "minilm"
PACKED = Path(os.environ.get("TESTED_PACKED", ROOT / ".nox" / "gpu"))


def measure() -> list[report.Section]:
    """The calls, the transfers, the products, and the starts; nothing must hold of them."""
    import jax
    import ml_dtypes
    import numpy as np

    import pjrt_hub

    on = f"{PLATFORM}, beside JAX {jax.__version__}; one process, rounds alternate"
    with pjrt_hub.client(PLATFORM, offline=True) as client:
        device = client.devices[0].kind
        calls = _calls(client, jax, np)
        transfers = _transfers(client, jax, np)
        products = _products(client, jax, np, ml_dtypes)
        models = _models(client, jax, np)
        memory = _memory(client, jax)
    note = f"Median microseconds on {device}, {on}."
    return [
        report.Section("Calls of an accelerator", note, calls),
        report.Section("Transfers of an accelerator", note, transfers),
        report.Section("Products on an accelerator", f"TFLOP/s on {device}, {on}.", products),
        report.Section("Models on an accelerator", note, models),
        report.Section("Memory of an accelerator", "MiB, after all of these.", memory),
        report.Section("Starts on an accelerator", "Seconds of a process.", _starts(jax, np)),
    ]


def _times(variants: dict[str, Callable[[], object]], turns: int) -> rounds.Times:
    """The seconds of one turn of each, round after round."""

    def timed(call: Callable[[], object]) -> Callable[[], float]:
        def once() -> float:
            begun = perf_counter()
            for _ in range(turns):
                call()
            return (perf_counter() - begun) / turns

        return once

    return rounds.interleave({name: timed(call) for name, call in variants.items()}, ROUNDS)


def _calls(client: Any, jax: Any, np: Any) -> rounds.Rows:
    exe, jitted = client.compile(TANH), jax.jit(jax.numpy.tanh)
    ours = client.buffer_from_host(np.ones(8, np.float32))
    theirs = jax.device_put(np.ones(8, np.float32))
    bound = exe.bind(ours)
    rows = {
        "a call": {"pjrt-hub": lambda: exe(ours), "JAX": lambda: jitted(theirs)},
        "a bound call": {"pjrt-hub": bound, "JAX": lambda: jitted(theirs)},
        "a call, to its value on the host": {
            "pjrt-hub": lambda: exe(ours).to_numpy(),
            "JAX": lambda: np.asarray(jitted(theirs)),
        },
    }
    return {name: _cells(_times(variants, 200), 1e6) for name, variants in rows.items()}


def _transfers(client: Any, jax: Any, np: Any) -> rounds.Rows:
    """Put and get by size; and put from memory that the device reaches by itself."""
    import pjrt_hub
    from pjrt_hub.errors import UnimplementedError

    rows: rounds.Rows = {}
    for count, turns in list(SIZES.items())[: 3 if IS_TRIED else None]:
        array, nbytes = pjrt_hub.empty_aligned(count), 4 * count
        array[:] = 1
        cases = _cases(client, jax, np, array)
        for name, variants in cases.items():
            rows[f"{name} {nbytes} B"] = _transfer_cells(_times(variants, turns), nbytes)
        try:
            with pjrt_hub.DmaMapping(client, array):
                put = {"pjrt-hub": cases["put"]["pjrt-hub"]}
                rows[f"put of mapped {nbytes} B"] = _transfer_cells(_times(put, turns), nbytes)
        except UnimplementedError:
            pass  # The device has no such access.
    return rows


def _cases(
    client: Any, jax: Any, np: Any, array: Any
) -> dict[str, dict[str, Callable[[], object]]]:
    """The ways of one array, there and back."""
    home = {each.kind: each for each in client.devices[0].memories}
    there, outside = _memories_of_jax(jax)
    mine, theirs = client.buffer_from_host(array), jax.device_put(array)
    pinned = jax.device_put(array, outside)
    own = client.buffer_from_host(array, memory=home.get("pinned_host"))
    return {
        "put": {
            "pjrt-hub": lambda: client.buffer_from_host(array).ready.wait(),
            "JAX": lambda: jax.device_put(array).block_until_ready(),
        },
        "get": {
            "pjrt-hub": lambda: mine.to_numpy(),
            # A new copy is read each time, because JAX keeps what it has read from an array.
            "JAX": lambda: np.asarray(jax.numpy.copy(theirs)),
        },
        "from pinned_host": {
            "pjrt-hub": lambda: own.copy_to_memory(home["device"]).ready.wait(),
            "JAX": lambda: jax.device_put(pinned, there).block_until_ready(),
        },
    }


def _memories_of_jax(jax: Any) -> tuple[Any, Any]:
    """JAX's places for arrays in the device's memory, and in the host's pinned one."""
    place, [device, *_] = jax.sharding.SingleDeviceSharding, jax.devices()
    return place(device, memory_kind="device"), place(device, memory_kind="pinned_host")


def _transfer_cells(times: rounds.Times, nbytes: int) -> dict[str, float]:
    """The microseconds of each, and gigabytes a second."""
    rates = {f"{who} GB/s": nbytes / median(each) / 1e9 for who, each in times.items()}
    return _cells(times, 1e6) | rates


def _products(client: Any, jax: Any, np: Any, ml_dtypes: Any) -> rounds.Rows:
    rows: rounds.Rows = {}
    jitted = jax.jit(lambda a: a @ a)
    for kind, (name, sides) in PRODUCTS.items():
        for side in sides[:1] if IS_TRIED else sides:
            array = np.ones((side, side), np.dtype(getattr(ml_dtypes, name, name)))
            exe = client.compile(PRODUCT.format(n=side, t=kind))
            ours, theirs = client.buffer_from_host(array), jax.device_put(array)
            times = _times(_product(exe, ours, jitted, theirs), 5)
            rows[f"{side}x{side} {kind}"] = {
                who: 2 * side**3 / median(each) / 1e12 for who, each in times.items()
            }
    return rows


def _product(exe: Any, ours: Any, jitted: Any, theirs: Any) -> dict[str, Callable[[], object]]:
    return {
        "pjrt-hub": lambda: exe(ours).ready.wait(),
        "JAX": lambda: jitted(theirs).block_until_ready(),
    }


def _models(client: Any, jax: Any, np: Any) -> rounds.Rows:
    """A transformer; and MiniLM, where its weights are packed, with sentences a second."""
    import workloads

    made = workloads.transformer(12)
    exe = client.compile(_text(jax, made))
    ours = [client.buffer_from_host(each) for each in made.arguments]
    jitted, theirs = jax.jit(made.function), [jax.device_put(each) for each in made.arguments]
    variants = {
        "pjrt-hub": lambda: exe(*ours).ready.wait(),
        "JAX": lambda: jitted(*theirs).block_until_ready(),
    }
    rows = {"transformer, 12 layers": _cells(_times(variants, 20), 1e6)}
    if (PACKED / "minilm.npz").exists():
        times = _times(_minilm(client, jax, np), 1)
        found = {f"{who} sentences/s": SENTENCES / median(each) for who, each in times.items()}
        rows[f"MiniLM, {SENTENCES} sentences one by one"] = _cells(times, 1e6) | found
    return rows


def _minilm(client: Any, jax: Any, np: Any) -> dict[str, Callable[[], object]]:
    """What embeds the packed sentences by the same function, none waiting for another."""
    sys.path.insert(0, str(MINILM))
    import encoder

    with np.load(PACKED / "minilm.npz") as file:
        arrays = dict(file)
    ids, masks = arrays.pop("ids"), arrays.pop("masks")
    arrays.pop("embeddings")
    weights = {name: array.astype(np.float32) for name, array in arrays.items()}
    sentences = [(ids[i % len(ids)], masks[i % len(ids)]) for i in range(SENTENCES)]
    exe = client.compile(MINILM / "encoder.mlir")
    ours = [client.buffer_from_host(weights[name]) for name in encoder.weight_shapes()]
    theirs, jitted = jax.device_put(weights), jax.jit(encoder.encode)

    def embed() -> None:
        for result in [exe(one, mask, *ours) for one, mask in sentences]:
            result.to_numpy()

    def embed_by_jax() -> None:
        for result in [jitted(one, mask, theirs) for one, mask in sentences]:
            np.asarray(result)

    return {"pjrt-hub": embed, "JAX": embed_by_jax}


def _text(jax: Any, made: Any) -> str:
    """A workload in StableHLO."""
    lowered = jax.jit(made.function, keep_unused=True).lower(*made.arguments)
    return str(lowered.as_text())


def _memory(client: Any, jax: Any) -> rounds.Rows:
    """What each client tells of its own memory on the device; nothing where it does not."""
    told = {"pjrt-hub": client.devices[0].memory_stats(), "JAX": jax.devices()[0].memory_stats()}
    return {
        name: {who: stats[name] / 2**20 for who, stats in told.items() if name in (stats or {})}
        for name in ("bytes_in_use", "peak_bytes_in_use", "bytes_limit")
    }


def _starts(jax: Any, np: Any) -> rounds.Rows:
    import workloads

    def start(code: str, *words: str, **env: str) -> float:
        begun = perf_counter()
        subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd="/",
            env=os.environ | env,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return perf_counter() - begun

    def timed(codes: Mapping[str, str], *words: str, **env: str) -> rounds.Times:
        """The first round, which `interleave` leaves out, fills the caches."""
        variants = {who: partial(start, code, *words, **env) for who, code in codes.items()}
        return rounds.interleave(variants, STARTS)

    made = workloads.transformer(12)
    with TemporaryDirectory() as folder:
        Path(folder, "program.mlir").write_text(_text(jax, made), encoding="utf-8")
        names = [f"{i:03}" for i in range(len(made.arguments))]
        np.savez(Path(folder, "arguments.npz"), **dict(zip(names, made.arguments, strict=True)))
        caches = {
            "PJRT_HUB_CACHE": f"{folder}/pjrt-hub",
            "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        return {
            "to the first result": _cells(timed(START), 1),
            "to that of a transformer, compiled before": _cells(
                timed(MODEL, folder, str(Path(__file__).parent), **caches), 1
            ),
        }


def _cells(times: rounds.Times, unit: float) -> dict[str, float]:
    """The median of each, in a unit, and what ours is of JAX's."""
    found = {who: median(each) * unit for who, each in times.items()}
    if "JAX" not in times:
        return found
    return found | {"÷ JAX": rounds.ratio(times, "pjrt-hub", "JAX")}


if __name__ == "__main__":
    report.main(measure)
