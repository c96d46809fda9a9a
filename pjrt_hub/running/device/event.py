"""Events: something that becomes ready, with or without an error.

Owns waiting, awaiting and callbacks; must not know what an event stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from pjrt_hub.running.capi import callbacks, hotpath
from pjrt_hub.running.device.device import refuse_pickle

if TYPE_CHECKING:
    from pjrt_hub.running.device import awaiting


class Event(hotpath.Event):
    """The completion of work that a device does in the background (`PJRT_Event`).

    Nothing waits for an event unless asked: `event.wait()`, `await event`, or a callback.
    """

    __module__ = "pjrt_hub"
    client: Any  # This is a `Client`, which this module may not import.
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

    def done(self) -> bool:
        """Return whether it is ready, failed included, as futures do: the same as `is_ready`."""
        return bool(self.is_ready())

    def result(self, timeout: float | None = None) -> None:
        """Wait until it is ready, as futures do: the same as `wait`.

        Args:
            timeout: seconds; None waits for ever.
        """
        self.wait(timeout)

    def add_done_callback(self, callback: Callable[[Event], None]) -> None:
        """Call `callback(event)` on pjrt-hub's own thread once it is ready, failed included.

        It is called once, even if the event was ready before. The order of several callbacks is
        not defined. An exception in one goes to `sys.unraisablehook`.

        Args:
            callback: takes this event.

        Raises:
            TypeError: the callback cannot be called.
            ClosedError: the client was closed.
        """
        if not callable(callback):
            raise TypeError(f"the callback is {callback!r}, which cannot be called")
        self.is_ready()  # This raises if the event was closed.
        with self.client._in_call():
            callbacks.when_ready(self.client.api.address, self.address, lambda: callback(self))

    def __await__(self) -> Generator[Any, Any, None]:
        """Suspend the running task of asyncio or trio (or anyio on them) until the event is ready.

        Cancelling the task ends the waiting; the work goes on. RuntimeError: there is no such task.
        """
        if self.is_ready():
            from pjrt_hub.running.device.awaiting import checkpoint

            yield from checkpoint()
        else:
            yield from self._sleepers().sleep()
        self.wait(0)

    def _sleepers(self) -> awaiting.Waiters:
        """Return the tasks that await the event; the plugin gets one callback for all of them."""
        try:
            return self._waiters
        except AttributeError:  # No task has awaited the event yet.
            from pjrt_hub.running.device.awaiting import Waiters

            waiters = Waiters()
        with self.client._in_call():
            callbacks.when_ready(self.client.api.address, self.address, waiters.fire)
        self._waiters = waiters
        return waiters

    __reduce__ = refuse_pickle

    def __repr__(self) -> str:
        if not self.address or self.client.closed:
            return "<Event closed>"
        return f"<Event {'ready' if self.is_ready() else 'pending'}>"


def event_of_work(client: Any, address: int, used: object) -> Event:
    """Return the event of some work, and keep what the work uses alive until it is done."""
    try:
        callbacks.keep(client.api.address, address, used)
    except BaseException:  # No thread can be started, but the work goes on.
        Event.of(client, address, used)
        raise
    return Event.of(client, address)


def await_work(client: Any, address: int, used: object) -> None:
    """Wait for some work; if the wait is interrupted, what the work uses stays until it is done."""
    event = Event.of(client, address, used)
    try:
        event.wait()
    except BaseException:
        callbacks.start()  # The dispatcher thread releases `used`.
        raise
