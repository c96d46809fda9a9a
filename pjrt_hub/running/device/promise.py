"""Promises: what a plugin waits for and Python gives, once.

Owns the giving up: a promise that nobody keeps fails with CANCELLED when it dies or its client
closes, because a plugin would wait for it for ever. Must not know what is promised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pjrt_hub.errors import CancelledError, ClosedError, PjrtError
from pjrt_hub.running.capi import hotpath

if TYPE_CHECKING:
    from pjrt_hub.running.capi.handle import ClientHandle

Answer = Callable[[int, str, int], object]


class Promise(hotpath.Owned):
    """Something that a plugin waits for; kept with `fulfill`, or broken with `fail`.

    Attributes:
        client: the client that it belongs to.
        closed: whether it was kept, broken, or closed with its client.
    """

    client: ClientHandle

    __slots__ = ("__weakref__",)

    def __init__(self, client: ClientHandle, answer: Answer) -> None:
        """Promises an answer: a status code with its message, or a value with code 0."""

        def settle(
            code: int = CancelledError.code,
            message: str = "nobody kept the promise",
            value: int = 0,
        ) -> None:
            answer(code, message, value)

        self._bind(client, settle)

    def fail(self, error: PjrtError) -> None:
        """Breaks it: whoever waits gets this error.

        Args:
            error: its code and message arrive; a class of `pjrt_hub.errors` for the code.

        Raises:
            ClosedError: it was kept or broken before.
        """
        self._answer(*checked_error(error), 0)

    def _answer(self, code: int, message: str, value: int) -> None:
        with self.client._in_call():
            settle = self._take()
            if settle is None:
                raise ClosedError("the promise was kept or broken before")
            settle(code, message, value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'closed' if self.closed else 'open'}>"


def checked_error(error: PjrtError) -> tuple[int, str]:
    """The code and message of an error that is given to a plugin.

    Raises:
        TypeError: it is no PjrtError.
    """
    if not isinstance(error, PjrtError):
        raise TypeError(f"{error!r} is no PjrtError: errors.CancelledError('why') is one")
    return error.code, error.message
