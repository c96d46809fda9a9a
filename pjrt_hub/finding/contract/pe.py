"""PE, the format of Windows: the headers of a dynamic-link library.

Owns the reader that `headers` asks; must not open files, `LibraryFile` reads them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pjrt_hub.base.fork import cached_property
from pjrt_hub.base.frozen import replace
from pjrt_hub.finding.contract.binary import MAX_STRING, Binary, LibraryFile, Section

# Numbers of Microsoft's "PE Format".
_MACHINES = {0x14C: "i386", 0x1C4: "arm", 0x8664: "x86_64", 0xAA64: "aarch64", 0xA641: "arm64ec"}
_DLL = 0x2000
_PE32, _PE32_PLUS = 0x10B, 0x20B
_EXPORTS, _IMPORTS, _DELAYED = 0, 1, 13
_BY_OFFSET = 1  # a delayed import of today, which names no addresses

# Real ones stay far below: 11 sections, 30 imported libraries.
_MAX_SECTIONS = 256
_MAX_LIBRARIES = 4096
_MAX_EXPORTS = 1 << 16  # an ordinal has 16 bits
_MAX_SYMBOLS_NBYTES = 1 << 28


def is_pe(file: LibraryFile) -> bool:
    """Check whether a file is one, and not a program of DOS."""
    if file.nbytes < 64 or file.at(0, 2) != b"MZ":
        return False
    (at,) = file.unpack("<I", 60)
    return at + 4 <= file.nbytes and file.at(at, 4) == b"PE\0\0"


def is_wide(file: LibraryFile) -> bool:
    """Check whether it is of the only class that is read beyond the header."""
    return _Reader(file).kind == _PE32_PLUS


def read(file: LibraryFile, symbol: str) -> Binary:
    """Read what the loader reads, and check whether `symbol` is exported."""
    return _Reader(file).read(symbol)


def exports(file: LibraryFile) -> tuple[str, ...]:
    """Read the exported names; exports with only a number have none."""
    return file.names(_Reader(file).exports())


def sections(file: LibraryFile) -> tuple[Section, ...]:
    """Read the sections, and the symbols of COFF as one more."""
    return tuple(_Reader(file).sections())


class _Reader:
    """Walks one open file."""

    def __init__(self, file: LibraryFile) -> None:
        self._file = file
        (at,) = file.unpack("<I", 60)
        (
            self._machine,
            self._section_count,
            _,
            self._symbols,
            self._symbol_count,
            self._optional_nbytes,
            self._flags,
        ) = file.unpack("<HHIIIHH", at + 4)
        self._optional = at + 24
        self.kind = 0
        if self._optional_nbytes >= 2:
            (self.kind,) = file.unpack("<H", self._optional)
        if self.kind not in (_PE32, _PE32_PLUS):
            file.fail("is malformed: it is neither a 32-bit nor a 64-bit PE file")

    def read(self, symbol: str) -> Binary:
        header = Binary(
            self._file.path,
            "windows",
            64 if self.kind == _PE32_PLUS else 32,
            True,
            _MACHINES.get(self._machine, f"machine {self._machine}"),
            bool(self._flags & _DLL),
        )
        if not header.is_read:
            return header
        for each in self._rows:
            if each[4] + each[3] > self._file.nbytes:
                self._file.fail(
                    f"is truncated: a section ends at byte {each[4] + each[3]}, "
                    f"the file has {self._file.nbytes}"
                )
        return replace(
            header,
            name=self._own_name(),
            needed=tuple(self._imports()),
            optional=tuple(self._delay_imports()),
            exported=self._has(symbol.encode()),
        )

    def exports(self) -> Iterator[bytes]:
        for at in struct.unpack(f"<{len(self._names) // 4}I", self._names):
            yield self._text(at)

    def sections(self) -> Iterator[Section]:
        strings = self._symbols + 18 * self._symbol_count
        nbytes = 0
        if self._symbols and strings + 4 <= self._file.nbytes:
            (nbytes,) = self._file.unpack("<I", strings)
            if nbytes <= _MAX_SYMBOLS_NBYTES:
                yield Section("symbols", "symbols", self._symbols, strings + nbytes - self._symbols)
        for raw, _, _, size, offset in self._rows:
            name = raw.rstrip(b"\0").decode("utf-8", "surrogateescape")
            # Names of more than eight characters stand behind the symbols.
            if name[:1] == "/" and name[1:].isascii() and name[1:].isdigit():
                name = self._file.string(strings, nbytes, int(name[1:]))
            yield Section(name, _role(name), offset, size)

    @cached_property
    def _rows(self) -> list[tuple[bytes, int, int, int, int]]:
        """Each section: name, size and address in memory, size and offset in the file."""
        if self._section_count > _MAX_SECTIONS:
            self._file.fail(f"is malformed: it has {self._section_count} sections")
        data = self._file.at(self._optional + self._optional_nbytes, 40 * self._section_count)
        return [
            (name, nbytes, address, size, offset)
            for name, nbytes, address, size, offset in struct.iter_unpack("<8sIIII16x", data)
        ]

    def _directory(self, number: int) -> int:
        """Return where a table lies in memory; 0 if there is none."""
        (count,) = self._file.unpack("<I", self._optional + 108)
        if number >= count or 112 + 8 * number + 8 > self._optional_nbytes:
            return 0
        address, nbytes = self._file.unpack("<II", self._optional + 112 + 8 * number)
        return address if nbytes else 0

    def _offset(self, address: int) -> tuple[int, int]:
        """Return where an address of memory lies in the file, and how many bytes follow there."""
        for _, _, begin, size, offset in self._rows:
            if begin <= address < begin + size:
                return offset + address - begin, begin + size - address
        self._file.fail(f"is malformed: address {address:#x} lies in no section")

    def _at(self, address: int, nbytes: int) -> bytes:
        offset, most = self._offset(address)
        if nbytes > most:
            self._file.fail(f"is malformed: {nbytes} bytes at {address:#x} leave their section")
        return self._file.at(offset, nbytes)

    def _text(self, address: int) -> bytes:
        offset, most = self._offset(address)
        raw, end, _ = self._file.at(offset, min(MAX_STRING, most)).partition(b"\0")
        if not end:
            self._file.fail(f"is malformed: the text at {address:#x} has no end")
        return raw

    def _rows_at(self, address: int, layout: str) -> Iterator[tuple[int, ...]]:
        """Yield the rows of a table that ends with an empty one."""
        nbytes = struct.calcsize(layout)
        for number in range(_MAX_LIBRARIES):
            raw = self._at(address + number * nbytes, nbytes)
            if not raw.strip(b"\0"):
                return
            yield struct.unpack(layout, raw)
        self._file.fail("is malformed: its table of needed libraries has no end")

    def _own_name(self) -> str:
        if not self._exported or not (address := self._exported[4]):
            return ""
        return self._text(address).decode("utf-8", "surrogateescape")

    def _imports(self) -> Iterator[str]:
        if address := self._directory(_IMPORTS):
            for _, _, _, name, _ in self._rows_at(address, "<5I"):
                if not name:
                    return
                yield self._text(name).decode("utf-8", "surrogateescape")

    def _delay_imports(self) -> Iterator[str]:
        if address := self._directory(_DELAYED):
            (base,) = self._file.unpack("<Q", self._optional + 24)
            for flags, name, *_ in self._rows_at(address, "<8I"):
                if not name:
                    return
                at = name if flags & _BY_OFFSET else name - base
                yield self._text(at).decode("utf-8", "surrogateescape")

    @cached_property
    def _exported(self) -> tuple[int, ...]:
        """The row of the export directory, or ()."""
        address = self._directory(_EXPORTS)
        return struct.unpack("<IIHH7I", self._at(address, 40)) if address else ()

    @cached_property
    def _names(self) -> bytes:
        """The addresses of the exported names, four bytes each."""
        if not self._exported:
            return b""
        count, address = self._exported[7], self._exported[9]
        if count > _MAX_EXPORTS:
            self._file.fail(f"is malformed: it exports {count} names")
        return self._at(address, 4 * count) if count else b""

    def _has(self, symbol: bytes) -> bool:
        # Windows looks it up in halves, and so do we.
        low, high = 0, len(self._names) // 4
        while low < high:
            middle = (low + high) // 2
            (at,) = struct.unpack_from("<I", self._names, 4 * middle)
            name = self._text(at)
            if name == symbol:
                return True
            low, high = (middle + 1, high) if name < symbol else (low, middle)
        return False


def _role(name: str) -> str:
    """Classify a section by its name."""
    if name.startswith((".debug_", ".zdebug_")):
        return "debug"
    return "data" if name in (".rdata", ".data") else ""
