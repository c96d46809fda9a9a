"""XLA FFI handlers (layer 1): from a function to an entry point, and from a call frame to values.

The compiled part is `native/ffi.c`. Reads frames of FFI 0.2 and newer; must not import numpy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from pjrt_hub._capi import hotpath, table
from pjrt_hub._capi._pjrt import ffi

COMMAND_BUFFER_COMPATIBLE = table.ENUMS["PJRT_FFI_Handler_TraitsBits"][
    "PJRT_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE"
]

_ATTRIBUTES = table.ENUMS["XLA_FFI_AttrType"]
_ARRAY = _ATTRIBUTES["XLA_FFI_AttrType_ARRAY"]
_DICTIONARY = _ATTRIBUTES["XLA_FFI_AttrType_DICTIONARY"]
_SCALAR = _ATTRIBUTES["XLA_FFI_AttrType_SCALAR"]
_POINTER = 8

PythonEntry = Callable[[int], tuple[int, bytes] | None]


class Value(NamedTuple):
    """Elements somewhere in memory.

    Attributes:
        dtype: XLA's number of the element type.
        shape: the dimensions.
        address: of the first element; on an accelerator in its memory.
    """

    dtype: int
    shape: tuple[int, ...]
    address: int


Attribute = Value | str | dict[str, Any]


class Frame:
    """One call of a handler (`XLA_FFI_CallFrame`), valid until the handler returns."""

    def __init__(self, address: int) -> None:
        self._frame = ffi.cast("XLA_FFI_CallFrame*", address)

    def arguments(self) -> list[Value]:
        """The arguments in their order."""
        args = self._frame.args
        return [_buffer(args.args[i]) for i in range(args.size)]

    def results(self) -> list[Value]:
        """The results in their order, to be written."""
        rets = self._frame.rets
        return [_buffer(rets.rets[i]) for i in range(rets.size)]

    def attributes(self) -> dict[str, Attribute]:
        """The attributes by name: `backend_config` of the custom call."""
        return _attributes(self._frame.attrs)

    def user_data(self, type_id: int) -> int | None:
        """What the execute context holds for a type (`XLA_FFI_InvokeContext_Get`), None without."""
        number = ffi.new("XLA_FFI_TypeId*")
        number.type_id = type_id
        args = self._ask("XLA_FFI_InvokeContext_Get", type_id=number)
        return None if args is None else int(ffi.cast("uintptr_t", args.data))

    def stream(self) -> int | None:
        """The platform's stream (`XLA_FFI_Stream_Get`), None where there is none."""
        args = self._ask("XLA_FFI_Stream_Get")
        return None if args is None else int(ffi.cast("uintptr_t", args.stream))

    def device_ordinal(self) -> int | None:
        """The device's number (`XLA_FFI_DeviceOrdinal_Get`), None where the plugin has none."""
        args = self._ask("XLA_FFI_DeviceOrdinal_Get")
        return None if args is None else int(args.device_ordinal)

    def run_id(self) -> int | None:
        """Which execution it is part of (`XLA_FFI_RunId_Get`), None where the plugin has none."""
        args = self._ask("XLA_FFI_RunId_Get")
        return None if args is None else int(args.run_id)

    def _ask(self, name: str, **inputs: Any) -> Any:
        """Calls a function of the FFI's own table; None where it is missing or refuses."""
        api = self._frame.api
        if ffi.offsetof("XLA_FFI_Api", name) + _POINTER > api.struct_size:
            return None
        args = ffi.new(f"{name}_Args*")
        args.struct_size = table.STRUCT_SIZE[f"{name}_Args"]
        args.ctx = self._frame.ctx
        for field, value in inputs.items():
            setattr(args, field, value)
        error = getattr(api, name)(args)
        if error == ffi.NULL:
            return args
        destroy = ffi.new("XLA_FFI_Error_Destroy_Args*")
        destroy.struct_size = table.STRUCT_SIZE["XLA_FFI_Error_Destroy_Args"]
        destroy.error = error
        api.XLA_FFI_Error_Destroy(destroy)
        return None


def memory(address: int, nbytes: int) -> Any:
    """The bytes at an address as an object with the buffer protocol, which owns nothing."""
    return ffi.buffer(ffi.cast("char*", address), nbytes)


def entry(target: int | PythonEntry, traits: int) -> int:
    """Makes an XLA FFI handler of an address or a Python callable; `hotpath.ffi_return` undoes it.

    Raises:
        RuntimeError: all entry points of the process are taken.
    """
    address = hotpath.ffi_entry(target, traits)
    if address is None:
        raise RuntimeError(
            "all entry points for custom calls are taken: plugins never forget a handler, so one "
            "process can register 1024"
        )
    return address


def address_of(function: object) -> int | None:
    """The address of a C function given as an int, a capsule, or of cffi or ctypes.

    Gives None for everything else.

    Raises:
        ValueError: no code is at the address.
    """
    ctypes = sys.modules.get("ctypes")  # without it no object of it can exist
    if isinstance(function, int) and not isinstance(function, bool):
        address = function
    elif type(function).__name__ == "PyCapsule":
        address = hotpath.capsule_address(function)
    elif isinstance(function, ffi.CData):
        address = int(ffi.cast("uintptr_t", function))
    elif ctypes is not None and isinstance(function, ctypes._CFuncPtr):
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
    else:
        return None
    if not _is_code(address):
        raise ValueError(f"no code is at the address {address:#x}: a plugin that calls it crashes")
    return address


def _is_code(address: int) -> bool:
    """Whether the address lies in executable memory of this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            extent, permissions, *_ = line.split(maxsplit=2)
            start, end = (int(number, 16) for number in extent.split("-"))
            if start <= address < end:
                return "x" in permissions
    return False


def _buffer(pointer: Any) -> Value:
    buffer = ffi.cast("XLA_FFI_Buffer*", pointer)
    shape = tuple(buffer.dims[i] for i in range(buffer.rank))
    return Value(int(buffer.dtype), shape, int(ffi.cast("uintptr_t", buffer.data)))


def _attributes(attrs: Any) -> dict[str, Attribute]:
    return {
        _text(attrs.names[i]): _attribute(attrs.types[i], attrs.attrs[i]) for i in range(attrs.size)
    }


def _attribute(kind: int, pointer: Any) -> Attribute:
    if kind == _DICTIONARY:
        return _attributes(ffi.cast("XLA_FFI_Attrs*", pointer))
    if kind == _SCALAR:
        scalar = ffi.cast("XLA_FFI_Scalar*", pointer)
        return Value(int(scalar.dtype), (), int(ffi.cast("uintptr_t", scalar.value)))
    if kind == _ARRAY:
        array = ffi.cast("XLA_FFI_Array*", pointer)
        address = int(ffi.cast("uintptr_t", array.data))
        return Value(int(array.dtype), (int(array.size),), address)
    return _text(ffi.cast("XLA_FFI_ByteSpan*", pointer))


def _text(span: Any) -> str:
    return bytes(ffi.buffer(span.ptr, span.len)).decode("utf-8", "surrogateescape")
