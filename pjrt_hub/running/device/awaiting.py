"""Awaiting: how a task of asyncio or trio sleeps until a plugin's event fires.

Owns finding out which of the two runs, without importing one that nobody uses; anyio runs on
both. Must not know what an event stands for.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from typing import Any

Steps = Generator[Any, Any, None]


class Waiters:
    """The tasks that await one event. A cancelled task leaves nothing behind.

    There is no lock, because garbage collection may end a task's sleep in the middle of anything.
    """

    def __init__(self) -> None:
        self._wakes: dict[object, Callable[[], object]] = {}
        self._fired = False

    def fire(self) -> None:
        """Wake every task, on whatever threads their loops run; later ones do not sleep."""
        self._fired = True
        with contextlib.suppress(KeyError):
            while True:
                wake = self._wakes.popitem()[1]
                with contextlib.suppress(RuntimeError):  # The loop was closed, so no task waits.
                    wake()

    def sleep(self) -> Steps:
        """Suspend the running task of asyncio or trio until `fire`; elsewhere RuntimeError."""
        sleep, wake = _sleep_of_trio() if _in_trio() else _sleep_of_asyncio()
        key = object()
        self._wakes[key] = wake
        try:
            if not self._fired:  # `fire` may have run before `wake` was listed.
                yield from sleep()
        finally:  # The task may be cancelled, or its loop may end.
            self._wakes.pop(key, None)

    def __len__(self) -> int:
        return len(self._wakes)


def checkpoint() -> Steps:
    """Yield for an await that need not sleep, because under trio every await lets others run."""
    if _in_trio():
        yield from sys.modules["trio"].lowlevel.checkpoint().__await__()


def _in_trio() -> bool:
    """Return whether a task of trio runs; in guest mode, both trio and asyncio have a loop."""
    trio, asyncio = sys.modules.get("trio"), sys.modules.get("asyncio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    try:
        return asyncio is None or asyncio.current_task() is None
    except RuntimeError:  # No loop of asyncio is running.
        return True


def _sleep_of_trio() -> tuple[Callable[[], Steps], Callable[[], object]]:
    trio = sys.modules["trio"]
    ready, token = trio.Event(), trio.lowlevel.current_trio_token()
    return lambda: ready.wait().__await__(), lambda: token.run_sync_soon(ready.set)


def _sleep_of_asyncio() -> tuple[Callable[[], Steps], Callable[[], object]]:
    import asyncio  # The import takes 20 ms, and most programs never await.

    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not ready.done():
            ready.set_result(None)

    return ready.__await__, lambda: loop.call_soon_threadsafe(settle)
