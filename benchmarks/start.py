"""What starting costs, in whole processes: the import, the command line, the first result."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import distributions
import report
import rounds

import pjrt_hub
from pjrt_hub._capi.probe import probe

ROUNDS = 21
PROGRAM = Path(__file__).parent.parent / "tests" / "programs" / "tanh_mul_add.mlir"
DISTRIBUTIONS = 50

OURS = f"""
import pjrt_hub
client = pjrt_hub.client("cpu")
exe = client.compile({os.fspath(PROGRAM)!r})
a = client.buffer_from_host([0.0] * 8)
assert exe(a, a).to_numpy().shape == (8,)
"""
THEIRS = """
import jax
import jax.numpy as jnp
import numpy
exe = jax.jit(lambda a, b: jnp.tanh(a * b + 1.0))
a = jax.device_put(numpy.zeros(8, numpy.float32))
assert numpy.asarray(exe(a, a)).shape == (8,)
"""

PASS, IMPORT, LIST = "pass", "import pjrt_hub", f"pjrt-hub list, {DISTRIBUTIONS} distributions"
FIRST, FIRST_JAX = "first result", "first result, jax"
PROBE = "first contact with the CPU plugin"
BARS = (
    report.Bar("`import pjrt_hub`, ms over `pass`", IMPORT, "over pass", 40),
    report.Bar("`pjrt-hub list` with 50 distributions, ms over `pass`", LIST, "over pass", 150),
    report.Bar(
        "the first contact with the CPU plugin in a process of its own, ms", PROBE, "ms", 150
    ),
    report.Bar("a fresh process's first result, times the same with JAX", FIRST, "÷ jax", 0.5),
)


def measure() -> report.Section:
    """The median of interleaved processes."""
    with TemporaryDirectory() as folder:
        site = Path(folder, "site")
        distributions.install(site, DISTRIBUTIONS)
        # The first round writes the bytecode and remembers the first contact with the plugin.
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env |= {"PJRT_HUB_CACHE": str(Path(folder, "cache")), "TF_CPP_MIN_LOG_LEVEL": "2"}
        python = [sys.executable, "-c"]
        command = str(Path(sys.executable).with_name("pjrt-hub"))
        times = rounds.interleave(
            {
                PASS: _process([*python, "pass"], env),
                IMPORT: _process([*python, "import pjrt_hub"], env),
                LIST: _process([command, "list"], env | {"PYTHONPATH": str(site)}),
                FIRST: _process([*python, OURS], env),
                FIRST_JAX: _process([*python, THEIRS], env | {"JAX_PLATFORMS": "cpu"}),
                PROBE: _probe(env),
            },
            ROUNDS,
        )
    rows: rounds.Rows = {}
    for name, seconds in times.items():
        rows[name] = {"ms": median(seconds) * 1e3, "least ms": min(seconds) * 1e3}
        if name != PASS:
            rows[name]["over pass"] = rounds.excess(times, name, PASS) * 1e3
            rows[name]["least over least"] = rows[name]["least ms"] - rows[PASS]["least ms"]
    rows[FIRST]["÷ jax"] = rounds.ratio(times, FIRST, FIRST_JAX)
    return report.Section(
        "Starting",
        "Milliseconds of whole processes, from their start to their end, with bytecode and the "
        f"page cache warm: the median of\n{ROUNDS} interleaved rounds, the least, and both over "
        "`python -c pass`. A first result is a client, the small program compiled\nand run, and "
        "its result read.",
        rows,
        BARS,
    )


def _process(command: list[str], env: Mapping[str, str]) -> Callable[[], float]:
    def seconds() -> float:
        start = perf_counter()
        # From the root directory, because `python -c` looks for modules where it is started.
        subprocess.run(command, env=env, cwd="/", stdout=subprocess.DEVNULL, check=True)
        return perf_counter() - start

    return seconds


def _probe(env: Mapping[str, str]) -> Callable[[], float]:
    path = pjrt_hub.fetch("cpu")

    def seconds() -> float:
        start = perf_counter()
        probe(path, env=env)
        return perf_counter() - start

    return seconds


if __name__ == "__main__":
    report.main(measure)
