"""What a program in MLIR's bytecode uses, read without MLIR (layer 3): operations, custom calls.

The layout is that of MLIR's BytecodeFormat documentation, versions 4 to 6; the numbers of
attributes are those of StableHLO's VhloBytecode.cpp. Must not read what programs compute.
"""

from __future__ import annotations

from collections.abc import Iterator

from pjrt_hub.frozen import frozen

_MAGIC = b"ML\xefR"
_VERSIONS = range(4, 7)
_STRINGS, _DIALECTS, _ATTRIBUTES, _OFFSETS, _PROPERTIES = 0, 1, 2, 3, 8
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


def uses(code: bytes) -> Uses | None:
    """Reads a program.

    Returns:
        None where it is not bytecode of a known version, or is malformed: the compiler says how.
    """
    try:
        return _uses(code)
    except (ValueError, LookupError):  # UnicodeDecodeError is a ValueError
        return None


def _uses(code: bytes) -> Uses:
    if not code.startswith(_MAGIC):
        raise ValueError("no bytecode")
    reader = _Reader(code, len(_MAGIC))
    if reader.varint() not in _VERSIONS:
        raise ValueError("another version of bytecode")
    reader.position = code.index(b"\0", reader.position) + 1  # behind the producer's name
    sections = dict(_sections(reader))
    strings = _strings(sections[_STRINGS])
    dialects, operations = _operations(sections[_DIALECTS], strings)
    targets: set[str] = set()
    if not any("custom_call" in name for name in operations):
        return Uses(tuple(sorted(operations)), ())
    texts, versions = _attributes(sections, dialects, strings)
    for numbers in _properties(sections.get(_PROPERTIES)):
        if len(numbers) > _TARGET and numbers[0] in versions and numbers[_TARGET] in texts:
            targets.add(texts[numbers[_TARGET]])
    return Uses(tuple(sorted(operations)), tuple(sorted(targets)))


class _Reader:
    """Bytes, and how far they are read; what goes beyond them raises IndexError or ValueError."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def __bool__(self) -> bool:
        return self.position < len(self.data)

    def varint(self) -> int:
        """A number whose first byte tells by its trailing zeros how many follow."""
        first = self.data[self.position]
        more = 8 if not first else (first & -first).bit_length() - 1
        value = int.from_bytes(self.take(more + 1), "little")
        return value >> 8 if more == 8 else value >> (more + 1)

    def take(self, count: int) -> bytes:
        """The next bytes."""
        end = self.position + count
        if end > len(self.data):
            raise ValueError("the bytes end")
        taken = self.data[self.position : end]
        self.position = end
        return taken


def _sections(reader: _Reader) -> Iterator[tuple[int, _Reader]]:
    while reader:
        number = reader.take(1)[0]
        length = reader.varint()
        if number & 0x80:
            alignment = reader.varint()
            if not 0 < alignment <= 1 << 16:
                raise ValueError("no alignment")
            reader.take(-reader.position % alignment)
        yield number & 0x7F, _Reader(reader.take(length))


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
    sections: dict[int, _Reader], dialects: list[str], strings: list[str]
) -> tuple[dict[int, str], set[int]]:
    """The attributes that are text, and those that are a custom call's version, by number."""
    offsets, data = sections[_OFFSETS], sections[_ATTRIBUTES]
    count = offsets.varint()
    offsets.varint()  # how many types there are
    texts, versions = {}, set()
    index = 0
    while index < count:
        dialect = dialects[offsets.varint()]
        for _ in range(_fitting(offsets.varint(), offsets)):
            size = offsets.varint()
            content = _Reader(data.take(size >> 1))
            if dialect == "vhlo" and size & 1:
                kind = content.varint()
                if kind == _STRING:
                    texts[index] = strings[content.varint()]
                elif kind == _API_VERSION:
                    versions.add(index)
            index += 1
    return texts, versions


def _properties(reader: _Reader | None) -> Iterator[list[int]]:
    """The numbers that operations keep as their properties: of a custom call, attributes."""
    if reader is None:
        return
    for _ in range(_fitting(reader.varint(), reader)):
        content = _Reader(reader.take(reader.varint()))
        numbers = []
        while content:
            numbers.append(content.varint())
        yield numbers


def _fitting(count: int, reader: _Reader) -> int:
    """A number of things that take a byte each, or an error."""
    if count > len(reader.data):
        raise ValueError("more of them than bytes")
    return count
