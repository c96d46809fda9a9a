"""Programs in MLIR's bytecode, read without MLIR: operations and custom calls.

The layout is that of MLIR's BytecodeFormat documentation, versions 0 to 6; the numbers of
attributes are those of StableHLO's VhloBytecode.cpp. Must not read what programs compute.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

MAGIC = b"ML\xefR"
#: The versions of bytecode that introduced, one by one, versions of dialects, sections for function
#: bodies, a count of the operations, and properties apart from an operation's other attributes.
VERSIONED_DIALECTS, LAZY_BODIES, _COUNTED_OPERATIONS, NATIVE_PROPERTIES = 1, 2, 4, 5
_VERSIONS = range(7)
STRINGS, DIALECTS, ATTRIBUTES, OFFSETS, OPERATIONS, RESOURCES, PROPERTIES = 0, 1, 2, 3, 4, 5, 8
#: The kinds of attributes in the dialect builtin: dictionaries and strings.
DICTIONARY, _TEXT = 1, 2
#: The kinds in the dialect vhlo: the API version, which only custom calls have, and strings.
_API_VERSION, _STRING = 5, 14
#: Attributes are sorted by name (api_version, backend_config, ...); this is the target's index.
_TARGET, _TARGET_NAME = 2, b"call_target_name"


class Uses(NamedTuple):
    """The operations and custom calls that a program is made of."""

    operations: tuple[str, ...]  # Sorted names, such as "vhlo.add_v1".
    custom_calls: tuple[str, ...]  # The functions that it calls by name, sorted.

    @property
    def dialects(self) -> tuple[str, ...]:
        """The dialects of the operations, sorted."""
        return tuple(sorted({name.partition(".")[0] for name in self.operations}))


def uses(code: bytes) -> Uses | None:
    """Read what a program is made of; None if it is malformed or of an unknown version."""
    try:
        return _uses(code)
    except (ValueError, LookupError):  # UnicodeDecodeError is a ValueError.
        return None


def words(code: bytes) -> bytes:
    """Return all strings of a program: names, and attributes' text; empty if `uses` gives None."""
    try:
        part = _sections_of(code)[2][STRINGS]
    except (ValueError, LookupError):
        return b""
    return part.rest()


class Contents(NamedTuple):
    """The sections of bytecode by their numbers, and the names that they refer to by number."""

    head: bytes  # What comes before the sections.
    version: int
    sections: dict[int, Reader]
    strings: list[bytes]
    dialects: list[str]
    operations: list[str]

    def write(self, changed: Mapping[int, bytes]) -> bytes:
        """Write the bytecode with other contents of some sections, which need no alignment."""
        parts = [self.head]
        for number, content in self.sections.items():
            parts.append(write_section(number, changed.get(number) or content.again().rest()))
        return b"".join(parts)


class TableEntry(NamedTuple):
    """An attribute or a type: in its dialect's own encoding, or its assembly as text."""

    dialect: str
    is_text: bool
    content: Reader


def contents(code: bytes | memoryview) -> Contents:
    """Take bytecode apart; ValueError or LookupError: it is malformed, or of an unknown version."""
    head, version, sections = _sections_of(code)
    strings = _strings(sections[STRINGS])
    dialects, operations = _operations(sections[DIALECTS].again(), strings, version)
    return Contents(head, version, sections, strings, dialects, operations)


class Entries:
    """All attributes and types of a program, each extracted when it is asked for."""

    def __init__(self, opened: Contents) -> None:
        offsets, self._data = opened.sections[OFFSETS].again(), opened.sections[ATTRIBUTES]
        self.attributes = offsets.varint()  # The number of attributes; the types follow them.
        total = require_count(self.attributes + offsets.varint(), offsets)
        self._sizes = list[int]()
        self._firsts, self._dialects = list[int](), list[str]()
        while len(self._sizes) < total:
            self._dialects.append(opened.dialects[offsets.varint()])
            self._firsts.append(len(self._sizes))
            self._sizes += offsets.varints(offsets.varint())
        ends = accumulate((size >> 1 for size in self._sizes), initial=self._data.position)
        self._begins = list(ends)

    def __len__(self) -> int:
        return len(self._sizes)

    def groups(self) -> Iterator[tuple[str, range]]:
        """Yield the places of entries of one dialect; attributes come first, then types."""
        ends = [*self._firsts[1:], len(self)]
        for dialect, first, end in zip(self._dialects, self._firsts, ends, strict=True):
            if first < end:
                yield dialect, range(first, end)

    def attribute(self, number: int) -> TableEntry:
        """Give an attribute by its number."""
        if number >= self.attributes:
            raise LookupError(f"there is no attribute {number}")
        return self.at(number)

    def type(self, number: int) -> TableEntry:
        """Give a type by its number."""
        return self.at(self.attributes + number)

    def at(self, place: int) -> TableEntry:
        """Give an attribute, or a type, whose places follow those of the attributes."""
        begin, size = self._begins[place], self._sizes[place]
        reader = Reader(self._data.data, begin, self._data.end)
        dialect = self._dialects[bisect_right(self._firsts, place) - 1]
        return TableEntry(dialect, not size & 1, reader.part(size >> 1))


def properties(opened: Contents) -> list[Reader]:
    """Return the properties of operations, which refer to them by number."""
    if PROPERTIES not in opened.sections:
        return []
    reader = opened.sections[PROPERTIES].again()
    return [reader.part(reader.varint()) for _ in range(require_count(reader.varint(), reader))]


def _uses(code: bytes) -> Uses:
    opened = contents(code)
    operations = tuple(sorted(set(opened.operations)))
    if not any("custom_call" in name for name in operations):
        return Uses(operations, ())
    texts, versions, names = dict[int, str](), set[int](), set[int]()
    named = list[tuple[int, int]]()  # The name and the value of each entry of a dictionary.
    found = Entries(opened)
    for number in range(found.attributes):
        dialect, is_text, content = found.attribute(number)
        kind = content.varint() if dialect in ("builtin", "vhlo") and not is_text else None
        if (dialect, kind) == ("vhlo", _STRING):
            texts[number] = opened.strings[content.varint()].decode("utf-8", "replace")
        elif (dialect, kind) == ("vhlo", _API_VERSION):
            versions.add(number)
        elif (dialect, kind) == ("builtin", _TEXT):
            if opened.strings[content.varint()] == _TARGET_NAME:
                names.add(number)
        elif (dialect, kind) == ("builtin", DICTIONARY):
            count = require_count(content.varint(), content)
            named += ((content.varint(), content.varint()) for _ in range(count))
    if opened.version < NATIVE_PROPERTIES:
        targets = {value for name, value in named if name in names}
    else:
        targets = set[int]()
        for each in properties(opened):
            numbers = list[int]()
            while each:
                numbers.append(each.varint())
            if len(numbers) > _TARGET and numbers[0] in versions:
                targets.add(numbers[_TARGET])
    return Uses(operations, tuple(sorted({texts[each] for each in targets if each in texts})))


def _sections_of(code: bytes | memoryview) -> tuple[bytes, int, dict[int, Reader]]:
    """Return what comes before the sections, the version, and the sections by their numbers."""
    reader = Reader(code, 0, len(code))
    if reader.take(len(MAGIC)) != MAGIC:
        raise ValueError("no bytecode")
    version = reader.varint()
    if version not in _VERSIONS:
        raise ValueError("another version of bytecode")
    while reader.take(1) != b"\0":  # This skips the producer's name.
        pass
    head = bytes(code[: reader.position])
    sections = dict[int, Reader]()
    while reader:
        number, content = section(reader)
        sections[number] = content
    return head, version, sections


class Reader:
    """Bytes and a position in them; reading past their end raises IndexError or ValueError."""

    def __init__(self, data: bytes | memoryview, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    def __bool__(self) -> bool:
        return self.position < self.end

    def varint(self) -> int:
        """Read a number whose first byte tells by its trailing zeros how many bytes follow."""
        first = self.data[self.position]
        more = 8 if not first else (first & -first).bit_length() - 1
        value = int.from_bytes(self.take(more + 1), "little")
        return value >> 8 if more == 8 else value >> (more + 1)

    def varints(self, count: int) -> list[int]:
        """Read `count` numbers, most of which are short."""
        data, position, found = self.data, self.position, list[int]()
        for _ in range(require_count(count, self)):
            first = data[position]
            if first & 1:
                found.append(first >> 1)
                position += 1
            elif first & 2:
                found.append((first | data[position + 1] << 8) >> 2)
                position += 2
            else:
                self.position = position
                found.append(self.varint())
                position = self.position
        self.position = position
        if position > self.end:
            raise ValueError("the bytes end")
        return found

    def signed(self) -> int:
        """Read a number whose lowest bit is its sign."""
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        taken = self.part(count)
        return bytes(self.data[taken.position : taken.end])

    def rest(self) -> bytes:
        """Return all that is left."""
        return self.take(self.end - self.position)

    def part(self, count: int) -> Reader:
        """Return a reader of the next bytes, which are not copied."""
        begin, self.position = self.position, self.position + count
        if self.position > self.end:
            raise ValueError("the bytes end")
        return Reader(self.data, begin, self.position)

    def again(self) -> Reader:
        """Return a new reader of the bytes that are left."""
        return Reader(self.data, self.position, self.end)


def section(reader: Reader) -> tuple[int, Reader]:
    """Read the number and the content of a section."""
    number = reader.take(1)[0]
    length = reader.varint()
    if number & 0x80:
        alignment = reader.varint()
        if not 0 < alignment <= 1 << 16:
            raise ValueError("no alignment")
        reader.take(-reader.position % alignment)
    return number & 0x7F, reader.part(length)


def write_numbers(*numbers: int) -> bytes:
    """Write numbers as `Reader.varint` reads them."""
    written = bytearray()
    for number in numbers:
        count = max(1, -(-number.bit_length() // 7))
        if count > 8:
            written += b"\0" + number.to_bytes(8, "little")
        else:
            written += (number << count | 1 << (count - 1)).to_bytes(count, "little")
    return bytes(written)


def write_section(number: int, content: bytes) -> bytes:
    """Write a section whose content needs no alignment."""
    return bytes([number]) + write_numbers(len(content)) + content


def write_strings(strings: Sequence[bytes]) -> bytes:
    """Write the content of the section of strings."""
    lengths = [len(each) + 1 for each in reversed(strings)]
    return write_numbers(len(strings), *lengths) + b"".join(each + b"\0" for each in strings)


def _strings(reader: Reader) -> list[bytes]:
    reader = reader.again()
    count = reader.varint()
    lengths = reader.varints(count)
    # The lengths are in reverse order, and each includes the string's terminating zero.
    return [reader.take(length)[:-1] for length in reversed(lengths)]


def _operations(reader: Reader, strings: list[bytes], version: int) -> tuple[list[str], list[str]]:
    texts = [each.decode("utf-8", "replace") for each in strings]
    dialects = list[str]()
    for _ in range(require_count(reader.varint(), reader)):
        name = reader.varint()
        has_version = version >= VERSIONED_DIALECTS and name & 1
        dialects.append(texts[name >> 1 if version >= VERSIONED_DIALECTS else name])
        if has_version:  # The dialect's version is a section.
            reader.take(1)
            reader.take(reader.varint())
    if version >= _COUNTED_OPERATIONS:
        reader.varint()
    names = list[str]()
    while reader:
        dialect = dialects[reader.varint()]
        for _ in range(require_count(reader.varint(), reader)):
            name = reader.varint()
            names.append(f"{dialect}.{texts[name >> 1 if version >= NATIVE_PROPERTIES else name]}")
    return dialects, names


def require_count(count: int, reader: Reader) -> int:
    """Return a count of items of at least a byte each; ValueError if fewer bytes are left."""
    if count > reader.end - reader.position:
        raise ValueError("more of them than bytes")
    return count
