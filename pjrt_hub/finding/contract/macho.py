"""Mach-O, the format of macOS, thin and universal: the headers of a shared library.

Owns the reader that `headers` asks; must not open files, `LibraryFile` reads them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any

from pjrt_hub.base.fork import cached_property
from pjrt_hub.finding.contract.binary import (
    MAX_NAMES_NBYTES,
    MAX_SYMBOL,
    Binary,
    LibraryFile,
    Section,
)

# Numbers of <mach-o/loader.h>, <mach-o/fat.h>, <mach-o/nlist.h> and <mach/machine.h>.
_MAGIC_64 = b"\xcf\xfa\xed\xfe"
MAGICS = (_MAGIC_64, b"\xce\xfa\xed\xfe", b"\xfe\xed\xfa\xcf", b"\xfe\xed\xfa\xce")
_UNIVERSAL, _UNIVERSAL_64 = b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf"
_MACHINES = {
    7: "i386",
    12: "arm",
    18: "ppc",
    0x01000007: "x86_64",
    0x0100000C: "aarch64",
    0x01000012: "ppc64",
    0x0200000C: "arm64_32",
}
#: Machines of which not every one of their kind can run the code.
_SUBTYPES = {(0x01000007, 8): "x86_64h", (0x0100000C, 2): "arm64e"}
_SYSTEMS = {1: "macos", 2: "ios", 3: "tvos", 4: "watchos", 5: "bridgeos", 6: "ios", 11: "visionos"}
_DYLIB, _BUNDLE = 6, 8
_REQUIRED = 0x80000000  # the loader must know the command
_SYMTAB, _DYSYMTAB, _LOAD_DYLIB, _ID_DYLIB, _LOAD_WEAK = 0x2, 0xB, 0xC, 0xD, 0x18
_SEGMENT, _RPATH, _REEXPORT, _LAZY_LOAD, _DYLD_INFO = 0x19, 0x1C, 0x1F, 0x20, 0x22
_LOAD_UPWARD, _VERSION_MIN, _BUILD_VERSION, _EXPORTS_TRIE = 0x23, 0x24, 0x32, 0x33
_N_STAB, _N_PEXT, _N_TYPE, _N_EXT, _N_UNDF = 0xE0, 0x10, 0x0E, 0x01, 0x0
_ZERO_FILLED = (0x1, 0xC, 0x12)

# Real ones stay far below: 3 parts, 40 commands in 6 KB; jaxlib's names take 200 KB.
_MAX_PARTS = 16
_MAX_JAVA = 43  # where a universal file counts its parts, Java tells a version, from 45 on
_MAX_COMMANDS_NBYTES = 1 << 20
_MAX_TRIE_NBYTES = 1 << 26
_MAX_NODES = 1 << 20
_MAX_SYMBOLS_NBYTES = 1 << 26


def is_universal(begin: bytes) -> bool:
    """Check whether a file that begins so holds a library for each of several machines."""
    return (begin[:4] == _UNIVERSAL and int.from_bytes(begin[4:8], "big") < _MAX_JAVA) or begin[
        :4
    ] == _UNIVERSAL_64


def universal(file: LibraryFile) -> list[LibraryFile]:
    """Return the parts of a universal file.

    Raises:
        PluginLoadError: there are none or too many, or one is not a library.
    """
    magic, count = file.unpack(">4sI", 0)
    if not 0 < count <= _MAX_PARTS:
        file.fail(f"is malformed: it is a universal library of {count} parts")
    layout = ">iIIII" if magic == _UNIVERSAL else ">iIQQII"
    rows = struct.iter_unpack(layout, file.at(8, count * struct.calcsize(layout)))
    parts = [file.part(row[2], row[3]) for row in rows]
    ends = 0
    for part in sorted(parts, key=lambda each: each.begin):
        if part.begin < ends:
            file.fail("is malformed: the parts of the universal library overlap")
        ends = part.begin + part.nbytes
    for part in parts:
        if (begin := part.at(0, min(4, part.nbytes))) not in MAGICS:
            file.fail(f"is not a shared library: a part of it begins with {begin!r}")
    return parts


def is_wide(file: LibraryFile) -> bool:
    """Check whether it is of the only class that is read beyond the header."""
    return file.at(0, 4) == _MAGIC_64


def read(file: LibraryFile, symbol: str) -> Binary:
    """Read what the loader reads, and check whether `symbol` is exported."""
    return _Reader(file).read(symbol)


def exports(file: LibraryFile) -> tuple[str, ...]:
    """Read the exported names, as C writes them."""
    # `dlsym` puts an underscore before each name; it finds none that has none.
    return file.names(name[1:] for name in _Reader(file).exports() if name[:1] == b"_")


def sections(file: LibraryFile) -> tuple[Section, ...]:
    """Read the sections, and the local symbols as one more."""
    return tuple(_Reader(file).sections())


class _Reader:
    """Walks one open file."""

    def __init__(self, file: LibraryFile) -> None:
        self._file = file

    def read(self, symbol: str) -> Binary:
        magic = self._file.at(0, 4)
        little, bits = magic[0] < magic[3], 64 if 0xCF in magic else 32
        kind, subtype, file_type = self._file.unpack("<III" if little else ">III", 4)
        machine = _SUBTYPES.get((kind, subtype & 0xFFFFFF)) or _MACHINES.get(kind)
        machine, shared = machine or f"machine {kind}", file_type in (_DYLIB, _BUNDLE)
        if magic != _MAGIC_64:
            return Binary(self._file.path, "macos", bits, little, machine, shared)
        system, minimum = self._system()
        run_paths = tuple(self._texts(_RPATH))
        return Binary(
            self._file.path,
            system,
            bits,
            little,
            machine,
            shared,
            name="".join([*self._texts(_ID_DYLIB)][:1]),
            needed=tuple(self._texts(_LOAD_DYLIB, _REEXPORT, _LOAD_UPWARD)),
            optional=tuple(self._texts(_LOAD_WEAK, _LAZY_LOAD)),
            runpath=tuple(map(self._expand, run_paths)),
            run_paths=run_paths,
            minimum=minimum,
            exported=bool(symbol) and self._has(b"_" + symbol.encode()),
        )

    def exports(self) -> Iterator[bytes]:
        trie = self._trie()
        return self._symbols() if trie is None else self._walk(trie)

    def sections(self) -> Iterator[Section]:
        for data in self._of(_SEGMENT):
            (count,) = self._fields("<I", data, 64)
            for number in range(count):
                name, segment, _, nbytes, offset, _, _, _, flags = self._fields(
                    "<16s16sQQIIIII", data, 72 + 80 * number
                )
                name, segment = (
                    each.rstrip(b"\0").decode("utf-8", "surrogateescape")
                    for each in (name, segment)
                )
                size = 0 if flags & 0xFF in _ZERO_FILLED else nbytes
                yield Section(f"{segment},{name}", _role(segment, name), offset, size)
        for symbols, ranges in zip(self._of(_SYMTAB), self._of(_DYSYMTAB), strict=False):
            (offset,) = self._fields("<I", symbols, 8)
            first, count = self._fields("<II", ranges, 8)
            yield Section("local symbols", "symbols", offset + 16 * first, 16 * count)

    @cached_property
    def _commands(self) -> list[tuple[int, bytes]]:
        """Each load command: its number, and all its bytes."""
        count, nbytes = self._file.unpack("<II", 16)
        if nbytes > _MAX_COMMANDS_NBYTES:
            self._file.fail(f"is malformed: {nbytes} bytes of load commands")
        data, at, found = self._file.at(32, nbytes), 0, []
        for _ in range(count):
            if at + 8 > nbytes:
                self._file.fail(f"is malformed: {count} load commands in {nbytes} bytes")
            kind, size = struct.unpack_from("<II", data, at)
            if size < 8 or at + size > nbytes:
                self._file.fail(f"is malformed: a load command has {size} bytes")
            found.append((kind & ~_REQUIRED, data[at : at + size]))
            at += size
        for kind, command in found:
            if kind == _SEGMENT:
                offset, size = self._fields("<QQ", command, 40)
                if offset + size > self._file.nbytes:
                    self._file.fail(
                        f"is truncated: a segment ends at byte {offset + size}, "
                        f"the library has {self._file.nbytes}"
                    )
        return found

    def _of(self, *kinds: int) -> Iterator[bytes]:
        return (data for kind, data in self._commands if kind in kinds)

    def _fields(self, layout: str, data: bytes, at: int) -> tuple[Any, ...]:
        """Read a part of a load command."""
        if at + struct.calcsize(layout) > len(data):
            self._file.fail(f"is malformed: a load command has only {len(data)} bytes")
        return struct.unpack_from(layout, data, at)

    def _texts(self, *kinds: int) -> Iterator[str]:
        """Read the text of each such command: its offset follows number and size."""
        for data in self._of(*kinds):
            (at,) = self._fields("<I", data, 8)
            if not 12 <= at < len(data):
                self._file.fail(f"is malformed: a text at byte {at} of {len(data)}")
            yield data[at:].partition(b"\0")[0].decode("utf-8", "surrogateescape")

    def _system(self) -> tuple[str, tuple[int, ...]]:
        """Return the system it is built for; macOS and another of Apple's count as macOS."""
        found: dict[str, int] = {}
        for data in self._of(_BUILD_VERSION):
            platform, minimum = self._fields("<II", data, 8)
            found.setdefault(_SYSTEMS.get(platform, f"platform {platform}"), minimum)
        for data in self._of(_VERSION_MIN):
            (minimum,) = self._fields("<I", data, 8)
            found.setdefault("macos", minimum)
        system = "macos" if "macos" in found or not found else next(iter(found))
        minimum = found.get(system, 0)
        version = (minimum >> 16, minimum >> 8 & 0xFF, minimum & 0xFF)
        return system, (version if version[2] else version[:2]) if minimum else ()

    def _expand(self, path: str) -> str:
        here = str(self._file.path.resolve().parent)
        return os.path.normpath(path.replace("@loader_path", here, 1)) if path else path

    def _trie(self) -> bytes | None:
        """Find the exported names as a tree; None if only the symbol table has them."""
        for kinds, at in ((_EXPORTS_TRIE, 8), (_DYLD_INFO, 40)):
            for data in self._of(kinds):
                offset, nbytes = self._fields("<II", data, at)
                if nbytes > _MAX_TRIE_NBYTES:
                    self._file.fail(f"is malformed: {nbytes} bytes of exported names")
                if nbytes:
                    return self._file.at(offset, nbytes)
        return None

    def _has(self, symbol: bytes) -> bool:
        trie = self._trie()
        if trie is None:
            return any(each == symbol for each in self._symbols())
        at, rest = 0, symbol
        while True:  # an edge of no characters is taken by none, so each step makes it shorter
            ends, edges, _ = self._node(trie, at)
            if not rest:
                return ends
            taken = [(text, child) for text, child in edges if text and rest.startswith(text)]
            if not taken:
                return False
            text, at = taken[0]
            rest = rest[len(text) :]

    def _walk(self, trie: bytes) -> Iterator[bytes]:
        waiting, seen, left = [(0, b"")], 0, MAX_NAMES_NBYTES
        for _ in range(_MAX_NODES):
            if not waiting:
                return
            at, name = waiting.pop()
            ends, edges, nbytes = self._node(trie, at)
            seen += nbytes
            left -= sum(len(name) + len(text) for text, _ in edges)
            # The nodes of a tree have each its own bytes.
            if seen > len(trie) or left < 0:
                self._file.fail("is malformed: its exported names are not a tree, or have no end")
            if ends:
                yield name
            waiting.extend((child, name + text) for text, child in reversed(edges))
        self._file.fail(f"is malformed: its exported names are more than {_MAX_NODES}")

    def _node(self, trie: bytes, at: int) -> tuple[bool, list[tuple[bytes, int]], int]:
        """Read a node: whether a name ends there, its edges (text, and target), and its bytes."""
        begin = at
        nbytes, at = self._uleb(trie, at)
        at += nbytes
        edges = []
        if at < len(trie):
            for _ in range(trie[at]):
                end = trie.find(b"\0", at + 1, at + 1 + MAX_SYMBOL)
                if end < 0:
                    self._file.fail(f"is malformed: the exported name at {at} has no end")
                child, following = self._uleb(trie, end + 1)
                edges.append((trie[at + 1 : end], child))
                at = following - 1
        if at >= len(trie):
            self._file.fail("is malformed: its exported names end within one")
        return nbytes > 0, edges, at + 1 - begin

    def _uleb(self, data: bytes, at: int) -> tuple[int, int]:
        """Read a number of seven bits a byte, and return where it ends."""
        value = 0
        for shift, byte in zip(range(0, 63, 7), data[at : at + 9], strict=False):
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at + shift // 7 + 1
        self._file.fail(f"is malformed: its exported names have no number at byte {at}")

    def _symbols(self) -> Iterator[bytes]:
        """Yield the names that the symbol table exports."""
        for data in self._of(_SYMTAB):
            offset, count, strings, nbytes = self._fields("<IIII", data, 8)
            if count * 16 > _MAX_SYMBOLS_NBYTES or nbytes > _MAX_SYMBOLS_NBYTES:
                self._file.fail(f"is malformed: {count} symbols with names of {nbytes} bytes")
            text = self._file.at(strings, nbytes)
            for at, kind, _, _, _ in struct.iter_unpack(
                "<IBBHQ", self._file.at(offset, count * 16)
            ):
                defined = kind & _N_EXT and kind & _N_TYPE != _N_UNDF
                if defined and not kind & (_N_STAB | _N_PEXT):
                    yield self._file.symbol(text, at)


def _role(segment: str, name: str) -> str:
    """Classify a section by its name."""
    if segment == "__DWARF":
        return "debug"
    constant = segment == "__TEXT" and name in ("__const", "__cstring")
    return "data" if constant or segment.startswith("__DATA") else ""
