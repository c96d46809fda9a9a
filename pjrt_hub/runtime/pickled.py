"""Pickles (layer 2): what becomes of buffers and executables on their way to another process.

A buffer arrives as a numpy array, an executable as one of a client of its plugin there.
"""

from __future__ import annotations

import itertools
import pickle
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pjrt_hub.errors import PjrtHubError
from pjrt_hub.runtime import serialized

if TYPE_CHECKING:
    from pjrt_hub.runtime.buffer import Buffer
    from pjrt_hub.runtime.client import Client
    from pjrt_hub.runtime.loaded_executable import LoadedExecutable

#: Makes a client where there is none, from create options; itself pickled, so a name of a module.
Reopen = Callable[[Mapping[str, Any]], "Client"]

_clients: weakref.WeakValueDictionary[int, Client] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def welcome(client: Client) -> None:
    """Makes a client one that unpickled executables may be loaded on."""
    _clients[next(_numbers)] = client


def of_buffer(buffer: Buffer, protocol: int) -> tuple[Any, ...]:
    """Serves `Buffer.__reduce_ex__`: the host's array, out of band from protocol 5 on."""
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
    """Serves `LoadedExecutable.__reduce__`: `serialize()`, and how to make a client for it."""
    client = executable.client
    return to_executable, (executable.serialize(), client.plugin.reopen, dict(client.options))


def to_executable(
    blob: bytes, reopen: Reopen | None, options: Mapping[str, Any]
) -> LoadedExecutable:
    """Loads it on the oldest open client of its plugin with its options, else on a new one.

    The new one is kept for the life of the process, for everything that comes later.

    Raises:
        PjrtHubError: there is no such client, and none can be made.
    """
    guards, _ = serialized.read(blob)
    for _, client in sorted(_clients.items()):
        if client.closed or client.options != options or guards.differences(client.guards):
            continue
        return client.load(blob)
    if reopen is None:
        raise PjrtHubError(
            f"no open client of the plugin for {guards.platform!r} has the options {options!r} "
            "that the executable was pickled with",
            hint="make one before unpickling, with that plugin",
        )
    return reopen(options).load(blob)
