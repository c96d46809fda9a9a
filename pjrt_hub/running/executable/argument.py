"""Arguments: putting arrays that are given for a parameter, and the messages for refused ones.

The call path compares Buffers, and itself puts arrays that are like one that was put here. Imports
numpy late.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol

from pjrt_hub.errors import ClosedError, UnsupportedByPluginError
from pjrt_hub.running.buffer import placement, tensor
from pjrt_hub.running.buffer.buffer import Buffer, HostBufferSemantics, obstacle_to_copy
from pjrt_hub.running.device.device import Device, DeviceClient
from pjrt_hub.running.device.event import Event
from pjrt_hub.running.program.signature import ANYTHING, UNTOLD_LAYOUT, UNTOLD_TYPE, Signature, Slot


class Called(Protocol):
    """An executable that is called: what it takes, and where it runs; see `LoadedExecutable`."""

    @property
    def client(self) -> DeviceClient: ...
    @property
    def signature(self) -> Signature: ...
    @property
    def devices(self) -> tuple[Device, ...]: ...
    @property
    def _names(self) -> Mapping[int, str]: ...

    def _require_open(self) -> None: ...
    def _launch(
        self,
        rows: tuple[tuple[Any, ...], ...],
        devices: tuple[Device, ...],
        execute_device: int,
        options: Any,  # This is an `ExecuteOptions` or None.
        return_events: bool,
        /,
    ) -> tuple[tuple[tuple[Buffer, ...], ...], list[Event]]: ...


def put(executable: Called, index: int, given: Any, device: Device) -> tuple[Buffer, Any]:
    """Put an array or scalar for one parameter; it may change as soon as this returns.

    Also gives the dtype if the call path may itself put more such plain numpy arrays, or None.
    """
    slot, what = _describe_parameter(executable, index)
    array = _array(given)
    if array is None:
        if not hasattr(type(given), "__dlpack__"):
            reject(executable, index, given)
        return tensor.borrow(executable.client, given, device, True), None
    dtype = array.dtype
    native, wanted = dtype if dtype.isnative else dtype.newbyteorder("="), slot.dtype
    if wanted is not None and native != wanted:
        raise TypeError(
            f"{what}, the array has elements of {dtype}\n\n"
            f'hint: array.astype("{wanted}") converts numbers'
        )
    if array.shape != slot.shape is not None:
        raise ValueError(f"{what}, the array has the shape {array.shape}")
    if slot.layout == UNTOLD_LAYOUT:
        buffer = _from_host(executable, array, device)
        by_itself = buffer._order() is None
    else:
        buffer = _from_host(executable, array, device, slot.layout)
        by_itself = slot.layout is None and buffer._order() is None
        if buffer._order() != slot.layout:  # The plugin's default order is not row-major.
            buffer = _from_host(executable, array, device, slot.order)
    plain = type(given) is type(array) is _numpy().ndarray and dtype.isnative
    again = plain and by_itself and slot.code and slot.shape is not None and not slot.dynamic
    return buffer, dtype if again else None


def put_row(executable: Called, row: tuple[Any, ...], device: Device) -> tuple[Any, ...]:
    """Put a row's arrays on its device; the call path reports everything else that does not fit."""
    signature = executable.signature
    if not signature.open and len(row) != len(signature.parameters):
        return row
    return tuple(
        each if isinstance(each, Buffer) else put(executable, index, each, device)[0]
        for index, each in enumerate(row)
    )


def reject(executable: Called, index: int, given: object) -> None:
    """Raise for an argument that the call path refused."""
    require(executable, index, given, None)


def require(executable: Called, index: int, given: object, device: Device | None) -> None:
    """Raise unless the call path takes an argument as it is, in the row of a device."""
    slot, what = _describe_parameter(executable, index)
    name = name_of(executable, index)
    if not isinstance(given, Buffer):
        raise TypeError(
            f"{what} in a Buffer or an array, not {type(given).__name__}\n\n"
            "hint: client.buffer_from_host(value) makes a buffer of numbers and lists"
        )
    if given._is_gone:
        raise ClosedError(f"{name} is a buffer that was deleted or donated")
    if given.client is not executable.client:
        why_not = obstacle_to_copy(given)
        raise ValueError(
            f"{name} is a buffer of another client ({given.client!r}) than the "
            f"program ({executable.client!r})"
            + (
                f"; {why_not}"
                if why_not
                else "\n\nhint: buffer.copy_to_device(device) copies it; "
                "with client(..., shared=True) there is one for all"
            )
        )
    if given._dtype != slot.code != UNTOLD_TYPE:
        raise TypeError(f"{what}, the buffer has elements of {given.element_type}")
    if given.shape != slot.shape is not None:
        raise ValueError(f"{what}, the buffer has the shape {given.shape}")
    if slot.shape is not None and given._dynamic != bool(slot.dynamic):
        raise ValueError(
            f"{what}, the dynamic dimensions of the buffer are {given.dynamic_dimensions}"
            "\n\nhint: client.buffer_from_host(numpy.asarray(buffer)) is one without any"
        )
    if given._dynamic and executable.client._is_on_host:
        raise UnsupportedByPluginError(
            f"{name} is a buffer with dynamic dimensions, {given.dynamic_dimensions}, "
            "and this plugin takes none",
            function="PJRT_LoadedExecutable_Execute",
            since="",
            have=str(executable.client.api.version),
            hint="give client.buffer_from_host(numpy.asarray(buffer)) to a program of static shape",
        )
    if executable.devices and given.device not in executable.devices:
        places = ", ".join(map(str, executable.devices))
        raise ValueError(
            f"{name} is on {given.device}, the program runs on {places}\n\n"
            "hint: buffer.copy_to_device(device) moves it"
        )
    if slot.order is not None and given.layout != slot.order:
        raise ValueError(
            f"{what} with dimensions in the order {slot.layout or 'row-major'}, the buffer has "
            f"{given.layout}\n\nhint: client.buffer_from_host(numpy.asarray(buffer), "
            f"layout={slot.order}) lays it out anew"
        )
    if given.device != device:
        raise ValueError(f"{name} is on {given.device}, its row is for another device")


def _from_host(
    executable: Called, array: Any, device: Device, layout: tuple[int, ...] | None = None
) -> Buffer:
    copied = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    return placement.from_host(executable.client, array, None, (device, None), copied, layout)


def name_of(executable: Called, index: int) -> str:
    """Return what errors call a parameter: its name, or its number."""
    return executable._names.get(index, f"argument {index}")


def _describe_parameter(executable: Called, index: int) -> tuple[Slot, str]:
    signature, name = executable.signature, name_of(executable, index)
    if signature.open:
        return ANYTHING, f"{name} must be"
    slot, count = signature.parameters[index], len(signature.parameters)
    return slot, f"{name}{'' if executable._names else f' of {count}'} must be {slot}"


def _array(given: Any) -> Any:
    """Return an argument as a numpy array; None for others with `__dlpack__` or without memory."""
    numpy = sys.modules.get("numpy")  # Objects of numpy exist only if it is imported.
    if numpy is not None and isinstance(given, numpy.ndarray):
        return given
    if numpy is not None and isinstance(given, numpy.generic):
        return numpy.asarray(given)
    if hasattr(type(given), "__dlpack__"):
        return None
    try:
        memory = memoryview(given)
    except TypeError:
        return None
    return _numpy().asarray(memory)


def _numpy() -> Any:
    import numpy

    return numpy
