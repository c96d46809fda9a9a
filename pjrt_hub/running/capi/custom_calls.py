"""XLA FFI handlers: from a function to an entry point, and from a call frame to values.

The compiled part is `native/ffi.c`. Reads frames of FFI 0.2 and newer; must not import numpy.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from pjrt_hub.running.capi import hotpath, table, values
from pjrt_hub.running.capi._pjrt import ffi

COMMAND_BUFFER_COMPATIBLE = table.ENUMS["PJRT_FFI_Handler_TraitsBits"][
    "PJRT_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE"
]

_ATTRIBUTES = table.ENUMS["XLA_FFI_AttrType"]
_ARRAY = _ATTRIBUTES["XLA_FFI_AttrType_ARRAY"]
_DICTIONARY = _ATTRIBUTES["XLA_FFI_AttrType_DICTIONARY"]
_SCALAR = _ATTRIBUTES["XLA_FFI_AttrType_SCALAR"]
_STAGES = table.ENUMS["XLA_FFI_ExecutionStage"]
_INSTANTIATE = _STAGES["XLA_FFI_ExecutionStage_INSTANTIATE"]
_EXECUTE = _STAGES["XLA_FFI_ExecutionStage_EXECUTE"]
#: The minor versions of the FFI that changed a struct which plugins read.
_TYPED, _STAGED, _RECORDED = 2, 3, 4
_POINTER = 8

PythonEntry = Callable[[int], tuple[Any, ...] | None]


class Value(NamedTuple):
    """Elements somewhere in memory."""

    dtype: int  # XLA's number of the element type
    shape: tuple[int, ...]
    address: int  # The address of the first element, in host or device memory.


Attribute = Value | str | dict[str, Any]


class Frame:
    """One call of a handler (`XLA_FFI_CallFrame`), valid until the handler returns."""

    def __init__(self, address: int) -> None:
        self._frame = ffi.cast("XLA_FFI_CallFrame*", address)

    def arguments(self) -> list[Value]:
        """Return the arguments in their order."""
        args = self._frame.args
        return [_buffer(args.args[i]) for i in range(args.size)]

    def results(self) -> list[Value]:
        """Return the results in their order, to be written."""
        rets = self._frame.rets
        return [_buffer(rets.rets[i]) for i in range(rets.size)]

    def attributes(self) -> dict[str, Attribute]:
        """Return the attributes by name: `backend_config` of the custom call."""
        return _attributes(self._frame.attrs)

    def user_data(self, type_id: int) -> int | None:
        """Return what the execute context holds for a type (`XLA_FFI_InvokeContext_Get`)."""
        number = ffi.new("XLA_FFI_TypeId*")
        number.type_id = type_id
        args = self._ask("XLA_FFI_InvokeContext_Get", type_id=number)
        return None if args is None else values.address(args.data)

    def python_object(self, type_id: int, index: int) -> Any:
        """Return one of the Python objects that the context has for a type; None if it has none."""
        table = self.user_data(type_id)
        address = ffi.cast("uintptr_t**", table)[0][index] if table else 0
        return ctypes.cast(address, ctypes.py_object).value if address else None

    def number(self, name: str, field: str) -> int | None:
        """Return what a function of the FFI's own table tells; None if it is missing or fails."""
        args = self._ask(name)
        return None if args is None else int(ffi.cast("intptr_t", getattr(args, field)))

    def executes(self) -> bool:
        """Tell whether this is the last stage, in which there are arguments and results."""
        return bool(self._frame.stage == _EXECUTE)

    def set_state(self, type_id: int, state: int) -> bool:
        """Hand the plugin the state that instantiating made (`XLA_FFI_State_Set`)."""
        return self._state("XLA_FFI_State_Set", type_id, state) is not None

    def state(self, type_id: int) -> int | None:
        """Return the state that `set_state` handed over (`XLA_FFI_State_Get`), or None."""
        return self._state("XLA_FFI_State_Get", type_id, 0)

    def _state(self, name: str, type_id: int, state: int) -> int | None:
        """Call a function whose struct is always the same, but lacks `stage` before FFI 0.3."""
        number = ffi.new("XLA_FFI_TypeId*")
        number.type_id = type_id
        staged = [_INSTANTIATE] if self._frame.api.api_version.minor_version >= _STAGED else []
        words = [0, 0, values.address(self._frame.ctx), *staged, values.address(number), state]
        if name == "XLA_FFI_State_Set" and self._frame.api.api_version.minor_version < _TYPED:
            words.append(hotpath.ffi_deleter())  # Before FFI 0.2, each state comes with a deleter.
        words[0] = len(words) * _POINTER
        return _ask_in_words(self._frame.api, name, words)

    def _ask(self, name: str, **inputs: Any) -> Any:
        """Call a function of the FFI's own table; return None if it is missing or fails."""
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
        _drop(api, error)
        return None


def register(
    table_address: int, name: str, platform: str, handlers: tuple[int, int, int, int], traits: int
) -> bool:
    """Register a handler with its stages in the FFI's own table (`XLA_FFI_Handler_Register`).

    The handlers instantiate, prepare, initialize and execute, in this order; 0 stands for none.
    """
    api = ffi.cast("XLA_FFI_Api*", table_address)
    target, place = ffi.from_buffer(name.encode()), ffi.from_buffer(platform.encode())
    # Since FFI 0.4, a bundle has one more handler, for recording.
    record = [0] if api.api_version.minor_version >= _RECORDED else []
    texts = [values.address(target), len(target), values.address(place), len(place)]
    words = [0, 0, *texts, *handlers, *record, traits]
    words[0] = len(words) * _POINTER - 4  # The last member has only 32 bits.
    return _ask_in_words(api, "XLA_FFI_Handler_Register", words) is not None


def _ask_in_words(api: Any, name: str, words: list[int]) -> int | None:
    """Call a function of the FFI's table with a struct of these words; return its last word."""
    args = ffi.new("uint64_t[]", words)
    function = ffi.cast("XLA_FFI_Error*(*)(void*)", values.address(getattr(api, name)))
    error = function(args)
    if error == ffi.NULL:
        return int(args[len(words) - 1])
    _drop(api, error)
    return None


def _drop(api: Any, error: Any) -> None:
    destroy = ffi.new("XLA_FFI_Error_Destroy_Args*")
    destroy.struct_size = table.STRUCT_SIZE["XLA_FFI_Error_Destroy_Args"]
    destroy.error = error
    api.XLA_FFI_Error_Destroy(destroy)


def memory(address: int, nbytes: int) -> Any:
    """Return a buffer protocol object over the bytes at an address, which it does not own."""
    return ffi.buffer(ffi.cast("char*", address), nbytes)


def entry(target: int | PythonEntry, traits: int) -> int:
    """Make an XLA FFI handler of an address or a callable; `hotpath.ffi_return` undoes it."""
    address = hotpath.ffi_entry(target, traits)
    if address is None:
        raise RuntimeError(
            "all entry points for custom calls are taken: plugins never forget a handler, so one "
            "process can register 1024"
        )
    return address


def address_of(function: object) -> int | None:
    """Return a C function's address, given as int, capsule, or by cffi or ctypes; else None."""
    ctypes = sys.modules.get("ctypes")  # Objects of ctypes exist only if it is imported.
    if isinstance(function, int) and not isinstance(function, bool):
        address = function
    elif type(function).__name__ == "PyCapsule":
        address = hotpath.capsule_address(function)
    elif isinstance(function, ffi.CData):
        address = values.address(function)
    elif ctypes is not None and isinstance(function, ctypes._CFuncPtr):
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
    else:
        return None
    if not any(address in extent for extent in code()):
        raise ValueError(f"no code is at the address {address:#x}: a plugin that calls it crashes")
    return address


def code() -> list[range]:
    """Return the ranges of addresses that hold executable code in this process."""
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            extent, permissions, *_ = line.split(maxsplit=2)
            if "x" in permissions:
                found.append(range(*(int(number, 16) for number in extent.split("-"))))
    return found


def _buffer(pointer: Any) -> Value:
    buffer = ffi.cast("XLA_FFI_Buffer*", pointer)
    shape = tuple(buffer.dims[i] for i in range(buffer.rank))
    return Value(int(buffer.dtype), shape, values.address(buffer.data))


def _attributes(attrs: Any) -> dict[str, Attribute]:
    return {
        _text(attrs.names[i]): _attribute(attrs.types[i], attrs.attrs[i]) for i in range(attrs.size)
    }


def _attribute(kind: int, pointer: Any) -> Attribute:
    if kind == _DICTIONARY:
        return _attributes(ffi.cast("XLA_FFI_Attrs*", pointer))
    if kind == _SCALAR:
        scalar = ffi.cast("XLA_FFI_Scalar*", pointer)
        return Value(int(scalar.dtype), (), values.address(scalar.value))
    if kind == _ARRAY:
        array = ffi.cast("XLA_FFI_Array*", pointer)
        address = values.address(array.data)
        return Value(int(array.dtype), (int(array.size),), address)
    return _text(ffi.cast("XLA_FFI_ByteSpan*", pointer))


def _text(span: Any) -> str:
    return bytes(ffi.buffer(span.ptr, span.len)).decode("utf-8", "surrogateescape")
