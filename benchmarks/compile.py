"""What compiling costs, and what it costs again: pjrt-hub's compile cache and JAX's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import report
import rounds

ROUNDS = 7
SMALL, LAYERS = "tanh(a·b+1) on 8 floats", {"1 layer": 1, "12 layers": 12}

#: The code of a child: `sys.argv` has the program's file and the cache's folder. It prints seconds.
OURS = """
import json, sys
from time import perf_counter
import numpy, pjrt_hub
client, file, seconds = pjrt_hub.client("cpu"), sys.argv[1], {}
def timed(name, cache):
    begun = perf_counter()
    executable = client.compile(file, cache=cache)
    seconds[name] = perf_counter() - begun
    return executable
"""
COLD = f"""{OURS}
timed("cold", False)
again = timed("in process", True)
code = again.serialize()
again.close()
begun = perf_counter()
client.load(code)
seconds["load alone"] = perf_counter() - begun
print(json.dumps(seconds))
"""
WARM = f"""{OURS}
timed("fresh process", True)
print(json.dumps(seconds))
"""
#: The same in JAX, from the lowered program on, which pjrt-hub is given as a file.
JAX = """
import json, os, sys
from time import perf_counter
import jax
sys.path.insert(0, sys.argv[3])
import workloads
seconds, layers = {}, int(sys.argv[4])
if layers:
    function, arguments = workloads.transformer(layers)
else:
    import jax.numpy as jnp, numpy
    function = lambda a, b: jnp.tanh(a * b + 1.0)
    arguments = [numpy.zeros(8, numpy.float32)] * 2
jax.config.update("jax_compilation_cache_dir", sys.argv[2] if len(sys.argv) > 5 else None)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
lowered = jax.jit(function).lower(*arguments)
begun = perf_counter()
lowered.compile()
seconds["jax, fresh process" if len(sys.argv) > 5 else "jax"] = perf_counter() - begun
open(sys.argv[1], "x").write(lowered.as_text()) if not os.path.exists(sys.argv[1]) else None
print(json.dumps(seconds))
"""
NOTE = (
    "Milliseconds of the compilation alone, each in a fresh process, pinned to one CPU: of a "
    "small program and of decoder\nlayers of width 256. Cold is `client.compile(program)`; "
    "the others are `client.compile(program, cache=True)` with an\nentry: in a process that "
    "compiled it before, and in one that did not. The plugin's own part of a load is\n"
    "`client.load(blob)`. JAX compiles the same function for its own CPU backend, and loads "
    "it from its persistent cache."
)


def measure() -> report.Section:
    """The medians of interleaved processes."""
    rows = {}
    with TemporaryDirectory() as folder:
        for name, layers in {SMALL: 0, **LAYERS}.items():
            rows[name] = _row(Path(folder), layers)
    bars = tuple(
        report.Bar(
            f"loading {name} from the cache in a fresh process, times compiling them",
            name,
            "fresh ÷ cold",
            0.25,
            0.15,
        )
        for name in LAYERS
    )
    return report.Section("Compiling", NOTE, rows, bars)


def _row(folder: Path, layers: int) -> dict[str, float]:
    program, caches = folder / f"{layers}.mlir", (folder / "ours", folder / "jax")
    variants = {
        "jax": (JAX, caches[1], False),
        "jax, fresh process": (JAX, caches[1], True),
        "cold": (COLD, caches[0], False),
        "fresh process": (WARM, caches[0], False),
    }
    times: rounds.Times = {}
    for turn in range(ROUNDS + 1):  # The first turn fills the caches and writes the program's text.
        for code, cache, is_kept in variants.values():
            for column, seconds in _child(code, program, cache, layers, is_kept).items():
                if turn:
                    times.setdefault(column, []).append(seconds)
    return {
        "cold ms": median(times["cold"]) * 1e3,
        "jax ms": median(times["jax"]) * 1e3,
        "in process ms": median(times["in process"]) * 1e3,
        "load alone ms": median(times["load alone"]) * 1e3,
        "fresh process ms": median(times["fresh process"]) * 1e3,
        "jax, fresh process ms": median(times["jax, fresh process"]) * 1e3,
        "fresh ÷ cold": rounds.ratio(times, "fresh process", "cold"),
        "in process ÷ cold": rounds.ratio(times, "in process", "cold"),
        "fresh ÷ jax's fresh": rounds.ratio(times, "fresh process", "jax, fresh process"),
        "cold ÷ jax": rounds.ratio(times, "cold", "jax"),
    }


def _child(code: str, program: Path, cache: Path, layers: int, is_kept: bool) -> dict[str, float]:
    words = [program, cache, Path(__file__).parent, layers, *(["kept"] if is_kept else [])]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        env={**os.environ, "PJRT_HUB_CACHE": str(cache)},
        cwd="/",  # In the checkout, a pjrt_hub would be imported that is not compiled.
        stdout=subprocess.PIPE,
        check=True,
    )
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


if __name__ == "__main__":
    rounds.pin()
    report.main(measure)
