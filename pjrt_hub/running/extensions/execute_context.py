"""Execute contexts: what the custom calls of an execution share.

Owns a context's lifetime: the plugin needs it until the last execution with it has ended.
"""

from __future__ import annotations

from functools import partial

from pjrt_hub.errors import ClosedError
from pjrt_hub.running.capi.handle import ClientHandle, Closing, free_with
from pjrt_hub.running.capi.library import Api


class ExecuteContext(Closing):
    """What custom calls of an execution share, by `ExecuteOptions(context=...)`.

    It may be closed or forgotten at any time: running executions keep what they need. Also a
    context manager.

    Attributes:
        client: the client whose plugin made it.
        closed: whether `close` was called.
    """

    def __init__(self, client: ClientHandle) -> None:
        """Make a context (`PJRT_ExecuteContext_Create`, 0.52).

        Raises:
            UnimplementedError: the plugin has no contexts (libtpu).
        """
        self.client = client
        self._native: _Native | None = _Native(
            client.api, client._call("PJRT_ExecuteContext_Create")
        )

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._native is None

    def close(self) -> None:
        """Release the context, which is freed after the executions with it; may be called again."""
        self._native = None

    def keep(self, thing: object) -> None:
        """Keep an object alive for as long as the plugin may use this context.

        Args:
            thing: whatever a plugin's user data points into.
        """
        self.native().kept.append(thing)

    @property
    def address(self) -> int:
        """The address of the `PJRT_ExecuteContext`."""
        return self.native().address

    def native(self) -> _Native:
        """Return the native context, which lives as long as anything refers to it.

        Raises:
            ClosedError: the context is closed.
        """
        if self._native is None:
            raise ClosedError("the execute context is closed")
        return self._native

    def __repr__(self) -> str:
        return f"<ExecuteContext {'closed' if self.closed else self.client.platform_name}>"


class _Native:
    """The native context, destroyed with the last reference to it."""

    def __init__(self, api: Api, address: int) -> None:
        self.address = address
        self.kept: list[object] = []
        # What the context keeps must outlive it, so the finalizer refers to the list as well.
        destroy = partial(_destroy, api, self.kept)
        free_with(self, destroy, "PJRT_ExecuteContext_Destroy", context=address)


def _destroy(api: Api, _kept: list[object], function: str, **handle: int) -> None:
    api.call(function, **handle)
