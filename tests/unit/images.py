"""macOS and Windows libraries, written byte by byte and as small as the loaders accept."""

import struct
from collections.abc import Sequence

ARM64, X86_64, I386 = (0x0100000C, 0), (0x01000007, 3), (7, 3)
DYLIB, BUNDLE, EXECUTE = 6, 8, 2
LOAD, WEAK, REEXPORT, LAZY, UPWARD = 0xC, 0x80000018, 0x8000001F, 0x20, 0x80000023
MACOS, IOS, CATALYST = 1, 2, 6
AMD64, ARM64_PE = 0x8664, 0xAA64


def _padded(data: bytes, to: int = 8) -> bytes:
    return data + bytes(-len(data) % to)


def _text(kind: int, text: str, head: bytes = b"") -> bytes:
    """A load command that ends with a text."""
    body = _padded(head + text.encode() + b"\0")
    return struct.pack("<III", kind, 12 + len(body), 12 + len(head)) + body


def _command(kind: int, body: bytes) -> bytes:
    return struct.pack("<II", kind, 8 + len(body)) + body


def _segment(name: bytes, section: bytes, nbytes: int, section_nbytes: int) -> bytes:
    """A load command for a segment with one section at the beginning of the file."""
    head = struct.pack("<16sQQQQIIII", name, 0, nbytes, 0, nbytes, 5, 5, 1, 0)
    return _command(0x19, head + struct.pack("<16s16sQQ32x", section, name, 0, section_nbytes))


def trie(names: Sequence[str]) -> bytes:
    """The exported names as a trie of dyld, in which each name is a leaf below the root."""
    leaf = b"\2\0\x10\0"
    texts = [name.encode() + b"\0" for name in names]
    begin = 2 + sum(map(len, texts)) + 2 * len(names)  # each offset has two bytes
    places = [begin + len(leaf) * number for number in range(len(names))]
    edges = [
        text + bytes([place & 0x7F | 0x80, place >> 7])
        for text, place in zip(texts, places, strict=True)
    ]
    return b"\0" + bytes([len(names)]) + b"".join(edges) + leaf * len(names)


def macho(
    names: Sequence[str] = ("_GetPjrtApi",),  # exported names with their underscores
    *,
    machine: tuple[int, int] = ARM64,  # type and subtype of the processor
    kind: int = DYLIB,
    libraries: Sequence[tuple[int, str]] = ((LOAD, "/usr/lib/libSystem.B.dylib"),),
    run_paths: Sequence[str] = (),
    systems: Sequence[tuple[int, int]] = ((MACOS, 0x000B0000),),  # each with its oldest version
    version_min: int = 0,  # the version in LC_VERSION_MIN_MACOSX, or 0
    exports: str = "trie",  # LC_DYLD_EXPORTS_TRIE, or "info" (LC_DYLD_INFO_ONLY), or "symbols"
    locals_count: int = 0,  # number of local symbols, which nothing reads
) -> bytes:
    """A Mach-O library."""
    tree = trie(names) if exports != "symbols" else b""
    strings, rows = bytearray(b"\0_local\0"), [(1, 0x0E, 1, 0, 0)] * locals_count
    for name in names:
        rows.append((len(strings), 0x0F, 1, 0, 0x10))  # an external symbol of a section
        strings += name.encode() + b"\0"
    for name, shown in (("_undefined", 0x01), ("_hidden", 0x1F), ("_debugged", 0x2F)):
        rows.append((len(strings), shown, 0, 0, 0))
        strings += name.encode() + b"\0"
    symbols = b"".join(struct.pack("<IBBHQ", *row) for row in rows)

    def commands(begin: int) -> list[bytes]:
        at_symbols = begin + len(tree)
        at_strings = at_symbols + len(symbols)
        end = at_strings + len(strings)
        found = [
            _segment(b"__TEXT", b"__const", end, begin),
            _segment(b"__DWARF", b"__debug_str", 0, 8),
            _text(0xD, "@rpath/libtoy.dylib", struct.pack("<III", 2, 0, 0)),
        ]
        for platform, version in systems:
            found.append(_command(0x32, struct.pack("<IIII", platform, version, version, 0)))
        if version_min:
            found.append(_command(0x24, struct.pack("<II", version_min, version_min)))
        if exports == "info":
            fields = (0, 0, 0, 0, 0, 0, 0, 0, begin, len(tree))
            found.append(_command(0x80000022, struct.pack("<10I", *fields)))
        elif exports == "trie":
            found.append(_command(0x80000033, struct.pack("<II", begin, len(tree))))
        table = (at_symbols, len(rows), at_strings, len(strings))
        found.append(_command(0x2, struct.pack("<IIII", *table)))
        found.append(_command(0xB, struct.pack("<18I", 0, locals_count, *[0] * 16)))
        found += [_text(one, name, struct.pack("<III", 2, 0, 0)) for one, name in libraries]
        found += [_text(0x8000001C, path) for path in run_paths]
        return found

    begin = 32 + sum(map(len, commands(0)))
    body = b"".join(commands(begin))
    counts = (len(commands(0)), len(body))
    head = struct.pack("<IIIIIIII", 0xFEEDFACF, *machine, kind, *counts, 0x85, 0)
    return head + body + tree + symbols + bytes(strings)


def universal(*parts: bytes) -> bytes:
    """A universal library of these parts, as `lipo` makes it."""
    begin = 4096
    rows, body = b"", b""
    for part in parts:
        kind, subtype = struct.unpack_from("<II", part, 4)
        at = begin + len(body)
        rows += struct.pack(">IIIII", kind, subtype, at, len(part), 3)
        body += _padded(part, 8)
    head = struct.pack(">II", 0xCAFEBABE, len(parts)) + rows
    return head + bytes(begin - len(head)) + body


def pe(
    names: Sequence[str] = ("GetPjrtApi",),  # exported names in the table's order
    *,
    machine: int = AMD64,
    dll: bool = True,  # whether the header marks a library
    needed: Sequence[str] = ("KERNEL32.dll",),
    wide: bool = True,  # whether it is a 64-bit PE32+ file
    symbols: int = 0,  # number of COFF symbols, which nothing reads
) -> bytes:
    """A dynamic-link library of Windows."""
    base, address, offset = 0x400000, 0x1000, 0x400
    data = bytearray()

    def put(raw: bytes) -> int:
        """Add some bytes, and give their address."""
        at = address + len(data)
        data.extend(_padded(raw, 4))
        return at

    texts = [put(name.encode() + b"\0") for name in names]
    table = put(struct.pack(f"<{len(names)}I", *texts))
    ordinals = put(struct.pack(f"<{len(names)}H", *range(len(names))))
    functions = put(struct.pack(f"<{len(names)}I", *[address] * len(names)))
    own = put(b"toy.dll\0")
    counts = (1, len(names), len(names))
    listed = put(struct.pack("<IIHH7I", 0, 0, 0, 0, own, *counts, functions, table, ordinals))
    rows = [struct.pack("<5I", 0, 0, 0, put(name.encode() + b"\0"), 0) for name in needed]
    imports = put(b"".join(rows) + bytes(20))
    directories = [(0, 0)] * 16
    directories[0] = (listed, 40) if names else (0, 0)
    directories[1] = (imports, 20 * (len(needed) + 1)) if needed else (0, 0)
    optional = struct.pack("<HBBIIIII", 0x20B if wide else 0x10B, 14, 0, 0, 0, 0, 0, address)
    versions = (6, 0) * 3
    optional += struct.pack("<QII6H16xH38xI", base, 0x1000, 0x200, *versions, 3, 16)
    optional += b"".join(struct.pack("<II", *each) for each in directories)
    body = _padded(bytes(data), 512)
    long_name = b".debug_information\0"
    table_at = offset + len(body) if symbols else 0
    tail = b""
    if symbols:
        tail = bytes(18 * symbols) + struct.pack("<I", 4 + len(long_name)) + long_name
    sections = struct.pack("<8sIIII16x", b".rdata", len(data), address, len(body), offset)
    if symbols:
        sections += struct.pack("<8sIIII16x", b"/4", 0, 0x100000, 512, offset)
    count, flags = 1 + bool(symbols), 0x22 | (0x2000 if dll else 0)
    head = b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\0\0"
    head += struct.pack("<HHIIIHH", machine, count, 0, table_at, symbols, len(optional), flags)
    head += optional + sections
    return head + bytes(offset - len(head)) + body + tail
