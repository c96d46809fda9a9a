"""Plugin callbacks: what a plugin announces by itself (extension Callback).

Owns what the callbacks see; must not know what is done about it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, overload

from pjrt_hub.errors import PjrtError
from pjrt_hub.running.capi import callbacks, hotpath, table, upcall
from pjrt_hub.running.capi.call import Struct
from pjrt_hub.running.capi.status import error_class
from pjrt_hub.running.device.promise import read_error

if TYPE_CHECKING:
    from pjrt_hub.running.capi.handle import ClientHandle

_TYPES = table.ENUMS["PJRT_Callback_Type"]
_FAILURES = table.ENUMS["PJRT_Callback_Tpu_SliceFailureType"]


class CallbackType(IntEnum):
    """What a plugin announces (`PJRT_Callback_Type`)."""

    TPU_SLICE_BUILDER = _TYPES["PJRT_Callback_Type_Tpu_SliceBuilder"]
    PREFATAL = _TYPES["PJRT_Callback_Type_Prefatal"]


class SliceFailure(IntEnum):
    """Why a TPU slice failed (`PJRT_Callback_Tpu_SliceFailureType`)."""

    UNKNOWN = _FAILURES["SLICE_FAILURE_UNKNOWN"]
    INIT_ERROR = _FAILURES["SLICE_FAILURE_INIT_ERROR"]
    WORKER_UNAVAILABLE = _FAILURES["SLICE_FAILURE_WORKER_UNAVAILABLE"]
    FLAPPING_TASK_ERROR = _FAILURES["SLICE_FAILURE_FLAPPING_TASK_ERROR"]
    SW_INJECT_ERROR = _FAILURES["SLICE_FAILURE_SW_INJECT_ERROR"]
    CHIP_DRIVER_ERROR = _FAILURES["SLICE_FAILURE_CHIP_DRIVER_ERROR"]


@overload
def register_callback(
    client: ClientHandle,
    type: Literal[CallbackType.PREFATAL],
    callback: Callable[[PjrtError], object],
) -> None: ...


@overload
def register_callback(
    client: ClientHandle,
    type: Literal[CallbackType.TPU_SLICE_BUILDER],
    callback: Callable[[SliceFailure | int], object],
) -> None: ...


def register_callback(
    client: ClientHandle, type: CallbackType, callback: Callable[[Any], object]
) -> None:
    """Register a function for the plugin's announcements (`PJRT_Callback_RegisterCallback`).

    It runs on a thread of the plugin, which waits for it. An exception goes to
    `sys.unraisablehook`. A plugin never forgets it: it lives as long as the process.

    Args:
        client: of the plugin.
        type: what is announced.
        callback: for PREFATAL it gets the error that will end the process, for TPU_SLICE_BUILDER
            why a slice failed.

    Raises:
        TypeError: it cannot be called.
        ValueError: there is no such type.
        UnsupportedByPluginError: the plugin has no such extension.
        UnimplementedError: the plugin announces nothing of the type.
    """
    if not callable(callback):
        raise TypeError(f"the callback is {callback!r}, which cannot be called")
    read = _READERS[CallbackType(type)]

    def announce(address: int) -> None:
        callback(read(address))

    callbacks.start()  # it ends a close that a callback puts off
    with client.in_call():
        node = client.api.extension("Callback")
        node.require("PJRT_Callback_RegisterCallback")
        kept, user_arg, *_, function = hotpath.host_transfer(client.api.address, announce)
        node.call(
            "PJRT_Callback_RegisterCallback",
            client=client.address,
            type=int(type),
            callback=function,
            user_arg=user_arg,
        )
        _kept.append(kept)


def invoke_callback(client: ClientHandle, what: PjrtError | SliceFailure) -> None:
    """Make the plugin announce something (`PJRT_Callback_InvokeCallback`).

    Args:
        client: of the plugin.
        what: an error for PREFATAL, or a slice's failure.

    Raises:
        TypeError: it is neither.
        UnsupportedByPluginError: the plugin has no such extension.
        PjrtError: the plugin refuses it.
    """
    version = client.api.version
    if isinstance(what, SliceFailure):
        members: dict[str, Any] = {"failure_type": int(what)}
        struct = Struct("PJRT_Callback_Tpu_SliceBuilderArgs", members, version)
        type = CallbackType.TPU_SLICE_BUILDER
    else:
        code, message = read_error(what)
        members = {"error_code": code, "error_message": message.encode()}
        struct = Struct("PJRT_Callback_PrefatalArgs", members, version)
        type = CallbackType.PREFATAL
    with client.in_call():
        call = client.api.extension("Callback").call
        call(
            "PJRT_Callback_InvokeCallback",
            client=client.address,
            type=int(type),
            args=struct.address,
        )


def _error(address: int) -> PjrtError:
    code, message = upcall.prefatal(address)
    return error_class(code)(message, code=code, function="", payloads={})


def _failure(address: int) -> SliceFailure | int:
    number = upcall.slice_failure(address)
    return SliceFailure(number) if number in SliceFailure.__members__.values() else number


_READERS: dict[CallbackType, Callable[[int], object]] = {
    CallbackType.PREFATAL: _error,
    CallbackType.TPU_SLICE_BUILDER: _failure,
}
#: What plugins may call until the process ends.
_kept: list[object] = []
