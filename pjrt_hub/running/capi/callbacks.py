"""From a plugin's thread to Python: every C -> Python callback goes this way.

A plugin's thread queues a callable and wakes a pipe, without the GIL; the dispatcher thread takes
it and calls it. So no callback can raise into C, run during interpreter exit, or deadlock.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable

from pjrt_hub.base.fork import Lock
from pjrt_hub.running.capi import hotpath

_lock = Lock()
_started = False


def when_ready(api: int, event: int, callback: Callable[[], object]) -> None:
    """Call `callback` on the dispatcher thread once a `PJRT_Event` is ready.

    The event may be destroyed at once; the callback still runs (`PJRT_Event_OnReady`). What the
    callback refers to stays alive until then; an exception in it goes to `sys.unraisablehook`.
    """
    start()
    hotpath.notify(api, event, callback)


def keep(api: int, event: int, kept: object) -> None:
    """Keep an object alive until a `PJRT_Event` is ready; the event may be destroyed at once."""
    start()
    hotpath.keep(api, event, kept)


def deleter(callback: Callable[[], object], kept: object = None) -> tuple[int, int]:
    """Make a C function `void (void*, void* argument)` and its argument, for one call.

    That call makes the dispatcher thread call `callback`. `kept` stays alive until then.
    """
    start()
    return hotpath.deleter(callback, kept)


def start() -> None:
    """Start the dispatcher thread if there is none; only programs with callbacks need it."""
    global _started
    if _started:
        return
    with _lock:
        if not _started:
            read_end, write_end = os.pipe()
            os.set_blocking(write_end, False)  # A full pipe already holds a wake-up.
            hotpath.wake(write_end)
            threading.Thread(
                target=_dispatch, args=(read_end,), name="pjrt-hub events", daemon=True
            ).start()
            _started = True


def _dispatch(read_end: int) -> None:
    while os.read(read_end, 4096):
        hotpath.dispatch()


@atexit.register
def _end() -> None:
    """Drop callbacks that are not due yet, so that what they refer to does not outlive Python."""
    hotpath.end()


def _after_fork() -> None:
    """Forget the dispatcher thread, which the child lacks; all objects refuse their use there."""
    global _started
    _started = False


os.register_at_fork(after_in_child=_after_fork)
