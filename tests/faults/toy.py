"""The toy plugin that stands in for the vendors': its pin, its server, and what is wrong of it."""

import random
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fetching
import wheels
from forks import Ended, Fork, Forks
from loopback import Loopback

from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact
from pjrt_hub.finding.store.transfer.fetch import obtain

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NBYTES = 3 << 20
Tally = Callable[[str], None]
Rounds = Callable[[int, int], int]


@dataclass(frozen=True)
class Toy:
    """A pinned wheel on a server, and what to say to a fork to fetch it."""

    pin: Artifact
    wheel: bytes
    members: dict[str, bytes]
    row: Path
    server: Loopback

    @property
    def path(self) -> str:
        return f"/files/{self.pin.file_name}"

    @property
    def sources(self) -> dict[str, str]:
        return fetching.env(self.server)

    def given(self, root: Path) -> dict[str, object]:
        """The arguments of a fetch into a cache by a fork."""
        return {"row": str(self.row), "root": str(root), "env": self.sources}

    def obtain(self, cache: Cache) -> None:
        obtain(self.pin, cache, env=self.sources)

    def audit(self, cache: Cache) -> list[str]:
        """Every wrong byte under a published name; the cache is left as it is."""
        wrong = [audit.verdict.reason for audit in cache.verify() if not audit.verdict]
        for entry in cache.entries():
            if entry.artifact != self.pin:
                continue
            for path in (wheels.LIBRARY, wheels.SIBLING):
                if (entry.root / path).read_bytes() != self.members[path]:
                    wrong.append(f"{path} is not what was pinned")
        return wrong

    def heal(self, cache: Cache) -> list[str]:
        """What is wrong after a fetch that nobody disturbs, leftovers of others included.

        What was published needs no fetch; then leftovers wait for the next one, or for `clear`.
        """
        was_there = bool(cache.entries())
        self.obtain(cache)
        wrong = self.audit(cache)
        if not cache.entries():
            wrong.append("no entry")
        if was_there:
            cache.clear()
        return wrong + [
            f"left: {path}" for area in ("partial", "unpacking") for path in _in(cache, area)
        ]


def _in(cache: Cache, area: str) -> list[Path]:
    return sorted((cache.root / "v1" / area).glob("*"))


@dataclass(frozen=True)
class Bench:
    """The toy, a cache, and forks that fetch it into that."""

    toy: Toy
    cache: Cache
    forks: Forks

    @property
    def server(self) -> Loopback:
        return self.toy.server

    def fork(self, walk: str = "fetch", **more: Any) -> Fork:
        """A fork that will run that function of `walks.py` with a fetch's arguments."""
        return self.forks.fork(walk, **self.toy.given(self.cache.root), **more)

    def run(self, walk: str = "fetch", **more: Any) -> Ended:
        return self.fork(walk, **more).go().ended()

    def calls(self, log: Path, names: tuple[str, ...]) -> dict[str, int]:
        return self.forks.calls(log, "fetch", names, **self.toy.given(self.cache.root))

    def asked(self) -> int:
        return len(self.server.asked(self.toy.path))

    def audit(self) -> list[str]:
        return self.toy.audit(self.cache)

    def heal(self) -> list[str]:
        return self.toy.heal(self.cache)


def library_with_pages(folder: Path) -> bytes:
    """The stub plugin of tests/fake with pages of random bytes, all of which it reads."""
    sys.path.insert(0, str(ROOT / "tools"))
    import capi

    sys.path.remove(str(ROOT / "tools"))
    (folder / "pjrt_api.h").write_text(capi.header(capi.read()))
    (folder / "pages.bin").write_bytes(random.Random(7).randbytes(NBYTES))
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    command = [*compiler, "-std=gnu11", "-w", "-fPIC", "-shared", "-pthread", f"-I{folder}"]
    command += [f"-Wa,-I{folder}", "-include", str(HERE / "pages.h"), "-o", "toy.so"]
    command += ["-DON_INITIALIZE=read_pages()", "-DON_ATTRIBUTES=read_pages()"]
    plugin = ROOT / "tests/fake/plugin.c"
    subprocess.run([*command, str(plugin)], cwd=folder, check=True, timeout=60)
    return (folder / "toy.so").read_bytes()
