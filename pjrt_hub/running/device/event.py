"""Events: something that becomes ready, with or without an error.

Owns waiting, awaiting and callbacks; must not know what an event stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from pjrt_hub.errors import PjrtError
from pjrt_hub.running.capi import callbacks, hotpath
from pjrt_hub.running.device import awaiting
from pjrt_hub.running.device.promise import Promise, checked_error

if TYPE_CHECKING:
    from pjrt_hub.running.capi.handle import ClientHandle


class Event(hotpath.Event):
    """A `PJRT_Event`: work that was started and is done at some point.

    Nothing waits for an event unless asked: `event.wait()`, `await event`, or a callback.
    """

    client: Any  # a `Client`, which stands above
    _waiters: awaiting.Waiters

    __slots__ = ("__weakref__", "_waiters")

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it is ready; Ctrl-C ends the wait (`PJRT_Event_OnReady`).

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            TimeoutError: it did not become ready in time; the work goes on.
            PjrtError: the work failed.
            ClosedError: the client was closed.
        """
        if not self._wait(timeout):
            raise TimeoutError(f"not ready after {timeout:g} s; the work goes on")

    def add_done_callback(self, callback: Callable[[Event], None]) -> None:
        """Call `callback(event)` on pjrt-hub's own thread once it is ready.

        The order of several callbacks is not defined. An exception in one goes to
        `sys.unraisablehook`.

        Args:
            callback: takes this event.

        Raises:
            TypeError: it cannot be called.
            ClosedError: the client was closed.
        """
        if not callable(callback):
            raise TypeError(f"the callback is {callback!r}, which cannot be called")
        self.is_ready()  # raises where it is no event any more
        with self.client._in_call():
            callbacks.when_ready(self.client.api.address, self._address, lambda: callback(self))

    def __await__(self) -> Generator[Any, Any, None]:
        """Suspends the running task of asyncio or trio, also by anyio, until it is ready.

        Cancelling the task ends the waiting; the work goes on.

        Raises:
            PjrtError: the work failed.
            ClosedError: the client was closed.
            RuntimeError: it is awaited outside of both.
        """
        if self.is_ready():
            yield from awaiting.checkpoint()
        else:
            yield from self._awaited().sleep()
        self.wait(0)

    def _awaited(self) -> awaiting.Waiters:
        """The tasks that await it: the plugin is asked once to tell them, however many come."""
        try:
            return self._waiters
        except AttributeError:  # nobody awaited it yet
            waiters = awaiting.Waiters()
        with self.client._in_call():
            callbacks.when_ready(self.client.api.address, self._address, waiters.fire)
        self._waiters = waiters
        return waiters

    def __repr__(self) -> str:
        if not self._address or self.client.closed:
            return "<Event closed>"
        return f"<Event {'ready' if self.is_ready() else 'pending'}>"


class SettableEvent(Event):
    """An event that Python sets (`PJRT_Event_Create`), made by `Client.create_event`.

    One that dies or is closed with its client before it is set fails with CANCELLED.
    """

    __slots__ = ("_promise",)

    def __init__(self, client: ClientHandle) -> None:
        call = client.api.call
        with client._in_call():
            client.api.require("PJRT_Event_Set")
            address = call("PJRT_Event_Create")
            self._bind(client, address)

            def answer(code: int, message: str, _: int) -> None:
                call("PJRT_Event_Set", event=address, error_code=code, error_message=message)

            self._promise = Promise(client, answer)

    def set(self, error: PjrtError | None = None) -> None:
        """Complete it, once (`PJRT_Event_Set`).

        Args:
            error: what waiting for it raises: its code and message arrive.

        Raises:
            ClosedError: it was set before.
        """
        code, message = (0, "") if error is None else checked_error(error)
        self._promise._answer(code, message, 0)
