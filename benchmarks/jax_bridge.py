"""JAX through pjrt-hub: a call against JAX's own way to the same plugin, and an unused start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import report
import rounds

import pjrt_hub

CALL_ROUNDS, START_ROUNDS = 12, 41
PACKAGE = Path(pjrt_hub.__file__).parent

#: Both ways take turns in one process, so that a busy machine slows both. An argument tells which
#: client is made first. It prints the seconds of a call by pjrt-hub and by JAX.
CALLS = """
import statistics, sys, time
import pjrt_hub.jax
pjrt_hub.jax.register("cpu", name="ours")
import jax, numpy
jax.config.update("jax_platforms", sys.argv[1])
f = jax.jit(lambda a, b: jax.numpy.tanh(a * b + 1.0))
x = {name: jax.device_put(numpy.zeros(8, numpy.float32), jax.devices(name)[0])
     for name in ("ours", "theirs")}
turns = {"ours": [], "theirs": []}
for _ in range(300):
    for name, a in x.items():
        start = time.perf_counter()
        for _ in range(50):
            y = f(a, a)
        turns[name].append((time.perf_counter() - start) / 50)
        y.block_until_ready()
print(*(statistics.median(each) for each in turns.values()))
"""
START = "import jax; jax.devices()"

OURS, THEIRS = "a `jit` call through pjrt-hub", "the same by `PJRT_NAMES_AND_LIBRARY_PATHS`"
UNUSED, WITHOUT = "`import jax; jax.devices()`, entry point unused", "the same without it"
BARS = (
    report.Bar("a `jit` call in JAX, times that by JAX's own way", OURS, "÷ JAX's way", 1.02),
    report.Bar("the unused entry point, ms at JAX's start", UNUSED, "added ms", 5),
)


def measure() -> report.Section:
    """The medians of interleaved processes."""
    with TemporaryDirectory() as folder:
        calls = _calls(Path(folder))
        starts = _starts(Path(folder))
    rows: rounds.Rows = {
        OURS: {
            "µs": median(calls[OURS]) * 1e6,
            "÷ JAX's way": rounds.ratio(calls, OURS, THEIRS),
        },
        THEIRS: {"µs": median(calls[THEIRS]) * 1e6},
        UNUSED: {
            "ms": median(starts[UNUSED]) * 1e3,
            "added ms": rounds.excess(starts, UNUSED, WITHOUT) * 1e3,
            "least over least": (min(starts[UNUSED]) - min(starts[WITHOUT])) * 1e3,
        },
        WITHOUT: {"ms": median(starts[WITHOUT]) * 1e3},
    }
    return report.Section(
        "JAX through pjrt-hub",
        "Fresh processes, on the XLA CPU plugin with one device. A call of the small "
        f"program, without waiting: the median of\n{CALL_ROUNDS} processes that hold both clients "
        "and alternate, in 300 turns of 50 calls for each. A start: whole\n"
        f"processes on JAX's own CPU client, {START_ROUNDS} rounds, with the entry point's line "
        "and without.",
        rows,
        BARS,
    )


def _environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PJRT_", "JAX_", "XLA_"))}
    return {**kept, "PJRT_HUB_CACHE": str(folder / "cache"), "TF_CPP_MIN_LOG_LEVEL": "3", **more}


def _calls(folder: Path) -> rounds.Times:
    options = {"cpu_device_count": 1}
    row = {"library_path": str(pjrt_hub.fetch("cpu")), "create_options": options}
    (folder / "plugin.json").write_text(json.dumps(row))
    env = _environment(folder, PJRT_NAMES_AND_LIBRARY_PATHS=f"theirs:{folder / 'plugin.json'}")
    env["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parent), env.get("PYTHONPATH", "")])
    times: rounds.Times = {OURS: [], THEIRS: []}
    for number in range(CALL_ROUNDS):
        order = ("ours,theirs", "theirs,ours")[number % 2]
        done = subprocess.run(
            [sys.executable, "-c", CALLS, order],
            env=env,
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # JAX warns there that its own way is experimental.
            check=True,
        )
        for name, seconds in zip(times, done.stdout.split(), strict=True):
            times[name].append(float(seconds))
    return times


def _starts(folder: Path) -> rounds.Times:
    """All that is installed, linked into two folders; the entry point is in one."""
    sites = {UNUSED: folder / "with", WITHOUT: folder / "without"}
    for name, site in sites.items():
        site.mkdir()
        for place in map(Path, sys.path):
            if place.name in ("site-packages", "dist-packages"):
                for each in place.iterdir():
                    ours = each.name.startswith("pjrt_hub")
                    if not ours and not (site / each.name).exists():
                        (site / each.name).symlink_to(each)
        (site / "pjrt_hub").symlink_to(PACKAGE)
        info = site / "pjrt_hub-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pjrt-hub\nVersion: 0\n")
        group = "jax_plugins" if name == UNUSED else "nobody_reads_it"
        (info / "entry_points.txt").write_text(f"[{group}]\npjrt_hub = pjrt_hub.jax\n")
    return rounds.interleave(
        {
            name: partial(_lasted, _environment(folder, PYTHONPATH=str(site)))
            for name, site in sites.items()
        },
        START_ROUNDS,
    )


def _lasted(env: Mapping[str, str]) -> float:
    start = perf_counter()
    # `site` would add the folders that the links come from.
    subprocess.run([sys.executable, "-S", "-c", START], env=env, cwd="/", check=True)
    return perf_counter() - start


if __name__ == "__main__":
    report.main(measure)
