"""What the tests of downloads share: one small pinned wheel, and a fetch of it from a server."""

import os
from dataclasses import dataclass, field

import wheels
from loopback import Loopback

from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.transfer.fetch import obtain
from pjrt_hub.finding.store.transfer.transport import Patience

MEMBERS = wheels.contents()
WHEEL = wheels.build(MEMBERS)
PIN = wheels.pin(WHEEL, MEMBERS)
FILE = "/files/" + PIN.file_name
#: Variables that keep pip and uv from reading this machine's configuration.
BARE = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}


class Slept(list[float]):
    """Records what a download would have waited."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


@dataclass
class Steps:
    """A progress that adds up."""

    starts: list[tuple[int, int]] = field(default_factory=list)
    nbytes: int = 0
    finished: int = 0

    def start(self, total: int, already: int) -> None:
        self.starts.append((total, already))
        self.nbytes = already

    def advance(self, n: int) -> None:
        self.nbytes += n

    def finish(self) -> None:
        self.finished += 1


@dataclass
class Phases(Steps):
    """One that also hears what is done."""

    phases: list[str] = field(default_factory=list)

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
    return {**BARE, "PIP_NO_INDEX": "1", "PJRT_HUB_MIRRORS": server.url("/files"), **more}


def get(server: Loopback, cache: Cache, slept: Slept, **more: object):
    """Fetch the wheel, which is whole then."""
    limits = Patience(sleep=slept, read_seconds=5)
    entry = obtain(PIN, cache, **{"env": env(server), "patience": limits, **more})
    assert_whole(cache)
    return entry


def leave_partial(cache: Cache, content: bytes) -> None:
    """Leave what a download that was ended left."""
    left = cache.root / "v1/partial" / f"{PIN.sha256}.left.abcdefgh"
    left.mkdir(parents=True)
    (left / "archive").write_bytes(content)


def assert_whole(cache: Cache) -> None:
    entry = cache.lookup(PIN)
    assert entry is not None
    found = {path: (entry.root / path).read_bytes() for path in (wheels.LIBRARY, wheels.SIBLING)}
    assert found == {path: MEMBERS[path] for path in found}
    assert entry.library_path == entry.root / wheels.LIBRARY
    assert [audit.verdict.ok for audit in cache.verify()] == [True]


def assert_empty(cache: Cache) -> None:
    assert cache.entries() == ()
    assert list(cache.root.glob("v1/*/*/**/*.so")) == []
    assert list(cache.root.glob("v1/unpacking/*")) == []
