"""The arguments and results of a recorded call, by name.

Reads the struct's fields as `capi/table.py` declares them. Fields that are NULL or were not
recorded are left out, so that a line says only what is known.
"""

from __future__ import annotations

import os
import re
import struct
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

from pjrt_hub.kit.tracing.call import ARGS, Call, RecordedMemory
from pjrt_hub.running.capi import table
from pjrt_hub.running.interpose import layers

_FORMATS = {"bool": "?", "char": "c", "uint8_t": "B", "uint32_t": "I", "float": "f"}
_FORMATS |= dict.fromkeys(("int", "int32_t"), "i") | dict.fromkeys(("int64_t", "intptr_t"), "q")
_FORMATS |= dict.fromkeys(("size_t", "uint64_t", "uintptr_t"), "Q")
#: The field `type` beside a union tells which member of the union is set.
_TAGGED = {
    "PJRT_NamedValue": {
        "kString": "string_value",
        "kInt64": "int64_value",
        "kInt64List": "int64_array_value",
        "kFloat": "float_value",
        "kBool": "bool_value",
    },
    "PJRT_Buffer_MemoryLayout": {"Tiled": "tiled", "Strides": "strides"},
}
#: At most this many characters of a text are shown.
SHOWN = 60


class Address(int):
    """A pointer that is not followed: a handle, or the host's memory."""

    def __repr__(self) -> str:
        """Return the address in hexadecimal."""
        return f"{int(self):#x}"

    __str__ = __repr__


def inputs(call: Call) -> dict[str, Any]:
    """Return what the host gave: each input by its name."""
    return _fields(f"{call.function}_Args", ARGS, call.given, "in", 999)


def results(call: Call, minor: int) -> dict[str, Any]:
    """Return the plugin's outputs by name: those of its API's `minor` version, or all for 0."""
    if call.duration_ns is None or call.error or call.answered:
        return {}
    memory = call.given.then(call.got)
    return _fields(f"{call.function}_Args", ARGS, memory, "out", minor or 999)


def value(call: Call, name: str) -> Any:
    """Return one input, or None if it was not recorded."""
    return inputs(call).get(name)


def as_text(values: Mapping[str, Any]) -> str:
    """Write values as a log shows them: `type=F32, dims=[4]`."""
    return ", ".join(f"{name}={_text(value)}" for name, value in values.items())


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + as_text(value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, bytes):
        return _quote(value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _quote(data: bytes) -> str:
    try:
        shown = repr(data[:SHOWN].decode())[1:-1]
    except UnicodeDecodeError:
        shown = repr(data[:SHOWN])[2:-1]
    return f'"{shown}"' + ("..." if len(data) > SHOWN else "")


def as_json(value: Any) -> Any:
    """Return values for JSON: addresses as text, bytes as escaped text."""
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_json(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float) and value - value != 0:
        return str(value)
    return str(value) if isinstance(value, Address) else value


def _fields(
    name: str, address: int, memory: RecordedMemory, direction: str, minor: int
) -> dict[str, Any]:
    """Read an args struct's fields of one direction; nested structs have both directions."""
    found = {}
    for each in _rows(name):
        wanted = (each.direction == "in") == (direction == "in") and "deleter" not in each.name
        if wanted and each.since <= minor:
            value = _field(name, each, address, memory)
            if value is not None:
                found[each.name] = value
    return found


@cache
def _rows(name: str) -> tuple[table.Field, ...]:
    """Return a struct's fields without those that only count the elements of another."""
    rows = table.FIELDS[name]
    counting: dict[str, list[table.Field]] = defaultdict(list)
    for each in rows:
        for word in re.findall(r"\w+", each.count):
            counting[word].append(each)
    # A count of bytes is shown if the memory that it counts is not recorded.
    return tuple(
        each for each in rows if all("void" in counted.ctype for counted in counting[each.name])
    )


def _field(struct_name: str, row: table.Field, address: int, memory: RecordedMemory) -> Any:
    at = address + layers.offsets(struct_name)[row.name]
    ctype = row.ctype.replace("const", "").replace(" ", "")
    if "(" in ctype or (ctype in _CALLBACKS and not ctype.endswith("*")):
        return _pointer(at, memory)
    if not ctype.endswith("*"):
        return _scalar(ctype, at, memory)
    target = _pointer(at, memory)
    if target is None:
        return None
    pointee = ctype[:-1]
    if not row.count:
        if pointee in table.FIELDS and memory.read(target, 8) is not None:
            return _struct(pointee, target, memory)
        if pointee == "char":  # A text without a count ends with a NUL.
            text = memory.prefix(target, 1 << 16)
            return target if text is None else text.partition(b"\0")[0]
        return target
    words = row.count.split(",")
    known = layers.offsets(struct_name).get(words[0])  # A sum of several counts has no offset.
    data = None if known is None or pointee == "void" else memory.read(address + known, 8)
    if data is None:
        return target
    count = int.from_bytes(data, "little")
    if len(words) == 2 and pointee.endswith("*"):
        return _rows_of(pointee[:-1], target, count, memory)
    return _elements(pointee, target, count, memory)


_CALLBACKS = frozenset(
    field.ctype
    for fields in table.FIELDS.values()
    for field in fields
    if "*" not in field.ctype
    and field.ctype not in _FORMATS
    and field.ctype not in table.ENUMS
    and field.ctype not in table.FIELDS
)


def _rows_of(pointee: str, target: int, count: int, memory: RecordedMemory) -> Any:
    kept = memory.prefix(target, 8 * count)
    if kept is None:
        return Address(target)
    rows: list[Any] = []
    for (start,) in struct.iter_unpack("<Q", kept[: len(kept) // 8 * 8]):
        if (row := memory.prefix(start, 1 << 16)) is not None:
            rows.append(_elements(pointee, start, len(row) // _size(pointee), memory))
        else:
            rows.append(Address(start) if start else [])
    return rows


def _elements(pointee: str, target: int, count: int, memory: RecordedMemory) -> Any:
    size = _size(pointee)
    kept = memory.prefix(target, size * count)
    if kept is None:
        return Address(target) if count else [] if pointee != "char" else b""
    if pointee == "char":
        return kept
    whole = len(kept) // size
    values = [_scalar(pointee, target + number * size, memory) for number in range(whole)]
    return [*values, *(["..."] if whole < count else [])]


def _size(ctype: str) -> int:
    return 8 if ctype.endswith("*") else layers.sizeof(ctype)


def _scalar(ctype: str, at: int, memory: RecordedMemory) -> Any:
    if ctype.endswith("*"):
        return _pointer(at, memory)
    if ctype in table.FIELDS:
        return _struct(ctype, at, memory)
    if ctype in table.ENUMS:
        data = memory.read(at, 4)
        return None if data is None else _enum(ctype, int.from_bytes(data, "little"))
    form = _FORMATS[ctype]
    data = memory.read(at, struct.calcsize(form))
    return None if data is None else struct.unpack(f"<{form}", data)[0]


def _enum(name: str, number: int) -> str:
    entries = table.ENUMS[name]
    prefix = os.path.commonprefix(list(entries)).rpartition("_")[0]  # noqa: RUF071  (words)
    named = (entry for entry, value in entries.items() if value == number)
    return next(named, str(number)).removeprefix(f"{prefix}_")


def _pointer(at: int, memory: RecordedMemory) -> Address | None:
    data = memory.read(at, 8)
    address = int.from_bytes(data, "little") if data else 0
    return Address(address) if address else None


def _struct(name: str, at: int, memory: RecordedMemory) -> Any:
    held = _TAGGED.get(name)
    if held is None:
        values = {row.name: _field(name, row, at, memory) for row in _rows(name)}
        return {key: value for key, value in values.items() if value not in (None, [], b"")}
    rows = {row.name: row for row in table.FIELDS[name]}
    member = held.get(_field(name, rows["type"], at, memory))
    value = _field(name, rows[member], at, memory) if member else None
    if name != "PJRT_NamedValue":
        return value
    title = _field(name, rows["name"], at, memory)
    return {title.decode("utf-8", "replace") if isinstance(title, bytes) else "?": value}
