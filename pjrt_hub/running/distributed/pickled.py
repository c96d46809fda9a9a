"""Pickles: what becomes of buffers and executables on their way to another process.

A buffer arrives as a numpy array, an executable as one of a client of its plugin there, a topology
as one of that plugin.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import IncompatiblePluginError, PjrtHubError
from pjrt_hub.running.executable import serialized

if TYPE_CHECKING:
    from pjrt_hub.running.buffer.buffer import Buffer
    from pjrt_hub.running.client.client import Client
    from pjrt_hub.running.client.plugin import Plugin
    from pjrt_hub.running.client.topology import Topology
    from pjrt_hub.running.executable.executable import Executable
    from pjrt_hub.running.executable.loaded_executable import LoadedExecutable

#: Loads a plugin where nobody did; itself pickled, so a function that its module can be asked for.
Reload = Callable[[], "Plugin"]

_clients: weakref.WeakValueDictionary[int, Client] = weakref.WeakValueDictionary()
_numbers = itertools.count()
#: The clients that unpickled executables needed, for the life of the process.
_kept: list[Client] = []
_opening = Lock()


def welcome(client: Client) -> None:
    """Makes a client one that unpickled executables may be loaded on."""
    _clients[next(_numbers)] = client


def of_buffer(buffer: Buffer, protocol: int) -> tuple[Any, ...]:
    """Serves `Buffer.__reduce_ex__`: the host's array, out of band from protocol 5 on."""
    import pickle

    import numpy

    value = buffer.to_numpy()
    array = numpy.ascontiguousarray(value)
    data: Any = array.reshape(-1).view(numpy.uint8)
    # The shape is the value's own: a contiguous array has at least one dimension.
    packed = pickle.PickleBuffer(data) if protocol >= 5 else data.tobytes()
    return to_array, (packed, array.dtype.name, value.shape)


def to_array(data: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """A numpy array over what was pickled of a buffer; read-only where the bytes are."""
    import ml_dtypes  # noqa: F401 - teaches numpy the names of the short types
    import numpy

    return numpy.ndarray(shape, numpy.dtype(dtype), data)


def of_executable(executable: LoadedExecutable) -> tuple[Any, ...]:
    """Serves `LoadedExecutable.__reduce__`: `serialize()`, its plugin, and the create options."""
    client = executable.client
    return to_executable, (executable.serialize(), client.plugin.reload, dict(client.options))


def of_executable_ahead_of_time(executable: Executable) -> tuple[Any, ...]:
    """Serves `Executable.__reduce__`: as above, for a client of whatever create options."""
    return to_executable, (executable.serialize(), executable.topology.reload, None)


def to_executable(
    blob: bytes, reload: Reload | None, options: Mapping[str, Any] | None
) -> LoadedExecutable:
    """Loads it on the oldest open client of its plugin with its options, else on a new one.

    The new one is kept for the life of the process, for everything that comes later.

    Raises:
        PjrtHubError: there is no such client, and none can be made.
    """
    guards, _ = serialized.read(blob)
    with _opening:  # so that two threads do not make a client each
        for client in _open_clients():
            if options in (None, client.options) and not guards.differences(client.guards):
                break
        else:
            client = _reloaded(reload, guards.platform, options).client(options)
            try:
                executable = client.load(blob)
            except BaseException:
                client.close()
                raise
            _kept.append(client)
            return executable
    return client.load(blob)


def of_topology(topology: Topology) -> tuple[Any, ...]:
    """Serves `Topology.__reduce__`: `serialize()`, and whose bytes these are."""
    return to_topology, (
        topology.serialize(),
        topology.reload,
        topology.platform_name,
        topology.api.sha256,
    )


def to_topology(data: bytes, reload: Reload | None, platform: str, sha256: str) -> Topology:
    """Makes it with the plugin of any open client that has the same library, else with a new one.

    Raises:
        PjrtHubError: there is no such plugin.
        IncompatiblePluginError: the plugin here has another library.
        UnsupportedByPluginError: the plugin cannot read topologies.
    """
    for client in _open_clients():
        if client.plugin.api.sha256 == sha256:
            return client.plugin.deserialize_topology(data)
    plugin = _reloaded(reload, platform, None)
    if plugin.api.sha256 != sha256:
        raise IncompatiblePluginError(
            f"the topology was pickled with the library {sha256!r}, here is {plugin.api.sha256!r}",
            need=sha256,
            have=plugin.api.sha256,
            hint="describe the machine again here, or install the plugin that described it",
        )
    return plugin.deserialize_topology(data)


def _open_clients() -> Iterator[Client]:
    """The oldest first."""
    return (client for _, client in sorted(_clients.items()) if not client.closed)


def _reloaded(reload: Reload | None, platform: str, options: Mapping[str, Any] | None) -> Plugin:
    if reload is None:
        wanted = "" if options is None else f" has the options {options!r} that it was pickled with"
        raise PjrtHubError(
            f"no open client of the plugin for {platform!r}{wanted or ' is here'}",
            hint="make one before unpickling, with that plugin; what belongs to a plugin that "
            "pjrt_hub.load() or client() gave finds it by itself",
        )
    return reload()
