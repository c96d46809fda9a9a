"""Custom partitioners: how custom calls are split over devices (Custom_Partitioner).

Shapes pass as serialized ShapeProto and shardings as serialized OpSharding, which XLA's own tools
read; nothing here looks inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import AlreadyExistsError
from pjrt_hub.running.capi import hotpath
from pjrt_hub.running.capi.library import Api
from pjrt_hub.running.capi.status import failure

_registering = Lock()
_registered: set[tuple[int, str]] = set()
#: Addresses of the plugins whose compilations depend on partitioners of this process.
_used: set[int] = set()


class Array(NamedTuple):
    """An argument or a result of a custom call.

    Attributes:
        shape: a ShapeProto, serialized; before the partitioning.
        sharding: an OpSharding, serialized; None if none is set.
    """

    shape: bytes
    sharding: bytes | None


class Partitioner(Protocol):
    """The object that `register` takes. It is called on a thread of the plugin, which waits."""

    def partition(
        self, arguments: Sequence[Array], result: Array, backend_config: bytes
    ) -> tuple[bytes, Sequence[bytes], bytes]:
        """Return what each device runs, as StableHLO, and the shardings of arguments and result.

        Args:
            arguments: of the call, with their shardings.
            result: of the call, with its sharding.
            backend_config: the call's own bytes.
        """

    def infer_sharding(
        self, arguments: Sequence[Array], result_shape: bytes, backend_config: bytes
    ) -> bytes | None:
        """Infer the result's sharding from the arguments'; None if they imply none.

        Args:
            arguments: of the call, with their shardings.
            result_shape: a ShapeProto, serialized.
            backend_config: the call's own bytes.
        """

    def propagate_user_sharding(
        self, result_shape: bytes, result_sharding: bytes, backend_config: bytes
    ) -> bytes:
        """Return the sharding of the result, given that of one of its users.

        Args:
            result_shape: a ShapeProto, serialized.
            result_sharding: an OpSharding, serialized: the user's.
            backend_config: the call's own bytes.
        """


def register(
    api: Api, name: str, partitioner: Partitioner, *, replicated_side_effects: bool = False
) -> None:
    """Register how to partition the custom call `name` (`PJRT_Register_Custom_Partitioner`).

    An exception in `partitioner` becomes the compilation's error. A plugin never forgets one.

    Args:
        api: the plugin's function table.
        name: of the target of `stablehlo.custom_call`.
        partitioner: asked while programs of several partitions are compiled.
        replicated_side_effects: a call with side effects may run on every device.

    Raises:
        UnsupportedByPluginError: the plugin has no such extension.
        AlreadyExistsError: the name has a partitioner.
        ValueError: there is no name.
        TypeError: the partitioner lacks a method.
        PjrtError: the plugin refuses it.
    """
    if not name:
        raise ValueError("there is no name")
    for method in ("partition", "infer_sharding", "propagate_user_sharding"):
        if not callable(getattr(partitioner, method, None)):
            raise TypeError(f"{partitioner!r} has no method {method}")
    function = "PJRT_Register_Custom_Partitioner"
    node = api.extension("Custom_Partitioner")
    node.require(function)
    with _registering:
        if (api.address, name) in _registered:  # The plugin would drop the first one.
            raise AlreadyExistsError(
                f"the custom call {name!r} has a partitioner already", function=function
            )
        callbacks = hotpath.custom_partitioner(_guard(name, partitioner), replicated_side_effects)
        node.call(function, name=name, callbacks=callbacks)
        _registered.add((api.address, name))
        _used.add(api.address)


def is_used(api: Api) -> bool:
    """Check whether compilations of a plugin in this process depend on partitioners from here.

    Args:
        api: the plugin's function table.
    """
    return api.address in _used


def register_batch_partitionable(api: Api, name: str) -> None:
    """Allow splitting a call along leading dimensions (`PJRT_Register_Batch_Partitionable`).

    Args:
        api: the plugin's function table.
        name: of the target of `stablehlo.custom_call`.

    Raises:
        UnsupportedByPluginError: the plugin's node has less than 40 bytes (older than 0.81).
        ValueError: there is no name.
    """
    if not name:
        raise ValueError("there is no name")
    api.extension("Custom_Partitioner").call("PJRT_Register_Batch_Partitionable", name=name)
    _used.add(api.address)


def _guard(name: str, partitioner: Partitioner) -> Callable[..., object]:
    """Return the function that C calls; it never raises: an error is a code and text."""

    def ask(what: str, *given: Any) -> object:
        try:
            if what == "partition":
                arguments, result, config = given
                code, shardings, whole = partitioner.partition(
                    [Array(*each) for each in arguments], Array(*result), config
                )
                if len(shardings) != len(arguments):
                    raise ValueError(
                        f"it gave {len(shardings)} shardings for {len(arguments)} arguments"
                    )
                return _bytes(code), [_bytes(each) for each in shardings], _bytes(whole)
            if what == "infer":
                arguments, shape, config = given
                found = partitioner.infer_sharding(
                    [Array(*each) for each in arguments], shape, config
                )
                return None if found is None else _bytes(found)
            return _bytes(partitioner.propagate_user_sharding(*given))
        except BaseException as exc:
            return failure(exc, name, 1)

    return ask


def _bytes(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise TypeError(f"it gave {type(value).__name__} where bytes belong")
    return value
