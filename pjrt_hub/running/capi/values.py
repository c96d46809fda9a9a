"""Values of plugins: plausible texts and counts, and `PJRT_NamedValue` in both directions.

An implausible size is an error before anything is read; `native/function.c` has the same bounds.
Must not know which options a plugin takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pjrt_hub.running.capi import hotpath, table
from pjrt_hub.running.capi._pjrt import ffi
from pjrt_hub.running.capi.status import refuse_answer

#: The largest plausible size of a text in bytes; protobuf messages, the longest, end at 2 GiB.
MOST_BYTES = hotpath.MOST_BYTES
#: The largest length of a list, which no machine's number of devices reaches.
MOST_ELEMENTS = hotpath.MOST_ELEMENTS
#: The largest rank of an array that the compiled call path takes.
MOST_DIMENSIONS = 64

#: The types of a named value, in the order of `PJRT_NamedValue_Type`.
NamedValue = str | int | Sequence[int] | float | bool

_TYPES = table.ENUMS["PJRT_NamedValue_Type"]
_STRING = _TYPES["PJRT_NamedValue_kString"]
_INT64 = _TYPES["PJRT_NamedValue_kInt64"]
_INT64_LIST = _TYPES["PJRT_NamedValue_kInt64List"]
_FLOAT = _TYPES["PJRT_NamedValue_kFloat"]
_BOOL = _TYPES["PJRT_NamedValue_kBool"]


def address(pointer: Any) -> int:
    """Return a native pointer as a number, as it travels outside of `capi`."""
    return int(ffi.cast("uintptr_t", pointer))


def encode(values: Mapping[str, NamedValue], keep: list[Any]) -> Any:
    """Make a `PJRT_NamedValue[]`; `keep` gets the memory it points to, which must live as long."""
    array = ffi.new("PJRT_NamedValue[]", len(values))
    for item, (name, value) in zip(array, values.items(), strict=True):
        item.struct_size = table.STRUCT_SIZE["PJRT_NamedValue"]
        item.name, item.name_size = _characters(name, keep)
        if isinstance(value, bool):  # bool is a subclass of int, so it comes first.
            item.type, item.bool_value, item.value_size = _BOOL, value, 1
        elif isinstance(value, int):
            item.type, item.int64_value, item.value_size = _INT64, value, 1
        elif isinstance(value, float):
            item.type, item.float_value, item.value_size = _FLOAT, value, 1
        elif isinstance(value, str | bytes):
            item.type = _STRING
            item.string_value, item.value_size = _characters(value, keep)
        elif isinstance(value, Sequence) and all(isinstance(each, int) for each in value):
            numbers = ffi.new("int64_t[]", list(value))
            keep.append(numbers)
            item.type, item.int64_array_value, item.value_size = _INT64_LIST, numbers, len(value)
        else:
            raise TypeError(
                f"option {name!r} is {value!r}; it can be a str, bool, int, float or a list of int"
            )
    return array


def decode(array: Any, count: int) -> dict[str, NamedValue]:
    """Read `count` values of a `PJRT_NamedValue*`, copying everything."""
    return {_text(array[i].name, array[i].name_size): _value(array[i]) for i in range(count)}


def _value(item: Any) -> NamedValue:
    match item.type:
        case kind if kind == _STRING:
            return _text(item.string_value, item.value_size)
        case kind if kind == _INT64:
            return int(item.int64_value)
        case kind if kind == _INT64_LIST:
            count = require_count("PJRT_NamedValue", "value_size", item.value_size)
            if count and item.int64_array_value == ffi.NULL:
                refuse_answer("PJRT_NamedValue", "NULL as int64_array_value")
            return tuple(item.int64_array_value[i] for i in range(count))
        case kind if kind == _FLOAT:
            return float(item.float_value)
        case _:
            return bool(item.bool_value)


def _characters(text: str | bytes, keep: list[Any]) -> tuple[Any, int]:
    data = text.encode() if isinstance(text, str) else text
    pointer = ffi.from_buffer("char[]", data)
    keep.append(pointer)
    return pointer, len(data)


def _text(pointer: Any, size: int) -> str:
    return text("PJRT_NamedValue", "a text", pointer, size).decode("utf-8", "replace")


def require_count(
    function: str, name: str, given: int, most: int = MOST_ELEMENTS, least: int = 0
) -> int:
    """Return a plugin's count of a field if it is plausible, else raise PluginError."""
    if not least <= given <= most:
        refuse_answer(function, f"{given} as {name}")
    return given


def text(function: str, name: str, pointer: Any, nbytes: int) -> bytes:
    """Copy a plugin's bytes; PluginError for an implausible size, or for NULL with a size."""
    if require_count(function, f"the size of {name}", nbytes, MOST_BYTES) == 0:
        return b""
    if pointer == ffi.NULL:
        refuse_answer(function, f"NULL as {name}")
    return bytes(ffi.buffer(pointer, nbytes))
