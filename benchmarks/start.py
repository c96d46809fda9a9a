"""What starting costs: whole processes to the first result, and the steps on the way there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import distributions
import report
import rounds

import pjrt_hub

ROUNDS = 21
PROGRAM = Path(__file__).parent.parent / "tests" / "programs" / "tanh_mul_add.mlir"
FEW, SOME, MANY = 50, 500, 2000

CLIENT = """
import pjrt_hub
client = pjrt_hub.client("cpu")
"""
OURS = f"""{CLIENT}
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

#: These print the seconds of a single step; what it needs is imported before.
PLUGINS = """
import time, pjrt_hub, pjrt_hub.door.client, pjrt_hub.finding.discovery.survey
begun = time.perf_counter()
pjrt_hub.plugins()
print(time.perf_counter() - begun)
"""
HEADERS = """
import sys, time, os
from pathlib import Path
from pjrt_hub.door import preflight, process
world, path = process.world(), Path(sys.argv[1])
begun = time.perf_counter()
assert list(preflight.problems(path, world, (), os.environ)) == []
print(time.perf_counter() - begun)
"""
LOAD = """
import sys, time
from pjrt_hub.running.capi import hotpath
begun = time.perf_counter()
hotpath.open_library(sys.argv[1])
print(time.perf_counter() - begun)
"""
PROBE = """
import sys, time, os
from pathlib import Path
from pjrt_hub.running.sandbox.probe import probe
begun = time.perf_counter()
probe(Path(sys.argv[1]), env=os.environ)
print(time.perf_counter() - begun)
"""

BASE, IMPORT = "pass", "import pjrt_hub"
LISTED, LISTED_MANY = (f"pjrt-hub list, {count:,} distributions" for count in (FEW, MANY))
MADE, FIRST, FIRST_JAX = "a client", "first result", "first result, jax"
FIRST_COLD = "first result, plugin not in the page cache"
FOUND, FOUND_SOME, FOUND_MANY = (
    f"of it: plugins() among {count:,} distributions" for count in (FEW, SOME, MANY)
)
CHECKED, LOADED = "of it: the library's headers, once", "of it: dlopen"
LOADED_COLD = "of it: dlopen, not in the page cache"
CONTACT = "of it: first contact, once"
BARS = (
    report.Bar("`import pjrt_hub`, ms over `pass`", IMPORT, "over pass", 30, 15),
    report.Bar("`pjrt-hub list` with 50 distributions, ms over `pass`", LISTED, "over pass", 150),
    report.Bar("`plugins()` among 2,000 distributions, ms", FOUND_MANY, "ms", 60, 20),
    report.Bar(
        "the first contact with the CPU plugin in a process of its own, ms", CONTACT, "ms", 150
    ),
    report.Bar("a fresh process's first result, times the same with JAX", FIRST, "÷ jax", 0.4, 0.3),
)


def measure() -> report.Section:
    """The median of interleaved processes."""
    library = pjrt_hub.fetch("cpu")
    with TemporaryDirectory() as folder:
        # The first round writes the bytecode and remembers the first contact with the plugin.
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env |= {"PJRT_HUB_CACHE": str(Path(folder, "cache")), "TF_CPP_MIN_LOG_LEVEL": "2"}
        among = {}
        for count in (FEW, SOME, MANY):
            site = Path(folder, str(count))
            distributions.install(site, count)
            path = filter(None, [str(site), env.get("PYTHONPATH")])
            among[count] = env | {"PYTHONPATH": os.pathsep.join(path)}
        with_jax = _process(["-c", THEIRS], env | {"JAX_PLATFORMS": "cpu"})
        listing = ["-m", "pjrt_hub.cli", "list"]
        times = rounds.interleave(
            {
                BASE: _process(["-c", "pass"], env),
                IMPORT: _process(["-c", "import pjrt_hub"], env),
                LISTED: _process(listing, among[FEW]),
                LISTED_MANY: _process(listing, among[MANY]),
                MADE: _process(["-c", CLIENT], env),
                FIRST: _process(["-c", OURS], env),
                **({FIRST_JAX: with_jax} if find_spec("jax") else {}),
                FIRST_COLD: _cold(library, _process(["-c", OURS], env)),
                FOUND: _step(PLUGINS, library, among[FEW]),
                FOUND_SOME: _step(PLUGINS, library, among[SOME]),
                FOUND_MANY: _step(PLUGINS, library, among[MANY]),
                CHECKED: _step(HEADERS, library, env),
                CONTACT: _step(PROBE, library, env),
                LOADED: _step(LOAD, library, env),
                LOADED_COLD: _cold(library, _step(LOAD, library, env)),
            },
            ROUNDS,
        )
    rows: rounds.Rows = {}
    for name, seconds in times.items():
        rows[name] = {"ms": median(seconds) * 1e3, "least ms": min(seconds) * 1e3}
        if name != BASE and not name.startswith("of it"):
            rows[name]["over pass"] = rounds.excess(times, name, BASE) * 1e3
            rows[name]["least over least"] = rows[name]["least ms"] - rows[BASE]["least ms"]
    for name in (FIRST, FIRST_COLD) if FIRST_JAX in times else ():
        rows[name]["÷ jax"] = rounds.ratio(times, name, FIRST_JAX)
    return report.Section(
        "Starting",
        "Milliseconds of whole processes, with bytecode and the page cache warm: the median "
        f"of {ROUNDS} interleaved rounds, the\nleast, and both over `python -c pass`. A first "
        "result is a client, the small program compiled and run, and its result\nread. A step"
        " of it is measured by itself; the headers are read and the first contact is made "
        "once for each library.\n"
        '"Not in the page cache" is the plugin\'s file '
        f"({library.stat().st_size / 1e6:.0f} MB).",
        rows,
        tuple(bar for bar in BARS if bar.column in rows[bar.row]),
    )


def _process(arguments: list[str], env: Mapping[str, str]) -> Callable[[], float]:
    def seconds() -> float:
        start = perf_counter()
        # The root directory is used because `python -c` looks for modules where it is started.
        command = [sys.executable, *arguments]
        subprocess.run(command, env=env, cwd="/", stdout=subprocess.DEVNULL, check=True)
        return perf_counter() - start

    return seconds


def _step(code: str, library: Path, env: Mapping[str, str]) -> Callable[[], float]:
    def seconds() -> float:
        command = [sys.executable, "-c", code, os.fspath(library)]
        done = subprocess.run(command, env=env, cwd="/", stdout=subprocess.PIPE, check=True)
        return float(done.stdout)

    return seconds


def _cold(library: Path, variant: Callable[[], float]) -> Callable[[], float]:
    """The same where the disk must be asked for the library again."""

    def seconds() -> float:
        file = os.open(library, os.O_RDONLY)
        try:
            os.fsync(file)  # Pages that are not yet on the disk would stay in memory.
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)
        return variant()

    return seconds


if __name__ == "__main__":
    report.main(measure)
