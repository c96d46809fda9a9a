"""Protobuf's wire format, for the few messages that cross the C API as bytes.

Owns varints and length-delimited fields; must not know any message: numbers come from the caller.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def varint(number: int, value: int) -> bytes:
    """Encode a field of an integer, bool or enum."""
    return _key(number, _VARINT) + _raw_varint(value)


def length_delimited(number: int, value: bytes) -> bytes:
    """Encode a field of a string, bytes, a message or packed numbers."""
    return _key(number, _BYTES) + _raw_varint(len(value)) + value


def double(number: int, value: float) -> bytes:
    """Encode a field of a double."""
    return _key(number, _FIXED64) + struct.pack("<d", value)


def pack(number: int, values: list[int]) -> bytes:
    """Encode a packed repeated integer field; no bytes if there are no values."""
    return length_delimited(number, b"".join(map(_raw_varint, values))) if values else b""


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield (number, value) of every field, a view unless it is a number; or raise ValueError."""
    for number, value, _ in encoded_fields(message):
        yield number, value


def encoded_fields(message: memoryview) -> Iterator[tuple[int, int | memoryview, memoryview]]:
    """Yield (number, value, bytes of the whole field), for callers that copy whole fields."""
    position = 0
    while position < len(message):
        start = position
        key, position = _read_varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = _read_varint(message, position)
            yield number, value, message[start:position]
            continue
        if kind == _BYTES:
            size, position = _read_varint(message, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"field {number} has wire type {kind}")
        if position + size > len(message):
            raise ValueError(f"field {number} ends after the message")
        view = message[position : position + size]
        position += size
        found = view if kind == _BYTES else int.from_bytes(view, "little")
        yield number, found, message[start:position]


def messages(message: memoryview, *numbers: int) -> Iterator[memoryview]:
    """Yield the bytes of each field with one of these numbers: texts and nested messages."""
    for number, value in fields(message):
        if number in numbers and isinstance(value, memoryview):
            yield value


def integers(value: int | memoryview) -> list[int]:
    """Read a repeated integer field, packed or not, as signed 64-bit numbers."""
    if isinstance(value, int):
        return [_as_signed(value)]
    numbers, position = [], 0
    while position < len(value):
        number, position = _read_varint(value, position)
        numbers.append(_as_signed(number))
    return numbers


def _key(number: int, kind: int) -> bytes:
    return _raw_varint(number << 3 | kind)


def _raw_varint(value: int) -> bytes:
    """Encode a number; a negative one takes ten bytes, as int64."""
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message) and shift < 70:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise ValueError("a number does not end inside the message")


def _as_signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
