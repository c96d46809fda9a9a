"""A program in bytecode without the places in source files that it came from.

They name files of the machine that exported it, and no plugin computes with them.
"""

from __future__ import annotations

from pjrt_hub.running.program import bytecode
from pjrt_hub.running.program.bytecode import write_numbers

#: The kinds of builtin attributes by MLIR's BuiltinDialectBytecode.td: those of locations that are
#: not unknown, those among them that begin with a file's name, and the unknown location.
_LOCATIONS, _FILES, _UNKNOWN = (10, 11, 12, 13, 14, 22), (11, 22), 15
_PORTABLE_STRING, _STRING = 14, 2


def without_locations(code: bytes) -> bytes:
    """Return bytecode with unknown locations only; another form of bytecode stays as it is."""
    try:
        return _without_locations(code)
    except (ValueError, LookupError):
        return code


def _without_locations(code: bytes) -> bytes:
    opened = bytecode.contents(code)
    if opened.sections.get(bytecode.RESOURCES):  # Their places in the file must be aligned.
        return code
    entries = bytecode.Entries(opened)
    files, used = set[int](), set[int]()
    data, offsets = list[bytes](), [write_numbers(entries.attributes)]
    offsets[0] += write_numbers(len(entries) - entries.attributes)
    for dialect, places in entries.groups():
        sizes = list[int]()
        for place in places:
            _, is_text, content = entries.at(place)
            written = content.again().rest()
            if place < entries.attributes and not is_text and written:
                kind = content.varint()
                if dialect == "builtin" and kind in _LOCATIONS:
                    written = write_numbers(_UNKNOWN)
                    if kind in _FILES:
                        files.add(content.varint())
                elif dialect == "vhlo" and kind == _PORTABLE_STRING:
                    used.add(content.varint())
            data.append(written)
            sizes.append(len(written) << 1 | (not is_text))
        offsets.append(write_numbers(opened.dialects.index(dialect), len(sizes), *sizes))
    strings = list(opened.strings)
    for number in files:
        _, _, content = entries.attribute(number)
        if content.varint() == _STRING and (string := content.varint()) not in used:
            strings[string] = b""
    return opened.write(
        {
            bytecode.ATTRIBUTES: b"".join(data),
            bytecode.OFFSETS: b"".join(offsets),
            bytecode.STRINGS: bytecode.write_strings(strings),
        }
    )
