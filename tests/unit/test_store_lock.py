"""Locks: exclusive and shared, with a fallback if a kind is missing, and not held by forks."""

import errno
import fcntl
import logging
import os
import threading
from pathlib import Path

import pytest

from pjrt_hub.finding.store import lock

pytestmark = pytest.mark.filterwarnings("ignore:This process .*fork:DeprecationWarning")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture(params=["flock", "locks of open files"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way to lock files; the second one is the fallback for flock."""
    if request.param != "flock":
        monkeypatch.setattr("fcntl.flock", refuse)
    return request.param


def test_a_lock_has_one_holder(path: Path) -> None:
    told, now = [], iter(range(100))
    with lock.acquire(path) as first:
        assert first
        assert path.read_text() == str(os.getpid())
        wait = lock.Wait(5, told.append, lambda _: None, lambda: float(next(now)))
        with lock.acquire(path, wait) as second:
            assert not second
    assert [text.partition(" (/")[0] for text in told] == [
        f"waiting for another process (pid {os.getpid()}), which is fetching the same file",
        f"pid {os.getpid()} is not done after 5 s; going on without it",
    ]
    assert path.exists()
    with lock.acquire(path) as third:
        assert third


def test_a_lock_does_not_follow_links(tmp_path: Path, path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path.symlink_to(victim)
    with lock.acquire(path) as held:
        assert not held
    assert victim.read_text() == "precious"


def refuse(*args: object) -> None:
    raise OSError(errno.ENOLCK, "no locks")


def test_without_any_locks_one_is_warned_once(path: Path, monkeypatch, caplog) -> None:
    monkeypatch.setattr("fcntl.flock", refuse)
    monkeypatch.setattr("fcntl.fcntl", refuse)
    with caplog.at_level(logging.WARNING, "pjrt_hub.store"):
        for _ in range(3):
            with lock.acquire(path, lock.Wait(60)) as held:
                assert held.state == "unknown"
    assert len(caplog.records) == 1
    assert f"files in {path.parent} cannot be locked" in caplog.text


def test_many_share_a_lock_and_none_takes_it_alone_meanwhile(path: Path, way: str) -> None:
    with lock.acquire(path) as alone:
        assert alone
        path.read_bytes()  # closing this file must not release the lock
        for shared in (False, True):
            with lock.acquire(path, shared=shared) as second:
                assert second.state == "taken"
    with lock.acquire(path, shared=True) as first, lock.acquire(path, shared=True) as second:
        assert first
        assert second
        with lock.acquire(path) as alone:
            assert alone.state == "taken"


def test_a_fork_neither_keeps_the_lock_nor_frees_it(path: Path) -> None:
    go, gone = os.pipe()
    with lock.acquire(path) as held:
        assert held
        child = os.fork()
        if child == 0:
            try:
                os.close(gone)
                raise KeyboardInterrupt  # this unwinds through the `with`
            except KeyboardInterrupt:
                pass
            os.read(go, 1)
            os._exit(0)
        with lock.acquire(path) as second:
            assert second.state == "taken"
    with lock.acquire(path) as third:  # the child is still alive
        assert third
    os.close(gone)
    assert os.waitpid(child, 0)[1] == 0
    os.close(go)


def test_leaving_the_block_in_a_fork_changes_nothing(path: Path) -> None:
    manager = lock.acquire(path)
    with manager as held:
        child = os.fork()
        if child == 0:
            other = os.open(os.devnull, os.O_RDONLY)  # it may reuse the lock file's descriptor
            manager.__exit__(None, None, None)
            os.fstat(other)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert held
        with open(path) as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_waiting_ends_when_the_holder_is_done(path: Path) -> None:
    told: list[bool] = []

    def wait() -> None:
        with lock.acquire(path, lock.Wait(60)) as held:
            told.append(bool(held))

    with lock.acquire(path, shared=True):
        waiter = threading.Thread(target=wait)
        waiter.start()
        waiter.join(0.3)
        assert told == []
    waiter.join(20)
    assert told == [True]
