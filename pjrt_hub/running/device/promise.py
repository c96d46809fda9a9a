"""Promises: results that a plugin waits for and Python gives, once, such as an event's completion.

Owns giving up: a promise that nobody keeps fails with CANCELLED when it dies or its client
closes, because a plugin would wait for it for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from pjrt_hub.errors import CancelledError, ClosedError, PjrtError
from pjrt_hub.running.capi import hotpath
from pjrt_hub.running.capi.handle import ClientHandle
from pjrt_hub.running.device.device import refuse_pickle
from pjrt_hub.running.device.event import Event

Answer = Callable[[int, str, int], object]


class Promise(hotpath.Owned):
    """Something that a plugin waits for, `closed` once `fulfill` keeps or `fail` breaks it."""

    client: ClientHandle

    __slots__ = ("__weakref__",)

    def __init__(self, client: ClientHandle, answer: Answer) -> None:
        """Promise an answer: a status code with its message, or a value with code 0."""

        def settle(
            code: int = CancelledError.code,
            message: str = "nobody kept the promise",
            value: int = 0,
        ) -> None:
            answer(code, message, value)

        self._bind(client, settle)

    def fail(self, error: PjrtError) -> None:
        """Break the promise: everything that waits for it gets this error.

        Args:
            error: of a class of `pjrt_hub.errors`; its code and message are passed on.

        Raises:
            ClosedError: the promise was kept or broken before.
        """
        self._answer(*read_error(error), 0)

    def _answer(self, code: int, message: str, value: int) -> None:
        with self.client._in_call():
            settle = self._take()
            if settle is None:
                raise ClosedError("the promise was kept or broken before")
            settle(code, message, value)

    __reduce__ = refuse_pickle

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'closed' if self.closed else 'open'}>"


class SettableEvent(Event):
    """An event that Python sets (`PJRT_Event_Create`).

    One that dies or is closed with its client before it is set fails with CANCELLED.
    """

    __slots__ = ("_promise",)
    __module__ = "pjrt_hub"

    def __init__(self, client: ClientHandle) -> None:
        """Make an event that is not set.

        Args:
            client: the client that it belongs to.

        Raises:
            UnsupportedByPluginError: the plugin is older than API 0.89.
        """
        call = client.api.call
        with client._in_call():
            client.api.require("PJRT_Event_Set")
            address = call("PJRT_Event_Create")
            self._bind(client, address)

            def answer(code: int, message: str, _: int) -> None:
                call("PJRT_Event_Set", event=address, error_code=code, error_message=message)

            self._promise = Promise(client, answer)

    def set(self, error: PjrtError | None = None) -> None:
        """Complete the event, once (`PJRT_Event_Set`).

        Args:
            error: what waiting for the event raises; its code and message arrive.

        Raises:
            ClosedError: the event was set before.
        """
        code, message = (0, "") if error is None else read_error(error)
        self._promise._answer(code, message, 0)


def read_error(error: PjrtError) -> tuple[int, str]:
    """Return code and message of an error for a plugin; TypeError if it is not a PjrtError."""
    if not isinstance(error, PjrtError):
        raise TypeError(f"{error!r} is not a PjrtError: errors.CancelledError('why') is one")
    return error.code, error.message
