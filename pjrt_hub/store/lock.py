"""One downloader at a time (layer 2).

Saves bandwidth and never guards correctness: on file systems where flock does nothing the
store is as correct and only slower, because publishing is atomic.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Seconds between two looks at a lock that somebody else holds.
_POLL_SECONDS = 0.1
#: Seconds of waiting before the user is told.
_QUIET_SECONDS = 2.0


@contextmanager
def held(
    path: Path,
    *,
    patience_seconds: float,
    notify: Callable[[str], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[bool]:
    """Holds an exclusive lock (flock(2)) for the time of a `with` block.

    The file is never unlinked: a process that waits on an unlinked file would lock nothing.

    Args:
        path: the lock file; its directory exists.
        patience_seconds: how long to wait for another holder before going on without the lock.
        notify: is told once, after two seconds, who holds it.
        sleep: waits that many seconds.
        clock: a monotonic time in seconds.

    Yields:
        Whether the lock is held.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield False
        return
    try:
        got = _acquire(file, path, patience_seconds, notify, sleep, clock)
        if got:
            with suppress(OSError):  # a full disk: the lock holds without its holder's name
                os.ftruncate(file, 0)
                os.pwrite(file, str(os.getpid()).encode(), 0)
        yield got
    finally:
        os.close(file)


def _acquire(
    file: int,
    path: Path,
    patience_seconds: float,
    notify: Callable[[str], None] | None,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
) -> bool:
    import fcntl

    started, told = clock(), False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = clock() - started
            if waited >= patience_seconds:
                return False
            if notify and not told and waited >= _QUIET_SECONDS:
                told = True
                holder = os.pread(file, 32, 0).decode("ascii", "replace") or "unknown"
                notify(f"waiting for process {holder}, which is fetching the same file ({path})")
            sleep(_POLL_SECONDS)
        except OSError:  # ENOLCK, ENOSYS: this file system has no flock
            return False
        else:
            return True
