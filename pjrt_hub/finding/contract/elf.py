"""The headers of a shared library in ELF, the format of Linux.

Owns the reader that `headers` uses; must not open files, which it reads through `LibraryFile`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract.binary import Binary, LibraryFile, Section

MAGIC = b"\x7fELF"

# The numbers are from the ELF specification (System V ABI; gABI chapters 4 and 5).
_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64", 21: "ppc64le"}
_SHARED_OBJECT = 3
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_PF_X = 1
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 1, 4, 5, 6, 10
_DT_SONAME, _DT_RPATH, _DT_TEXTREL, _DT_RUNPATH, _DT_FLAGS = 14, 15, 22, 29, 30
_DF_TEXTREL = 4
_SHT_NOBITS, _SHT_DYNSYM, _SHN_ABS = 8, 11, 0xFFF1
_DT_GNU_HASH, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFEF5, 0x6FFFFFFE, 0x6FFFFFFF

# Real plugins stay far below these limits: they have 12 segments.
_MAX_SEGMENTS = 1024
_MAX_DYNAMIC = 4096
_MAX_STEPS = 65536


class Reader:
    """A reader of one open file."""

    def __init__(self, file: LibraryFile) -> None:
        self._file = file
        # Each segment has an address, an offset in the file, and a number of bytes.
        self._loads: list[tuple[int, int, int]] = []

    def read(self, symbol: str) -> Binary:
        """Read what the loader reads, and check whether `symbol` is exported."""
        ident = self._file.at(0, min(64, self._file.nbytes))
        if len(ident) < 64:
            self._file.fail(f"is truncated: {self._file.nbytes} bytes do not hold an ELF header")
        bits, little = {1: 32, 2: 64}.get(ident[4], 0), ident[5] == 1
        kind, machine = struct.unpack_from("<HH" if little else ">HH", ident, 16)
        header = Binary(
            self._file.path,
            "linux",
            bits,
            little,
            _MACHINES.get(machine, f"machine {machine}"),
            kind == _SHARED_OBJECT,
        )
        if bits != 64 or not little:
            return header
        return self._body(header, ident, symbol)

    def _body(self, header: Binary, ident: bytes, symbol: str) -> Binary:
        (table,) = struct.unpack_from("<Q", ident, 32)
        entry_nbytes, count = struct.unpack_from("<HH", ident, 54)
        if entry_nbytes != 56 or count > _MAX_SEGMENTS:
            self._file.fail(f"is malformed: {count} program headers of {entry_nbytes} bytes")
        dynamic: tuple[int, int] | None = None
        stack = _PF_X  # The loader makes stacks executable unless the file says otherwise.
        for kind, flags, offset, address, _, nbytes, _, _ in struct.iter_unpack(
            "<IIQQQQQQ", self._file.at(table, count * 56)
        ):
            if kind == _PT_LOAD:
                if offset + nbytes > self._file.nbytes:
                    self._file.fail(
                        f"is truncated: a segment ends at byte {offset + nbytes}, "
                        f"the file has {self._file.nbytes}"
                    )
                self._loads.append((address, offset, nbytes))
            elif kind == _PT_DYNAMIC:
                dynamic = (offset, nbytes)
            elif kind == _PT_GNU_STACK:
                stack = flags
        if dynamic is None:
            self._file.fail("is malformed: it has no dynamic section")
        header = header._replace(executable_stack=bool(stack & _PF_X))
        return self._dynamic(header, *dynamic, symbol)

    def _dynamic(self, header: Binary, offset: int, nbytes: int, symbol: str) -> Binary:
        listed: list[tuple[int, int]] = []
        data = self._file.at(offset, min(nbytes, _MAX_DYNAMIC * 16) // 16 * 16)
        for tag, value in struct.iter_unpack("<QQ", data):
            if tag == 0:
                break
            listed.append((tag, value))
        single = dict(listed)
        if _DT_STRTAB not in single:
            self._file.fail("is malformed: its dynamic section has no string table")
        strings = (self._offset(single[_DT_STRTAB]), single.get(_DT_STRSZ, 0))

        def texts(tag: int) -> tuple[str, ...]:
            return tuple(self._file.string(*strings, value) for key, value in listed if key == tag)

        runpath, rpath = texts(_DT_RUNPATH), texts(_DT_RPATH)
        return header._replace(
            name="".join(texts(_DT_SONAME)[:1]),
            needed=texts(_DT_NEEDED),
            rpath=() if self._folders(runpath) else self._folders(rpath),
            runpath=self._folders(runpath),
            run_paths=tuple(part for text in (*rpath, *runpath) for part in text.split(":")),
            versions=tuple(self._versions(single, strings)),
            exported=self._exports(single, strings, symbol),
            text_relocations=_DT_TEXTREL in single or bool(single.get(_DT_FLAGS, 0) & _DF_TEXTREL),
        )

    def sections(self) -> tuple[Section, ...]:
        """Read the section headers; none if they were stripped."""
        return tuple(
            Section(name, _role(name), offset, nbytes)
            for name, _, offset, nbytes, _ in self._rows()
        )

    def _rows(self) -> tuple[tuple[str, int, int, int, int], ...]:
        """Return each section's name, type, offset, bytes, and the index that it refers to."""
        ident = self._file.at(0, min(64, self._file.nbytes))
        if len(ident) < 64 or ident[:6] != MAGIC + b"\x02\x01":
            raise PluginLoadError(
                f"{self._file.path} is not a 64-bit little-endian library", path=self._file.path
            )
        (table,) = struct.unpack_from("<Q", ident, 40)
        entry_nbytes, count, names = struct.unpack_from("<HHH", ident, 58)
        if not table or not count:
            return ()
        if entry_nbytes != 64 or names >= count:
            self._file.fail(f"is malformed: {count} section headers of {entry_nbytes} bytes")
        rows = list(struct.iter_unpack("<IIQQQQIIQQ", self._file.at(table, count * 64)))
        strings = (rows[names][4], rows[names][5])
        return tuple(
            (
                self._file.string(*strings, name),
                kind,
                offset,
                0 if kind == _SHT_NOBITS else nbytes,
                link,
            )
            for name, kind, _, _, offset, nbytes, link, _, _, _ in rows
        )

    def exports(self) -> tuple[str, ...]:
        """Read the exported names; none without section headers."""
        return self._file.names(self._symbols())

    def _symbols(self) -> Iterator[bytes]:
        listed = self._rows()
        for _, kind, offset, nbytes, link in listed:
            if kind != _SHT_DYNSYM:
                continue
            if link >= len(listed):
                self._file.fail(f"is malformed: its symbols have the strings of section {link}")
            _, _, begin, size, _ = listed[link]
            text = self._file.at(begin, size)
            symbols = self._file.at(offset, nbytes // 24 * 24)
            for name, info, other, section, value, _ in struct.iter_unpack("<IBBHQQ", symbols):
                if section == _SHN_ABS and not value:
                    continue  # This is the name of a symbol version.
                # An export is defined; global, weak or unique; of default or protected visibility.
                if section and info >> 4 in (1, 2, 10) and other & 3 in (0, 3):
                    yield self._file.symbol(text, name)

    def _folders(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        # For a link, $ORIGIN is the link's folder: the loader does not look beside the real file.
        origin = str(self._file.path.absolute().parent)
        return tuple(
            _shorten(part.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
            for path in paths
            for part in path.split(":")
            if part
        )

    def _versions(
        self, single: dict[int, int], strings: tuple[int, int]
    ) -> Iterator[tuple[str, str]]:
        if _DT_VERNEED not in single:
            return
        steps = 0
        need = self._offset(single[_DT_VERNEED])
        for _ in range(min(single.get(_DT_VERNEEDNUM, 0), _MAX_STEPS)):
            _, count, file, aux, following = struct.unpack("<HHIII", self._file.at(need, 16))
            library, entry = self._file.string(*strings, file), need + aux
            for _ in range(count):
                steps += 1
                if steps > _MAX_STEPS:
                    self._file.fail("is malformed: its table of needed versions has no end")
                _, _, _, name, step = struct.unpack("<IHHII", self._file.at(entry, 16))
                yield library, self._file.string(*strings, name)
                entry += step
            need += following
            if not following:
                return

    def _exports(self, single: dict[int, int], strings: tuple[int, int], symbol: str) -> bool:
        # Like glibc, this finds a symbol only through one of the two hash tables.
        if _DT_SYMTAB not in single:
            return False
        symbols = self._offset(single[_DT_SYMTAB])
        if _DT_GNU_HASH in single:
            found = self._gnu_chain(self._offset(single[_DT_GNU_HASH]), symbol)
        elif _DT_HASH in single:
            found = self._sysv_chain(self._offset(single[_DT_HASH]), symbol)
        else:
            return False
        for index in found:
            name, _, _, section = struct.unpack("<IBBH", self._file.at(symbols + index * 24, 8))
            if section and self._file.string(*strings, name) == symbol:
                return True
        return False

    def _gnu_chain(self, table: int, symbol: str) -> Iterator[int]:
        buckets, first, blooms, _ = struct.unpack("<IIII", self._file.at(table, 16))
        if not buckets:
            return
        wanted = 5381
        for byte in symbol.encode():
            wanted = (wanted * 33 + byte) & 0xFFFFFFFF
        heads = table + 16 + blooms * 8
        (index,) = struct.unpack("<I", self._file.at(heads + wanted % buckets * 4, 4))
        for _ in range(_MAX_STEPS):
            if index < first:
                return
            position = heads + buckets * 4 + (index - first) * 4
            (value,) = struct.unpack("<I", self._file.at(position, 4))
            if value | 1 == wanted | 1:
                yield index
            if value & 1:
                return
            index += 1

    def _sysv_chain(self, table: int, symbol: str) -> Iterator[int]:
        buckets, _ = struct.unpack("<II", self._file.at(table, 8))
        if not buckets:
            return
        wanted = 0
        for byte in symbol.encode():
            wanted = ((wanted << 4) + byte) & 0xFFFFFFFF
            wanted = (wanted ^ ((wanted & 0xF0000000) >> 24)) & 0x0FFFFFFF
        (index,) = struct.unpack("<I", self._file.at(table + 8 + wanted % buckets * 4, 4))
        for _ in range(_MAX_STEPS):
            if not index:
                return
            yield index
            (index,) = struct.unpack("<I", self._file.at(table + 8 + (buckets + index) * 4, 4))

    def _offset(self, address: int) -> int:
        for begin, offset, nbytes in self._loads:
            if begin <= address < begin + nbytes:
                return offset + address - begin
        self._file.fail(f"is malformed: address {address:#x} lies in no segment")


def _role(name: str) -> str:
    """Classify a section by its name."""
    if name.startswith((".debug_", ".zdebug_")):
        return "debug"
    if name in (".symtab", ".strtab"):
        return "symbols"
    return "data" if name.startswith((".rodata", ".data")) else ""


def _shorten(folder: str) -> str:
    """Return a folder without "..", unless that names another one, as it may behind a link."""
    short = os.path.normpath(folder)
    return short if os.path.realpath(short) == os.path.realpath(folder) else folder
