"""Exit: how open clients end with Python, and what becomes of work that outlives it.

A plugin's threads must not outlive what they work on: clients are closed while Python still runs.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import signal
import sys
import threading
import time

from pjrt_hub.running.capi import handle, hotpath

#: The seconds that native calls of other threads may take to return; waits end at once.
_CALLS_SECONDS = 1.0
#: The seconds that work may take after an interrupt, such as Ctrl-C, ended the wait for it.
_ABANDONED_SECONDS = 0.25
_PAUSE_SECONDS = 0.001


@atexit.register
def _end() -> None:
    """Close open clients, and wait for running programs unless Ctrl-C ended such a wait before.

    Unfinished work is left to the end of the process. Ctrl-C here ends it by the signal SIGINT.
    """
    hotpath.ends()
    closed = threading.Event()

    def close() -> None:
        try:
            for client in tuple(handle.clients.values()):
                _close(client)
        finally:
            closed.set()

    seconds = _ABANDONED_SECONDS if _was_interrupted() else None
    try:
        hotpath.aside(close)
        if not closed.wait(seconds) or _calls_are_under_way():
            hotpath.leave()
        if not hotpath.upcalls_end(math.inf if seconds is None else seconds):
            _die_of_interrupt()  # A plugin still waits for a Python function.
    except KeyboardInterrupt:
        _die_of_interrupt()
    except BaseException:
        hotpath.leave()
        raise


def _close(client: hotpath.Client) -> None:
    client._close()
    last = time.monotonic() + _CALLS_SECONDS
    while client._is_freeing or (client._num_calls and time.monotonic() < last):
        time.sleep(_PAUSE_SECONDS)
    if client.address:  # Arrays share the client's memory, or a thread is in a call.
        hotpath.leave()


def _was_interrupted() -> bool:
    last = getattr(sys, "last_type", None)
    return hotpath.interrupted() or (last is not None and issubclass(last, KeyboardInterrupt))


def _calls_are_under_way() -> bool:
    """Return whether another thread may be inside a plugin, perhaps to make a client."""
    ours = ("pjrt-hub events", "pjrt_hub.native")
    threads = (thread for thread in threading.enumerate() if thread.name not in ours)
    return any(thread is not threading.current_thread() for thread in threads)


def _die_of_interrupt() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)


def _after_fork() -> None:
    """Leave plugins' static destructors to the parent: they may need threads that it alone has."""
    if handle.clients:
        hotpath.leave()
    handle.clients.clear()


os.register_at_fork(after_in_child=_after_fork)
