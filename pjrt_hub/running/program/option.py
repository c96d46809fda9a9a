"""Kinds of compile options: how a value is checked, written as protobuf and read back.

Owns a class for each kind of field; must not know which options there are: see compile_options.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from pjrt_hub.running.capi import wire
from pjrt_hub.running.program.signature import Slot, flatten, tuple_shape

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1

#: The type of an XLA flag's value; None leaves the flag to the plugin.
Flag = str | bool | int | float | None
#: The values that a message holds for one field, in their order.
Found = Sequence[int | memoryview]


class Kind:
    """One kind of option: `check` gives the value in its plain form, or raises."""

    def check(self, name: str, value: Any) -> Any:
        """Refuse values that the field cannot hold: TypeError or ValueError."""
        raise NotImplementedError

    def write(self, number: int, value: Any) -> bytes:
        """Return the value, encoded as the field `number`."""
        raise NotImplementedError

    def read(self, found: Found) -> Any:
        """Read a value that `write` or another program wrote; give None for an unknown one.

        ValueError or TypeError: the bytes are no such value, or of a type without a name here.
        """
        raise NotImplementedError


class Plain(Kind):
    """A value of one Python type, which a message holds as it is."""

    def __init__(
        self,
        type_: type,
        words: str,
        write: Callable[[int, Any], bytes],
        read: Callable[[int | memoryview], Any],
    ) -> None:
        self._type, self._words, self._write, self._read = type_, words, write, read

    def check(self, name: str, value: Any) -> Any:
        is_one = isinstance(value, self._type)
        return self._type(value) if is_one else _wrong(name, value, self._words)

    def write(self, number: int, value: Any) -> bytes:
        return self._write(number, value)

    def read(self, found: Found) -> Any:
        return self._read(found[-1])


class Int(Kind):
    """An integer from `least` to `most`."""

    def __init__(self, least: int = 0, most: int = INT64_MAX) -> None:
        self.least, self.most = least, most

    def check(self, name: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            _wrong(name, value, "an int")
        if not self.least <= value <= self.most:
            raise ValueError(f"{name} is {value}; it must be from {self.least} to {self.most}")
        return value

    def write(self, number: int, value: int) -> bytes:
        return wire.varint(number, value)

    def read(self, found: Found) -> int:
        return wire.integers(_integer(found[-1]))[0]


class OneOf(Kind):
    """One of some values, each with its number in an enum."""

    def __init__(self, numbers: Mapping[str | int, int]) -> None:
        self.numbers = numbers

    def check(self, name: str, value: Any) -> str | int:
        for each in self.numbers:
            if each == value and type(each) is type(value):
                return each
        return _wrong(name, value, "one of " + ", ".join(map(repr, self.numbers)))

    def write(self, number: int, value: str | int) -> bytes:
        return wire.varint(number, self.numbers[value])

    def read(self, found: Found) -> str | int | None:
        return next((each for each, number in self.numbers.items() if number == found[-1]), None)


BOOL = Plain(bool, "a bool", wire.varint, lambda value: bool(_integer(value)))
TEXT = Plain(
    *(str, "a str", lambda number, value: wire.length_delimited(number, value.encode())),
    lambda value: _bytes(value).decode("utf-8", "replace"),
)
#: Bytes that are a serialized message, or that only the compiler reads.
MESSAGE = Plain(bytes, "bytes", wire.length_delimited, lambda value: _bytes(value))


class Several(Kind):
    """A list of bools or ints, each of the kind `element`."""

    def __init__(self, element: Kind) -> None:
        self.element = element

    def check(self, name: str, value: Any) -> tuple[int, ...]:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            _wrong(name, value, "a list")
        return tuple(self.element.check(f"{name}[{i}]", each) for i, each in enumerate(value))

    def write(self, number: int, value: Sequence[int]) -> bytes:
        return wire.pack(number, [int(each) for each in value])

    def read(self, found: Found) -> tuple[int, ...]:
        numbers = [each for part in found for each in wire.integers(part)]
        return tuple(map(bool, numbers)) if self.element is BOOL else tuple(numbers)


class Shapes(Kind):
    """A list of (dtype, shape, layout), each a ShapeProto or, with `one`, all together in one."""

    def __init__(self, *, one: bool = False) -> None:
        self.one = one

    def check(self, name: str, value: Any) -> tuple[Slot, ...]:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            _wrong(name, value, "a list of (dtype, shape, layout)")
        return tuple(self._slot(f"{name}[{i}]", each) for i, each in enumerate(value))

    def _slot(self, name: str, value: Any) -> Slot:
        if not isinstance(value, tuple) or not 2 <= len(value) <= 4:  # A `Slot` has 4 items.
            _wrong(name, value, "(dtype, shape) or (dtype, shape, layout)")
        try:
            return Slot.of(*value)
        except (TypeError, ValueError) as exc:
            raise type(exc)(f"{name} is {value!r}: {exc}") from None

    def write(self, number: int, value: Sequence[Slot]) -> bytes:
        if not self.one:
            return b"".join(wire.length_delimited(number, slot.serialize()) for slot in value)
        shape = value[0].serialize() if len(value) == 1 else tuple_shape(value)
        return wire.length_delimited(number, shape)

    def read(self, found: Found) -> tuple[Slot, ...]:
        return tuple(slot for shape in found for slot in flatten(memoryview(_bytes(shape))))


class Flags(Kind):
    """XLA's flags: a map from a name to an OptionOverrideProto."""

    def check(self, name: str, value: Any) -> dict[str, Flag]:
        if not isinstance(value, Mapping):
            _wrong(name, value, "a mapping of names to values")
        for flag, setting in value.items():
            if not isinstance(flag, str) or not isinstance(setting, Flag):
                raise TypeError(
                    f"the flag {flag!r} is {setting!r}, not a str, bool, int, float or None"
                )
            if isinstance(setting, int) and not -INT64_MAX - 1 <= setting <= INT64_MAX:
                raise ValueError(f"the flag {flag!r} is {setting}, which does not fit 64 bits")
        return dict(value)

    def write(self, number: int, value: Mapping[str, Flag]) -> bytes:
        written = b""
        for name, setting in value.items():
            if setting is not None:
                entry = wire.length_delimited(1, name.encode())
                entry += wire.length_delimited(2, self._override(setting))
                written += wire.length_delimited(number, entry)
        return written

    def _override(self, value: str | bool | int | float) -> bytes:
        if isinstance(value, str):
            return wire.length_delimited(1, value.encode())
        if isinstance(value, bool):
            return wire.varint(2, value)
        if isinstance(value, int):
            return wire.varint(3, value)
        return wire.double(4, value)

    def read(self, found: Found) -> dict[str, Flag]:
        flags: dict[str, Flag] = {}
        for entry in found:
            parts = dict(wire.fields(memoryview(_bytes(entry))))
            name = _bytes(parts.get(1, memoryview(b""))).decode("utf-8", "replace")
            for number, value in wire.fields(memoryview(_bytes(parts.get(2, memoryview(b""))))):
                if number == 1:
                    flags[name] = _bytes(value).decode("utf-8", "replace")
                elif number == 2:
                    flags[name] = bool(value)
                elif number == 3:
                    flags[name] = wire.integers(value)[0]
                elif number == 4 and isinstance(value, int):
                    flags[name] = struct.unpack("<d", value.to_bytes(8, "little"))[0]
                else:
                    raise ValueError(f"the flag {name!r} has a value of another kind")
        return flags


class DeviceAssignment(Kind):
    """Device ids as [replica][partition]: a DeviceAssignmentProto, which is the other way round."""

    def check(self, name: str, value: Any) -> tuple[tuple[int, ...], ...]:
        if not _is_list(value):
            _wrong(name, value, "a list of rows of device ids, a row for each replica")
        for i, row in enumerate(value):
            if not _is_list(row):
                _wrong(f"{name}[{i}]", row, "a list of device ids, one for each partition")
        rows = tuple(tuple(row) for row in value)
        ids = [each for row in rows for each in row]
        if not all(isinstance(each, int) and 0 <= each <= INT32_MAX for each in ids):
            raise ValueError(f"{name} holds {ids}; an id is an int from 0")
        if len(set(ids)) < len(ids):
            raise ValueError(f"{name} holds {ids}; a device can run one part of a program")
        return rows

    def write(self, number: int, value: Sequence[Sequence[int]]) -> bytes:
        return wire.length_delimited(number, self.message(value))

    def message(self, value: Sequence[Sequence[int]]) -> bytes:
        """Make the DeviceAssignmentProto."""
        message = wire.varint(1, len(value)) + wire.varint(2, len(value[0]))
        for partition in zip(*value, strict=True):
            message += wire.length_delimited(3, wire.pack(1, list(partition)))
        return message

    def read(self, found: Found) -> tuple[tuple[int, ...], ...]:
        return self.parse(_bytes(found[-1]))

    def parse(self, message: bytes) -> tuple[tuple[int, ...], ...]:
        """Read a DeviceAssignmentProto."""
        partitions = [
            [each for number, ids in wire.fields(memoryview(_bytes(value))) if number == 1
             for each in wire.integers(ids)]
            for number, value in wire.fields(memoryview(message))
            if number == 3
        ]  # fmt: skip
        return tuple(zip(*partitions, strict=True))


def _bytes(value: int | memoryview) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where bytes belong")
    return bytes(value)


def _integer(value: int | memoryview) -> int:
    if not isinstance(value, int):
        raise ValueError("bytes stand where a number belongs")
    return value


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


def _wrong(name: str, value: Any, wanted: str) -> NoReturn:
    raise TypeError(f"{name} is {value!r}; it must be {wanted}")
