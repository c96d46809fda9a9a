"""Programs in MLIR's bytecode, read without MLIR (layer 2): operations, custom calls, the module.

The layout is that of MLIR's BytecodeFormat documentation, versions 4 to 6; the numbers of
attributes are those of StableHLO's VhloBytecode.cpp. Must not read what programs compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pjrt_hub.frozen import frozen

#: What bytecode begins with.
MAGIC = b"ML\xefR"
_VERSIONS = range(4, 7)
_STRINGS, _DIALECTS, _ATTRIBUTES, _OFFSETS, _PROPERTIES = 0, 1, 2, 3, 8
#: Attributes of the dialect builtin: dictionaries, text, numbers.
_DICTIONARY, _TEXT, _INTEGER = 1, 2, 8
_COUNTS = ("mhlo.num_replicas", "mhlo.num_partitions")
#: Of the dialect vhlo: the attribute that only custom calls have, and text.
_API_VERSION, _STRING = 5, 14
#: An operation's attributes are in the order of their names: api_version, backend_config, ...
_TARGET = 2


@frozen(slots=False)
class Uses:
    """What a program is made of.

    Attributes:
        operations: "vhlo.add_v1" and so on, sorted.
        custom_calls: the functions that it calls by name, sorted.
    """

    operations: tuple[str, ...]
    custom_calls: tuple[str, ...]

    @property
    def dialects(self) -> tuple[str, ...]:
        """The dialects of the operations, sorted."""
        return tuple(sorted({name.partition(".")[0] for name in self.operations}))


class Module(NamedTuple):
    """What a program says before its first function.

    Attributes:
        dialects: of its operations.
        counts: "mhlo.num_replicas" and "mhlo.num_partitions", where it has them.
    """

    dialects: frozenset[str]
    counts: Mapping[str, int]


def uses(code: bytes) -> Uses | None:
    """Reads what a program is made of.

    Returns:
        None where it is not bytecode of a known version, or is malformed: the compiler says how.
    """
    try:
        return _uses(code)
    except (ValueError, LookupError):  # UnicodeDecodeError is a ValueError
        return None


def module(code: bytes) -> Module | None:
    """Reads what a program says of itself; None as for `uses`."""
    try:
        return _module(code)
    except (ValueError, LookupError):
        return None


def words(code: bytes) -> bytes:
    """Gives all that a program spells: names, and text of attributes; empty as None for `uses`."""
    try:
        part = _parts(code)[_STRINGS]
    except (ValueError, LookupError):
        return b""
    return part.take(part.end - part.position)


def _uses(code: bytes) -> Uses:
    sections, strings, dialects, operations = _opened(code)
    texts, versions, targets = dict[int, str](), set[int](), set[str]()
    if not any("custom_call" in name for name in operations):
        return Uses(tuple(sorted(operations)), ())
    for number, dialect, kind, content in _attributes(sections, dialects):
        if (dialect, kind) == ("vhlo", _STRING):
            texts[number] = strings[content.varint()]
        elif (dialect, kind) == ("vhlo", _API_VERSION):
            versions.add(number)
    for numbers in _properties(sections.get(_PROPERTIES)):
        if len(numbers) > _TARGET and numbers[0] in versions and numbers[_TARGET] in texts:
            targets.add(texts[numbers[_TARGET]])
    return Uses(tuple(sorted(operations)), tuple(sorted(targets)))


def _module(code: bytes) -> Module:
    sections, strings, dialects, operations = _opened(code)
    texts, integers, named = dict[int, str](), dict[int, _Reader](), dict[int, int]()
    for number, dialect, kind, content in _attributes(sections, dialects):
        if (dialect, kind) == ("builtin", _TEXT):
            texts[number] = strings[content.varint()]
        elif (dialect, kind) == ("builtin", _INTEGER):
            content.varint()  # its type
            integers[number] = content
        elif (dialect, kind) == ("builtin", _DICTIONARY):
            for _ in range(_fitting(content.varint(), content)):
                name = content.varint()
                named[name] = content.varint()
    # A number of 32 bits is a varint whose lowest bit is the sign. Names may share one.
    counts = {
        texts[name]: integers[value].again().varint() >> 1
        for name, value in named.items()
        if texts.get(name) in _COUNTS and value in integers
    }
    return Module(frozenset(name.partition(".")[0] for name in operations), counts)


def _opened(code: bytes) -> tuple[dict[int, _Reader], list[str], list[str], set[str]]:
    """The sections, and the strings, dialects and operations that the others name by number."""
    sections = _parts(code)
    strings = _strings(sections[_STRINGS])
    dialects, operations = _operations(sections[_DIALECTS], strings)
    return sections, strings, dialects, operations


def _parts(code: bytes) -> dict[int, _Reader]:
    """The sections by their numbers."""
    if not code.startswith(MAGIC):
        raise ValueError("no bytecode")
    reader = _Reader(code, len(MAGIC), len(code))
    if reader.varint() not in _VERSIONS:
        raise ValueError("another version of bytecode")
    reader.position = code.index(b"\0", reader.position) + 1  # behind the producer's name
    return dict(_sections(reader))


class _Reader:
    """A part of bytes, and how far it is read; what goes beyond raises IndexError or ValueError."""

    def __init__(self, data: bytes, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    def __bool__(self) -> bool:
        return self.position < self.end

    def varint(self) -> int:
        """A number whose first byte tells by its trailing zeros how many follow."""
        first = self.data[self.position]
        more = 8 if not first else (first & -first).bit_length() - 1
        value = int.from_bytes(self.take(more + 1), "little")
        return value >> 8 if more == 8 else value >> (more + 1)

    def take(self, count: int) -> bytes:
        """The next bytes."""
        taken = self.part(count)
        return self.data[taken.position : taken.end]

    def part(self, count: int) -> _Reader:
        """A reader of the next bytes, which may be many."""
        begin, self.position = self.position, self.position + count
        if self.position > self.end:
            raise ValueError("the bytes end")
        return _Reader(self.data, begin, self.position)

    def again(self) -> _Reader:
        """A reader of the same, from here."""
        return _Reader(self.data, self.position, self.end)


def _sections(reader: _Reader) -> Iterator[tuple[int, _Reader]]:
    while reader:
        number = reader.take(1)[0]
        length = reader.varint()
        if number & 0x80:
            alignment = reader.varint()
            if not 0 < alignment <= 1 << 16:
                raise ValueError("no alignment")
            reader.take(-reader.position % alignment)
        yield number & 0x7F, reader.part(length)


def _strings(reader: _Reader) -> list[str]:
    count = reader.varint()
    lengths = [reader.varint() for _ in range(_fitting(count, reader))]
    # The lengths stand in reverse order, and each counts the zero at the string's end.
    return [reader.take(length)[:-1].decode("utf-8", "replace") for length in reversed(lengths)]


def _operations(reader: _Reader, strings: list[str]) -> tuple[list[str], set[str]]:
    dialects = []
    for _ in range(_fitting(reader.varint(), reader)):
        name = reader.varint()
        dialects.append(strings[name >> 1])
        if name & 1:  # its version is a section of its own
            reader.take(1)
            reader.take(reader.varint())
    reader.varint()  # how many operations there are in all
    names = set()
    while reader:
        dialect = dialects[reader.varint()]
        for _ in range(_fitting(reader.varint(), reader)):
            name = reader.varint()
            names.add(f"{dialect}.{strings[name >> 1]}")
    return dialects, names


def _attributes(
    sections: dict[int, _Reader], dialects: list[str]
) -> Iterator[tuple[int, str, int, _Reader]]:
    """Of each attribute that is not kept as text: number, dialect, kind, and what belongs to it."""
    offsets, data = sections[_OFFSETS], sections[_ATTRIBUTES]
    count = offsets.varint()
    offsets.varint()  # how many types there are
    number = 0
    while number < count:
        dialect = dialects[offsets.varint()]
        for _ in range(_fitting(offsets.varint(), offsets)):
            size = offsets.varint()
            content = data.part(size >> 1)
            if size & 1:
                yield number, dialect, content.varint(), content
            number += 1


def _properties(reader: _Reader | None) -> Iterator[list[int]]:
    """The numbers that operations keep as their properties: of a custom call, attributes."""
    if reader is None:
        return
    for _ in range(_fitting(reader.varint(), reader)):
        content = reader.part(reader.varint())
        numbers = []
        while content:
            numbers.append(content.varint())
        yield numbers


def _fitting(count: int, reader: _Reader) -> int:
    """A number of things that take a byte each, or an error."""
    if count > reader.end - reader.position:
        raise ValueError("more of them than bytes")
    return count
