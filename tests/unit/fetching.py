"""What the tests of downloads share: one small pinned wheel, and a fetch of it from a server."""

from __future__ import annotations

import os

import wheels
from loopback import Answer, Loopback

from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.transfer.fetch import obtain
from pjrt_hub.finding.store.transfer.transport import Patience

MEMBERS = wheels.contents()
WHEEL = wheels.build(MEMBERS)
PIN = wheels.pin(WHEEL, MEMBERS)
FILE = "/files/" + PIN.file_name
HONEST_416 = Answer(b"", "416 Range Not Satisfiable")


class Slept(list[float]):
    """Records what a download would have waited."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


class Steps:
    """A progress that adds up."""

    def __init__(self) -> None:
        self.starts: list[tuple[int, int]] = []
        self.nbytes = 0
        self.finished = 0

    def start(self, total: int, already: int) -> None:
        self.starts.append((total, already))
        self.nbytes = already

    def advance(self, n: int) -> None:
        self.nbytes += n

    def finish(self) -> None:
        self.finished += 1


class Phases(Steps):
    """One that also hears what is done."""

    def __init__(self) -> None:
        super().__init__()
        self.phases: list[str] = []

    def enter(self, phase: str) -> None:
        self.phases.append(phase)


class Interrupting(Phases):
    """Presses Ctrl-C in a phase; without one, once so many bytes came."""

    def __init__(self, phase: str = "", nbytes: int = 0) -> None:
        super().__init__()
        self._phase, self._nbytes = phase, nbytes

    def enter(self, phase: str) -> None:
        super().enter(phase)
        if phase == self._phase:
            raise KeyboardInterrupt

    def advance(self, n: int) -> None:
        super().advance(n)
        if not self._phase and self.nbytes >= self._nbytes:
            raise KeyboardInterrupt


def env(server: Loopback, **more: str) -> dict[str, str]:
    """An environment whose only source is the server's mirror."""
    base = {"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    return {**base, "UV_NO_CONFIG": "1", "PJRT_HUB_MIRRORS": server.url("/files"), **more}


def get(server: Loopback, cache: Cache, slept: Slept, **more: object):
    limits = Patience(sleep=slept, read_seconds=5)
    return obtain(PIN, cache, **{"env": env(server), "patience": limits, **more})


def assert_whole(cache: Cache) -> None:
    entry = cache.lookup(PIN)
    assert entry is not None
    for path in (wheels.LIBRARY, wheels.SIBLING):
        assert (entry.root / path).read_bytes() == MEMBERS[path]
    assert entry.library_path == entry.root / wheels.LIBRARY
    assert [audit.verdict.ok for audit in cache.verify()] == [True]


def assert_empty(cache: Cache) -> None:
    assert cache.entries() == ()
    assert list(cache.root.glob("v1/*/*/**/*.so")) == []
    assert list(cache.root.glob("v1/unpacking/*")) == []
