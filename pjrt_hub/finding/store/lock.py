"""Locks between processes: for one downloader, and for many users of an entry.

They save bandwidth and evictions and never guard correctness: on file systems without locks the
store is as correct and only slower, because publishing is atomic.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache as once
from pathlib import Path
from typing import Literal, NamedTuple

from pjrt_hub.base import log

#: Seconds between two attempts at a lock that somebody else holds.
_POLL_SECONDS = 0.1
#: Seconds of waiting before the user gets a message.
_QUIET_SECONDS = 2.0
#: The lock files that this process has open.
_open: set[int] = set()


class FileLock(NamedTuple):
    """The outcome of asking for a lock; true if it is held.

    Its state is "taken" if another process holds it and the wait is over, or "unknown" if files
    cannot be locked.
    """

    file: int | None  # None if the file cannot be opened.
    state: Literal["held", "taken", "unknown"]

    def __bool__(self) -> bool:
        return self.state == "held"


class Wait(NamedTuple):
    """How to wait for another holder."""

    seconds: float = 0.0  # How long to wait before going on without the lock.
    notify: Callable[[str], None] | None = None  # It is told, after 2 s, who holds the lock.
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    doing: str = "is fetching the same file"  # What the other holder does.


#: This takes the lock at once, or not at all.
NO_WAIT = Wait()


@contextmanager
def acquire(
    path: Path, wait: Wait = NO_WAIT, *, shared: bool = False, folder: int | None = None
) -> Iterator[FileLock]:
    """Hold a lock (flock(2), else that of fcntl(2)) during a `with` block.

    The file is never unlinked: a process that waits on an unlinked file would lock nothing. A
    process that is forked meanwhile neither holds nor releases the lock. For a shared lock, a file
    that can only be read is enough. The file's directory exists, and `folder` is its descriptor
    if it is open.
    """
    file = _open_file(path, folder, shared)
    if file is None:
        yield FileLock(None, "unknown")
        return
    process = os.getpid()
    _open.add(file)
    try:
        got = _acquire(file, path, shared, wait)
        if got and not shared:
            with suppress(OSError):  # Only the message to waiting processes needs this.
                os.ftruncate(file, 0)
                os.lseek(file, 0, os.SEEK_SET)
                os.write(file, str(process).encode())
        yield got
    finally:
        if os.getpid() == process:
            _open.discard(file)
            _release(file)


def _open_file(path: Path, folder: int | None, shared: bool) -> int | None:
    where = path if folder is None else path.name
    extra = getattr(os, "O_NOFOLLOW", 0)
    # A shared lock needs no write access, which readers of a shared cache may not have.
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT)[0 if shared else 1 :]:
        with suppress(OSError):
            return os.open(where, flags | extra, 0o644, dir_fd=folder)
    return None


def _acquire(file: int, path: Path, shared: bool, wait: Wait) -> FileLock:
    started, told = wait.clock(), False
    while True:
        try:
            return FileLock(file, "held" if _try(file, path, shared) else "unknown")
        except BlockingIOError:
            waited = wait.clock() - started
            if waited >= wait.seconds:
                if wait.notify and told:
                    wait.notify(
                        f"{_holder(file)} is not done after {waited:.0f} s; going on without it"
                    )
                return FileLock(file, "taken")
            if wait.notify and not told and waited >= _QUIET_SECONDS:
                told = True
                wait.notify(
                    f"waiting for another process ({_holder(file)}), which {wait.doing} ({path})"
                )
            wait.sleep(_POLL_SECONDS)


def _try(file: int, path: Path, shared: bool) -> bool:
    """Take the lock if it is free; return False if this file system has no locks.

    If somebody holds the lock, it raises BlockingIOError.
    """
    if sys.platform == "win32":
        return False  # Windows locks cannot be shared.
    import fcntl

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        raise
    except OSError:
        pass
    # The open file holds this lock. A process's lock would end at any close of the file.
    if hasattr(fcntl, "F_OFD_SETLK"):
        kind = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, 0, 0, 0))
            return True
        except (BlockingIOError, PermissionError) as exc:
            raise BlockingIOError(exc.errno, exc.strerror) from exc
        except OSError:
            pass
    _warn(path.parent)
    return False


def _release(file: int) -> None:
    """Unlock, then close: a process forked meanwhile has the file open, too."""
    if sys.platform != "win32":
        import fcntl

        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
    with suppress(OSError):  # Nothing that matters was written to the file.
        os.close(file)


def _holder(file: int) -> str:
    with suppress(OSError):
        os.lseek(file, 0, os.SEEK_SET)
        if text := os.read(file, 32).decode("ascii", "replace"):
            return f"pid {text}"
    return "pid unknown"


@once
def _warn(folder: Path) -> None:
    text = "files in %s cannot be locked: processes may fetch the same file more than once"
    log.warn("pjrt_hub.store", text, folder)


def _after_fork() -> None:
    """Close the parent's lock files in the child, which does not unlock them for the parent."""
    for file in _open:
        with suppress(OSError):
            os.close(file)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
