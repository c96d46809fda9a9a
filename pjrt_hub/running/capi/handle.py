"""Handles: native objects as whatever belongs to them sees them: an address, and how it is called.

Helpers are typed on these and never on `Client`: what a client hands out need not know it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from pjrt_hub.base.fork import cached_property
from pjrt_hub.running.capi import hotpath
from pjrt_hub.running.capi.library import Api


class Handle(Protocol):
    """A client or a topology."""

    @property
    def api(self) -> Api:
        """The function table of its plugin."""

    @property
    def _address(self) -> int: ...

    def _in_call(self) -> AbstractContextManager[object]: ...


class ExecutableHandle(Protocol):
    """A compiled program, loaded or not."""

    @property
    def _api(self) -> Api: ...

    def _viewed(self) -> AbstractContextManager[int]: ...


class ClientHandle(hotpath.Client):
    """A client, without its devices.

    Attributes:
        api: the plugin's function table.
        platform_name: "cpu", "cuda", "tpu", ... (`PJRT_Client_PlatformName`).
    """

    api: Api
    platform_name: str
    _on_host: bool

    @property
    def guards(self) -> Any:
        """What an executable must have been compiled with to be loaded here, a `Guards`."""
        raise NotImplementedError

    @cached_property
    def platform_version(self) -> str:
        """The plugin's own words (`PJRT_Client_PlatformVersion`)."""
        return str(self._ask("PJRT_Client_PlatformVersion").decode())

    def _ask(self, function: str) -> Any:
        return self._call(function, client=self._address)
