"""From a plugin's thread to Python (layer 1): every C -> Python callback goes this way.

`when_ready` registers a C callback on an event; a plugin's thread queues a token and wakes a pipe,
without the GIL; the dispatcher thread takes the token and runs the Python callable. So no callback
can raise into C, run during interpreter exit, or deadlock on the GIL.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable

from pjrt_hub._capi import hotpath

_waiting: dict[int, Callable[[], None]] = {}
_tokens = itertools.count(1)
_lock = threading.Lock()
_write_end: int | None = None


def when_ready(api: int, event: int, callback: Callable[[], None]) -> None:
    """Calls `callback` on the dispatcher thread once a `PJRT_Event` is ready.

    The event may be destroyed at once; the callback still runs (`PJRT_Event_OnReady`). What the
    callback refers to stays alive until then.

    Args:
        api: the address of the `PJRT_Api`.
        event: the address of the event.
        callback: an exception in it goes to `sys.unraisablehook`.
    """
    token = next(_tokens)
    _waiting[token] = callback
    try:
        hotpath.notify(api, event, _pipe(), token)
    except BaseException:
        del _waiting[token]
        raise


def _pipe() -> int:
    global _write_end
    with _lock:
        if _write_end is None:
            read_end, write_end = os.pipe()
            os.set_blocking(write_end, False)  # a full pipe already holds a wake-up
            threading.Thread(
                target=_dispatch, args=(read_end,), name="pjrt-hub events", daemon=True
            ).start()
            _write_end = write_end
        return _write_end


def _dispatch(read_end: int) -> None:
    while os.read(read_end, 4096):
        for token in hotpath.notified():
            hotpath.run(_waiting.pop(token))  # no name holds on to it until the next one comes


def _after_fork() -> None:
    """The dispatcher does not exist in the child, where every object refuses anyway."""
    global _write_end, _lock
    _waiting.clear()
    _lock = threading.Lock()
    _write_end = None


os.register_at_fork(after_in_child=_after_fork)
