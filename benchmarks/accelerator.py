"""What an accelerator costs from Python: calls, transfers, products, beside JAX on the same device.

`python benchmarks/accelerator.py --json FILE` measures the plugin that TESTED_PLATFORM names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import report
import rounds

PLATFORM = os.environ.get("TESTED_PLATFORM", "cpu")
#: Elements of float32 -> turns in a round.
SIZES = {1: 200, 1 << 10: 200, 1 << 18: 50, 1 << 24: 4, 1 << 26: 1}
ROUNDS = 7
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
    note = f"Median microseconds on {device}, {on}."
    return [
        report.Section("Calls of an accelerator", note, calls),
        report.Section("Transfers of an accelerator", note, transfers),
        report.Section("Products on an accelerator", f"TFLOP/s on {device}, {on}.", products),
        report.Section("Starts on an accelerator", "Seconds of a process.", _starts()),
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
    rows: rounds.Rows = {}
    for count, turns in SIZES.items():
        array, nbytes = np.ones(count, np.float32), 4 * count
        puts = {
            "pjrt-hub": lambda array=array: client.buffer_from_host(array).ready.wait(),
            "JAX": lambda array=array: jax.device_put(array).block_until_ready(),
        }
        mine, theirs = client.buffer_from_host(array), jax.device_put(array)
        gets = {
            "pjrt-hub": lambda mine=mine: mine.to_numpy(),
            # A copy each time: JAX keeps its first answer.
            "JAX": lambda theirs=theirs: np.asarray(jax.numpy.copy(theirs)),
        }
        for name, variants in ((f"put {nbytes} B", puts), (f"get {nbytes} B", gets)):
            times = _times(variants, turns)
            found = {f"{who} GB/s": nbytes / median(each) / 1e9 for who, each in times.items()}
            rows[name] = _cells(times, 1e6) | found
    return rows


def _products(client: Any, jax: Any, np: Any, ml_dtypes: Any) -> rounds.Rows:
    rows: rounds.Rows = {}
    jitted = jax.jit(lambda a: a @ a)
    for kind, (name, sides) in PRODUCTS.items():
        for side in sides if PLATFORM != "cpu" else sides[:1]:
            array = np.ones((side, side), np.dtype(getattr(ml_dtypes, name, name)))
            exe = client.compile(PRODUCT.format(n=side, t=kind))
            ours, theirs = client.buffer_from_host(array), jax.device_put(array)
            variants = {
                "pjrt-hub": lambda exe=exe, ours=ours: exe(ours).ready.wait(),
                "JAX": lambda theirs=theirs: jitted(theirs).block_until_ready(),
            }
            times = _times(variants, 5)
            rows[f"{side}x{side} {kind}"] = {
                who: 2 * side**3 / median(each) / 1e12 for who, each in times.items()
            }
    return rows


def _starts() -> rounds.Rows:
    def start(code: str) -> float:
        begun = perf_counter()
        command = [sys.executable, "-c", code]
        subprocess.run(command, cwd="/", check=True, stdout=subprocess.DEVNULL)
        return perf_counter() - begun

    variants = {who: (lambda code=code: start(code)) for who, code in START.items()}
    times = rounds.interleave(variants, 5)
    return {"to the first result": _cells(times, 1)}


def _cells(times: rounds.Times, unit: float) -> dict[str, float]:
    """The median of each, in a unit, and what ours is of JAX's."""
    found = {who: median(each) * unit for who, each in times.items()}
    return found | {"÷ JAX": rounds.ratio(times, "pjrt-hub", "JAX")}


if __name__ == "__main__":
    report.main(measure)
