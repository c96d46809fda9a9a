"""A process that meets a plugin for another one, and leaves nothing of it behind.

Owns ending all that a plugin starts, even processes that leave its session, and reporting the end.
Must run in a process of its own, whose standard input ends when nobody waits any more.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

_PR_SET_CHILD_SUBREAPER = 36
_TO_END = 0.5  # Seconds between asking a process to end and killing it.

#: Sends keyword arguments to the process that started this one; what is not JSON goes as text.
Tell = Callable[..., None]


def main() -> NoReturn:
    """Serve a process that `child.Child` started: run the module's `work` and tell how it ended.

    `work` is called with a `Tell` and the words that `Child` was given. Its return value, or the
    signal that its process died of, is told as the "status".
    """
    module, answering, *words = sys.argv[1:]
    work = import_module(module).work

    def write(**said: object) -> None:
        os.write(int(answering), json.dumps(said, default=str).encode() + b"\n")

    def tell(**said: object) -> None:
        try:
            write(**said)
        except OSError:
            os.write(2, b"the plugin closed the files of its process\n")
            os._exit(1)

    status = run(lambda: work(tell, *words))
    with suppress(OSError):  # The reader may have closed its end.
        write(status=status)
    os._exit(0)  # This skips the exit handlers, which have nothing to do.


def run(work: Callable[[], int]) -> int:
    """Run `work` in a child, until it ends or standard input does, and end all it started.

    Gives the child's exit status, negative for the signal that it died of.
    """
    adopt()
    leash = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    child = os.fork()
    if child == 0:
        os.close(leash)
        os.setsid()  # A plugin may signal its group, which must not include the watcher.
        os._exit(work())
    _wait(child, leash)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return _reap(child)


def adopt() -> None:
    """Make this process the parent of whatever is started below it and loses its own parent."""
    import ctypes  # The parent imports this module, but needs no ctypes.

    with suppress(AttributeError):  # Only Linux has it; elsewhere, what leaves the session escapes.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _wait(child: int, leash: int) -> None:
    """Wait until the child ends, or end it when the leash (the former standard input) ends."""
    told, telling = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(telling, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while not _has_ended(child):
        if leash in select.select([leash, told], [], [])[0]:
            os.kill(child, signal.SIGTERM)
            _wait_on(child, told)
            return
        with suppress(BlockingIOError):
            os.read(told, 4096)


def _wait_on(child: int, told: int) -> None:
    import time

    deadline = time.monotonic() + _TO_END
    while not _has_ended(child) and (left := deadline - time.monotonic()) > 0:
        if select.select([told], [], [], left)[0]:
            os.read(told, 4096)


def _has_ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _reap(child: int) -> int:
    """End every process that is left below this one; the orphans among them are its children."""
    result = 0
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:  # Some of the processes are still alive.
                for each in children():
                    with suppress(ProcessLookupError):
                        os.kill(each, signal.SIGKILL)
                pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return result
        if pid == child:
            result = os.waitstatus_to_exitcode(status)


def children() -> Iterator[int]:
    """Yield the processes whose parent this one is, except those that wait to be reaped."""
    me = os.getpid()
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            state, parent, *_ = file.read().rpartition(b")")[2].split()
            if int(parent) == me and state not in (b"Z", b"X"):
                yield int(name)


if __name__ == "__main__":
    main()
