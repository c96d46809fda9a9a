"""Pickles: what becomes of executables and topologies on their way to another process.

An executable is loaded there on a client of its plugin; its plugin makes a topology again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import IncompatiblePluginError, PjrtHubError
from pjrt_hub.running.capi import handle
from pjrt_hub.running.executable import serialized

#: Loads the `Plugin` in the other process; it is pickled, so it must be importable by its name.
Reload = Callable[[], Any]

#: The clients that were made for unpickled executables, kept for the life of the process.
_kept: list[Any] = []
_opening = Lock()


def to_executable(blob: bytes, reload: Reload | None, options: Mapping[str, Any] | None) -> Any:
    """Load an executable on the oldest open client with its plugin and options, or on a new one."""
    guards = serialized.parse(blob).guards
    with _opening:  # Without the lock, two threads could each make a client.
        for client in _open_clients():
            here = serialized.Guards.of(client)
            if options in (None, client.options) and not guards.differences(here):
                break
        else:
            client = _reload(reload, guards.platform, options).client(options)
            try:
                executable = client.load(blob)
            except BaseException:
                client.close()
                raise
            _kept.append(client)
            return executable
    return client.load(blob)


def to_topology(data: bytes, reload: Reload | None, platform: str, sha256: str) -> Any:
    """Make a topology with an open client's plugin of the same library, else with a loaded one."""
    for client in _open_clients():
        if client.plugin.api.sha256 == sha256:
            return client.plugin.deserialize_topology(data)
    plugin = _reload(reload, platform, None)
    if plugin.api.sha256 != sha256:
        raise IncompatiblePluginError(
            f"the topology was pickled with the library {sha256!r}, here is {plugin.api.sha256!r}",
            need=sha256,
            have=plugin.api.sha256,
            hint="describe the machine again here, or install the plugin that described it",
        )
    return plugin.deserialize_topology(data)


def _open_clients() -> list[Any]:
    """Return the open clients of this process; this module must not import their class `Client`."""
    return [client for _, client in sorted(handle.clients.items()) if not client.closed]


def _reload(reload: Reload | None, platform: str, options: Mapping[str, Any] | None) -> Any:
    if reload is None:
        wanted = "" if options is None else f" has the options {options!r} that it was pickled with"
        raise PjrtHubError(
            f"no open client of the plugin for {platform!r}{wanted or ' is here'}",
            hint="make one before unpickling, with that plugin; what belongs to a plugin that "
            "pjrt_hub.load() or client() gave finds it by itself",
        )
    return reload()
