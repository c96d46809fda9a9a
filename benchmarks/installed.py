"""How finding grows: with distributions installed, plugins cached and programs compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import distributions
import report
import rounds
from growth import Growth

from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.cache.program_cache import ProgramCache

sys.path.append(os.fspath(Path(__file__).parents[1] / "tests" / "unit"))
import wheels

ROUNDS = 7
DISTRIBUTIONS = (50, 500, 2000)
ENTRIES = (10, 100, 1000)

#: These print seconds; what they need is imported before.
FIRST = """
import time, pjrt_hub, pjrt_hub.door.client, pjrt_hub.finding.discovery.survey
begun = time.perf_counter()
pjrt_hub.plugins()
print(time.perf_counter() - begun)
begun = time.perf_counter()
pjrt_hub.plugins()
print(time.perf_counter() - begun)
"""
LIST = [sys.executable, "-m", "pjrt_hub.cli", "list"]
PROGRAM = bytes(4096)
METADATA = """
import time, importlib.metadata as m
begun = time.perf_counter()
m.entry_points(group="pjrt_plugins")
print(time.perf_counter() - begun)
"""


def measure() -> list[report.Section]:
    """Both tables."""
    return [_distributions(), _entries()]


def _distributions() -> report.Section:
    with TemporaryDirectory() as folder:
        variants: dict[tuple[str, int], Callable[[], float]] = {}
        for count in DISTRIBUTIONS:
            site = Path(folder, str(count))
            distributions.install(site, count)
            env = os.environ | {"PJRT_HUB_CACHE": f"{folder}/cache"}
            env["PYTHONPATH"] = os.pathsep.join([str(site), env.get("PYTHONPATH", "")])
            variants |= {
                ("plugins() first", count): partial(_printed, FIRST, 0, env),
                ("plugins() again", count): partial(_printed, FIRST, 1, env),
                ("importlib.metadata", count): partial(_printed, METADATA, 0, env),
                ("pjrt-hub list, whole", count): partial(_lasted, LIST, env),
            }
        columns = _columns(variants)
    return _section(
        "distributions",
        "Discovery, by the installed distributions",
        "installed distributions",
        "Milliseconds in fresh processes, the page cache warm: the first `plugins()`, its imports "
        "done, and the second; what\n`importlib.metadata.entry_points` takes for one group; and "
        "`pjrt-hub list` from start to end.",
        columns,
        {"plugins() first ms": 1.1},
    )


def _entries() -> report.Section:
    with TemporaryDirectory() as folder:
        caches = {count: _Caches(Path(folder, str(count)), count) for count in ENTRIES}
        variants = {
            (name, count): measured
            for count, held in caches.items()
            for name, measured in held.variants().items()
        }
        columns = _columns(variants)
    return _section(
        "entries",
        "The cache, by its entries",
        "entries",
        "Milliseconds with so many fetched plugins, of 7 KB, and as many compiled programs, of "
        "4 KB: finding a plugin that was\nverified before; a compiled program read, and another "
        "kept, with the sync of the disk; what `prune` would remove;\n`pjrt-hub cache list` from "
        "start to end.",
        columns,
        {"look-up ms": 0.2, "program read ms": 0.2, "prune ms": 1.1},
    )


class _Caches:
    """A cache of plugins and one of compiled programs, filled."""

    def __init__(self, root: Path, count: int) -> None:
        self._root = root
        self._cache, self._programs = Cache(root), ProgramCache(root)
        members = wheels.contents(nbytes=1 << 10)
        wheel = wheels.build(members)
        archive = root.with_suffix(".whl")
        archive.write_bytes(wheel)
        row = wheels.pin(wheel, members)
        # The digests make the rows different plugins.
        self._rows = [row._replace(sha256=_digest(number)) for number in range(count)]
        for number, each in enumerate(self._rows):
            self._cache.publish(each, archive)
            self._programs.put(f"key {number}", PROGRAM)

    def variants(self) -> dict[str, Callable[[], float]]:
        """What is measured, each in seconds."""
        middle = len(self._rows) // 2
        command = [sys.executable, "-m", "pjrt_hub.cli", "cache", "list"]
        env = os.environ | {"PJRT_HUB_CACHE": str(self._root)}
        look = rounds.turns("look(row)", look=self._cache.lookup, row=self._rows[middle])
        read = rounds.turns("read(key)", read=self._programs.get, key=f"key {middle}")
        keep = rounds.turns(
            "keep(key, value)", keep=self._programs.put, key=f"key {middle}", value=PROGRAM
        )
        prune = rounds.turns("prune(max_nbytes=0, dry_run=True)", prune=self._cache.prune)
        return {
            "look-up": lambda: look(50) / 50,
            "program read": lambda: read(50) / 50,
            "program kept": lambda: keep(5) / 5,
            "prune": lambda: prune(1),
            "cache list, whole": lambda: _lasted(command, env),
        }


def _digest(number: int) -> str:
    return sha256(str(number).encode()).hexdigest()


def _columns(variants: dict[tuple[str, int], Callable[[], float]]) -> dict[str, dict[int, float]]:
    """A column for each thing that is measured: the milliseconds by how many there are."""
    columns: dict[str, dict[int, float]] = {}
    for (name, count), seconds in rounds.interleave(variants, ROUNDS).items():
        columns.setdefault(f"{name} ms", {})[count] = median(seconds) * 1e3
    return columns


def _section(
    name: str,
    title: str,
    axis: str,
    note: str,
    columns: dict[str, dict[int, float]],
    bars: dict[str, float],
) -> report.Section:
    counts = list(next(iter(columns.values())))
    growth = Growth(name, title, axis, "ms", {f"{n:,}": n for n in counts}, note, bars)
    return growth.section(
        {
            f"{name} {row}": {column: cells[count] for column, cells in columns.items()}
            for row, count in zip(growth.steps, counts, strict=True)
        }
    )


def _printed(code: str, line: int, env: Mapping[str, str]) -> float:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[line])


def _lasted(command: list[str], env: Mapping[str, str]) -> float:
    begun = perf_counter()
    subprocess.run(command, env=env, cwd="/", stdout=subprocess.DEVNULL, check=True)
    return perf_counter() - begun


if __name__ == "__main__":
    report.main(measure)
