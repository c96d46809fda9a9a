"""C functions that count their calls, for plugins that might not call them exactly once.

The compiled callbacks rely on a plugin's promise of one call. These functions accept any number of
calls, at any time, to check that promise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pjrt_hub.errors import PjrtError
from pjrt_hub.running.capi._pjrt import ffi
from pjrt_hub.running.capi.status import raise_error

_SECONDS = 5.0  # The seconds that a required call may take.
_MOMENT = 0.1  # The seconds to wait for surplus calls.

#: No counter is ever freed, because a faulty plugin may call one later than it should.
_kept: list[CallCounter] = []


class CallCounter:
    """A C function `void (void*, void*)` for events and deleters; each call does `work`."""

    def __init__(self, work: Callable[[], object] = lambda: None) -> None:
        self._work = work
        self._changed = threading.Condition()
        self._calls: list[int] = []
        self._function = ffi.callback("void(void*, void*)", self._count)
        self.address = int(ffi.cast("uintptr_t", self._function))
        _kept.append(self)

    def _count(self, first: Any, _: Any) -> None:
        self._work()
        with self._changed:
            self._calls.append(int(ffi.cast("uintptr_t", first)))
            self._changed.notify_all()

    @property
    def calls(self) -> list[int]:
        """The first argument of each call so far."""
        with self._changed:
            return list(self._calls)

    def wait_first(self) -> None:
        """Wait for the first call, but only as long as a required call may take."""
        with self._changed:
            self._changed.wait_for(lambda: self._calls, _SECONDS)

    def wait(self, expected: int = 1) -> list[int]:
        """Wait for the expected calls, then a moment for a surplus one, and return `calls`."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._calls) >= expected, _SECONDS)
            self._changed.wait_for(lambda: len(self._calls) > expected, _MOMENT)
        return self.calls


def take_error(api: int, error: int) -> PjrtError | None:
    """Read and free a `PJRT_Error*` that a callback was given; None for NULL."""
    if not error:
        return None
    try:
        raise_error(api, error, "")
    except PjrtError as exc:
        return exc
