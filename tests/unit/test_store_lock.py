"""Locks: exclusive and shared, of other kinds where one is missing, and never a fork's."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pjrt_hub.finding.store import lock

pytestmark = pytest.mark.filterwarnings("ignore:This process .*fork:DeprecationWarning")


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    path, told = tmp_path / "lock", []
    now = iter(range(100))
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


def test_a_dead_holder_frees_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = "import fcntl,sys,time; f=open(sys.argv[1],'w'); fcntl.flock(f,fcntl.LOCK_EX); "
    code += "print(1,flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"1\n"
        with lock.acquire(path) as held:
            assert not held
        process.kill()
        process.wait(20)
    with lock.acquire(path) as held:
        assert held


def test_a_lock_does_not_follow_links(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "link").symlink_to(victim)
    with lock.acquire(tmp_path / "link") as held:
        assert not held
    assert victim.read_text() == "precious"


def refuse(*args: object) -> None:
    raise OSError(errno.ENOLCK, "no locks")


def test_the_lock_of_an_open_file_stands_in_for_flock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fcntl.flock", refuse)
    path = tmp_path / "lock"
    with lock.acquire(path) as first:
        assert first
        path.read_bytes()  # closing this must not lose it
        with lock.acquire(path) as second:
            assert second.state == "taken"
    with (
        lock.acquire(path, shared=True) as first,
        lock.acquire(path, shared=True) as second,
        lock.acquire(path) as third,
    ):
        assert first
        assert second
        assert third.state == "taken"


def test_without_any_locks_one_is_warned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fcntl.flock", refuse)
    monkeypatch.setattr("fcntl.fcntl", refuse)
    with caplog.at_level(logging.WARNING, "pjrt_hub.store"):
        for _ in range(3):
            with lock.acquire(tmp_path / "lock", lock.Wait(60)) as held:
                assert held.state == "unknown"
    assert len(caplog.records) == 1
    assert f"files in {tmp_path} cannot be locked" in caplog.text


def test_many_share_a_lock_and_none_takes_it_alone_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        lock.acquire(path, shared=True) as first,
        lock.acquire(path, shared=True) as second,
    ):
        assert first
        assert second
        with lock.acquire(path) as alone:
            assert alone.state == "taken"
    with (
        lock.acquire(path) as alone,
        lock.acquire(path, shared=True) as shared,
    ):
        assert alone
        assert shared.state == "taken"


def test_a_stopped_holder_is_waited_for_to_the_deadline(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = "import fcntl,sys,time; f=open(sys.argv[1],'w'); fcntl.flock(f,fcntl.LOCK_EX); "
    code += "print(1,flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout.readline() == b"1\n"
            process.send_signal(signal.SIGSTOP)
            begun = time.monotonic()
            with lock.acquire(path, lock.Wait(0.5)) as held:
                assert held.state == "taken"
            assert time.monotonic() - begun >= 0.5
        finally:
            process.kill()
            process.wait(20)


def test_a_fork_neither_keeps_the_lock_nor_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    go, gone = os.pipe()
    with lock.acquire(path) as held:
        assert held
        child = os.fork()
        if child == 0:
            try:
                os.close(gone)
                raise KeyboardInterrupt  # unwinds through the `with`
            except KeyboardInterrupt:
                pass
            os.read(go, 1)
            os._exit(0)
        with lock.acquire(path) as second:
            assert second.state == "taken"
    with lock.acquire(path) as third:  # while the child lives
        assert third
    os.close(gone)
    assert os.waitpid(child, 0)[1] == 0
    os.close(go)


def test_leaving_the_block_in_a_fork_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    manager = lock.acquire(path)
    with manager as held:
        child = os.fork()
        if child == 0:
            other = os.open(os.devnull, os.O_RDONLY)  # may have got the number of the lock file
            manager.__exit__(None, None, None)
            os.fstat(other)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert held
        with open(path) as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_waiting_ends_when_the_holder_is_done(tmp_path: Path) -> None:
    path, told = tmp_path / "lock", []
    with lock.acquire(path, shared=True):
        waiter = threading.Thread(target=wait, args=(path, told))
        waiter.start()
        waiter.join(0.3)
        assert told == []
    waiter.join(20)
    assert told == [True]


def wait(path: Path, told: list[bool]) -> None:
    with lock.acquire(path, lock.Wait(60)) as held:
        told.append(bool(held))
