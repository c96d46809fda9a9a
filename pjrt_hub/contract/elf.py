"""A shared library's ELF headers, read without loading it (layer 1).

Owns `inspect`: bytes -> `ElfFile`. Every offset is checked and every loop bounded: hostile bytes
give PluginLoadError, nothing else, and a 500 MB file costs a few page reads.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn

from pjrt_hub.errors import PluginLoadError
from pjrt_hub.frozen import frozen, replace

ENTRY_POINT = "GetPjrtApi"

# Numbers of the ELF specification (System V ABI; gABI chapters 4 and 5).
_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64", 21: "ppc64le"}
_SHARED_OBJECT = 3
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_PF_X = 1
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 1, 4, 5, 6, 10
_DT_SONAME, _DT_RPATH, _DT_TEXTREL, _DT_RUNPATH, _DT_FLAGS = 14, 15, 22, 29, 30
_DF_TEXTREL = 4
_SHT_NOBITS, _SHT_DYNSYM, _SHN_ABS = 8, 11, 0xFFF1
_DT_GNU_HASH, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFEF5, 0x6FFFFFFE, 0x6FFFFFFF

# Real plugins stay far below: 18 run paths, 30 needed libraries, 12 segments.
_MAX_SEGMENTS = 1024
_MAX_DYNAMIC = 4096
_MAX_STRING = 8192
_MAX_STEPS = 65536


@frozen
class ElfFile:
    """What the dynamic loader will read of a library.

    Attributes:
        path: the file.
        bits: 32 or 64; of another class than 64-bit little-endian only the header is read.
        little: whether it is little-endian.
        machine: "x86_64", "aarch64", ... or "machine 17".
        shared: whether it is a shared object.
        soname: DT_SONAME, or an empty string.
        needed: DT_NEEDED, in order.
        rpath: DT_RPATH with $ORIGIN expanded; empty where there is a DT_RUNPATH, which hides it.
        runpath: DT_RUNPATH with $ORIGIN expanded.
        run_paths: both as they are written.
        versions: (library, version) pairs that it needs, such as ("libc.so.6", "GLIBC_2.27").
        exported: whether it exports `GetPjrtApi`.
        executable_stack: whether loading it makes the stacks of the process executable.
        text_relocations: whether loading it writes into its code.
    """

    path: Path
    bits: int
    little: bool
    machine: str
    shared: bool
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    exported: bool = False
    run_paths: tuple[str, ...] = ()
    executable_stack: bool = False
    text_relocations: bool = False

    @property
    def glibc(self) -> tuple[int, ...]:
        """The oldest glibc that has every symbol version needed; () where none is."""
        numbers = [
            tuple(int(part) for part in version[6:].split("."))
            for _, version in self.versions
            if version.startswith("GLIBC_")
            and all(part.isascii() and part.isdigit() for part in version[6:].split("."))
        ]
        return max(numbers, default=())


def inspect(path: Path, symbol: str = ENTRY_POINT) -> ElfFile:
    """Reads a library's headers.

    Args:
        path: an absolute path.
        symbol: the exported symbol to look for.

    Raises:
        PluginLoadError: it cannot be read, is no ELF file, is truncated or malformed.
    """
    with _opened(path) as reader:
        return reader.read(symbol)


@frozen
class Section:
    """A section of the file, which only tools look at: libraries load without any.

    Attributes:
        name: ".debug_info".
        kind: its type.
        offset: where it begins in the file.
        nbytes: how much of the file it takes.
        link: the index of the section that it refers to.
    """

    name: str
    kind: int
    offset: int
    nbytes: int
    link: int


def sections(path: Path) -> tuple[Section, ...]:
    """Reads the section headers; none where they were stripped.

    Raises:
        PluginLoadError: it cannot be read, is no 64-bit ELF file, is truncated or malformed.
    """
    with _opened(path) as reader:
        return reader.sections()


def exports(path: Path) -> tuple[str, ...]:
    """Reads the names that a library gives to others, sorted; none without section headers.

    Raises:
        PluginLoadError: it cannot be read, is no 64-bit ELF file, is truncated or malformed.
    """
    with _opened(path) as reader:
        return tuple(sorted(set(reader.exports())))


@contextmanager
def _opened(path: Path) -> Iterator[_Reader]:
    try:
        # Asked before opening: to open a FIFO is to wait for its writer.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise PluginLoadError(f"{path} is not a regular file", path=path)
        with path.open("rb", buffering=0) as file:
            yield _Reader(path, file)
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise PluginLoadError(f"{path} cannot be read: {reason}", path=path) from exc


class _Reader:
    """Walks one open file; every read goes through `_at`."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._nbytes = os.fstat(file.fileno()).st_size
        self._loads: list[tuple[int, int, int]] = []  # address, offset in the file, bytes

    def read(self, symbol: str) -> ElfFile:
        ident = self._at(0, min(64, self._nbytes))
        if ident[:4] != b"\x7fELF":
            self._fail(f"is not an ELF library: it is {_kind(ident)}")
        if len(ident) < 64:
            self._fail(f"is truncated: {self._nbytes} bytes do not hold an ELF header")
        bits, little = {1: 32, 2: 64}.get(ident[4], 0), ident[5] == 1
        kind, machine = struct.unpack_from("<HH" if little else ">HH", ident, 16)
        header = ElfFile(
            self._path,
            bits,
            little,
            _MACHINES.get(machine, f"machine {machine}"),
            kind == _SHARED_OBJECT,
        )
        if bits != 64 or not little:
            return header
        return self._body(header, ident, symbol)

    def _body(self, header: ElfFile, ident: bytes, symbol: str) -> ElfFile:
        (table,) = struct.unpack_from("<Q", ident, 32)
        entry_nbytes, count = struct.unpack_from("<HH", ident, 54)
        if entry_nbytes != 56 or count > _MAX_SEGMENTS:
            self._fail(f"is malformed: {count} program headers of {entry_nbytes} bytes")
        dynamic: tuple[int, int] | None = None
        stack = _PF_X  # without a word about it, the loader makes stacks executable
        for kind, flags, offset, address, _, nbytes, _, _ in struct.iter_unpack(
            "<IIQQQQQQ", self._at(table, count * 56)
        ):
            if kind == _PT_LOAD:
                if offset + nbytes > self._nbytes:
                    self._fail(
                        f"is truncated: a segment ends at byte {offset + nbytes}, "
                        f"the file has {self._nbytes}"
                    )
                self._loads.append((address, offset, nbytes))
            elif kind == _PT_DYNAMIC:
                dynamic = (offset, nbytes)
            elif kind == _PT_GNU_STACK:
                stack = flags
        if dynamic is None:
            self._fail("is malformed: it has no dynamic section")
        header = replace(header, executable_stack=bool(stack & _PF_X))
        return self._dynamic(header, *dynamic, symbol)

    def _dynamic(self, header: ElfFile, offset: int, nbytes: int, symbol: str) -> ElfFile:
        listed: list[tuple[int, int]] = []
        data = self._at(offset, min(nbytes, _MAX_DYNAMIC * 16) // 16 * 16)
        for tag, value in struct.iter_unpack("<QQ", data):
            if tag == 0:
                break
            listed.append((tag, value))
        single = dict(listed)
        if _DT_STRTAB not in single:
            self._fail("is malformed: its dynamic section has no string table")
        strings = (self._offset(single[_DT_STRTAB]), single.get(_DT_STRSZ, 0))

        def texts(tag: int) -> tuple[str, ...]:
            return tuple(self._string(strings, value) for key, value in listed if key == tag)

        runpath, rpath = texts(_DT_RUNPATH), texts(_DT_RPATH)
        return replace(
            header,
            soname="".join(texts(_DT_SONAME)[:1]),
            needed=texts(_DT_NEEDED),
            rpath=() if self._folders(runpath) else self._folders(rpath),
            runpath=self._folders(runpath),
            run_paths=tuple(part for text in (*rpath, *runpath) for part in text.split(":")),
            versions=tuple(self._versions(single, strings)),
            exported=self._exports(single, strings, symbol),
            text_relocations=_DT_TEXTREL in single or bool(single.get(_DT_FLAGS, 0) & _DF_TEXTREL),
        )

    def sections(self) -> tuple[Section, ...]:
        ident = self._at(0, min(64, self._nbytes))
        if len(ident) < 64 or ident[:6] != b"\x7fELF\x02\x01":
            self._fail("is not a 64-bit little-endian ELF library")
        (table,) = struct.unpack_from("<Q", ident, 40)
        entry_nbytes, count, names = struct.unpack_from("<HHH", ident, 58)
        if not table or not count:
            return ()
        if entry_nbytes != 64 or names >= count:
            self._fail(f"is malformed: {count} section headers of {entry_nbytes} bytes")
        rows = list(struct.iter_unpack("<IIQQQQIIQQ", self._at(table, count * 64)))
        strings = (rows[names][4], rows[names][5])
        return tuple(
            Section(
                self._string(strings, name),
                kind,
                offset,
                0 if kind == _SHT_NOBITS else nbytes,
                link,
            )
            for name, kind, _, _, offset, nbytes, link, _, _, _ in rows
        )

    def exports(self) -> Iterator[str]:
        listed = self.sections()
        for table in listed:
            if table.kind != _SHT_DYNSYM:
                continue
            if table.link >= len(listed):
                self._fail(f"is malformed: its symbols have the strings of section {table.link}")
            text = self._at(listed[table.link].offset, listed[table.link].nbytes)
            symbols = self._at(table.offset, table.nbytes // 24 * 24)
            for name, info, other, section, value, _ in struct.iter_unpack("<IBBHQQ", symbols):
                if section == _SHN_ABS and not value:
                    continue  # the name of a symbol version
                # Defined here; global, weak or unique; of default or protected visibility.
                if section and info >> 4 in (1, 2, 10) and other & 3 in (0, 3):
                    end = text.find(b"\0", name)
                    yield text[name : end if end >= 0 else None].decode("utf-8", "surrogateescape")

    def _folders(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        origin = str(self._path.resolve().parent)
        return tuple(
            os.path.normpath(part.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
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
            _, count, file, aux, following = struct.unpack("<HHIII", self._at(need, 16))
            library, entry = self._string(strings, file), need + aux
            for _ in range(count):
                steps += 1
                if steps > _MAX_STEPS:
                    self._fail("is malformed: its table of needed versions has no end")
                _, _, _, name, step = struct.unpack("<IHHII", self._at(entry, 16))
                yield library, self._string(strings, name)
                entry += step
            need += following
            if not following:
                return

    def _exports(self, single: dict[int, int], strings: tuple[int, int], symbol: str) -> bool:
        # glibc finds a symbol only through one of the two hash tables, and so do we.
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
            name, _, _, section = struct.unpack("<IBBH", self._at(symbols + index * 24, 8))
            if section and self._string(strings, name) == symbol:
                return True
        return False

    def _gnu_chain(self, table: int, symbol: str) -> Iterator[int]:
        buckets, first, blooms, _ = struct.unpack("<IIII", self._at(table, 16))
        if not buckets:
            return
        wanted = 5381
        for byte in symbol.encode():
            wanted = (wanted * 33 + byte) & 0xFFFFFFFF
        heads = table + 16 + blooms * 8
        (index,) = struct.unpack("<I", self._at(heads + wanted % buckets * 4, 4))
        for _ in range(_MAX_STEPS):
            if index < first:
                return
            position = heads + buckets * 4 + (index - first) * 4
            (value,) = struct.unpack("<I", self._at(position, 4))
            if value | 1 == wanted | 1:
                yield index
            if value & 1:
                return
            index += 1

    def _sysv_chain(self, table: int, symbol: str) -> Iterator[int]:
        buckets, _ = struct.unpack("<II", self._at(table, 8))
        if not buckets:
            return
        wanted = 0
        for byte in symbol.encode():
            wanted = ((wanted << 4) + byte) & 0xFFFFFFFF
            wanted = (wanted ^ ((wanted & 0xF0000000) >> 24)) & 0x0FFFFFFF
        (index,) = struct.unpack("<I", self._at(table + 8 + wanted % buckets * 4, 4))
        for _ in range(_MAX_STEPS):
            if not index:
                return
            yield index
            (index,) = struct.unpack("<I", self._at(table + 8 + (buckets + index) * 4, 4))

    def _offset(self, address: int) -> int:
        for begin, offset, nbytes in self._loads:
            if begin <= address < begin + nbytes:
                return offset + address - begin
        self._fail(f"is malformed: address {address:#x} lies in no segment")

    def _string(self, strings: tuple[int, int], at: int) -> str:
        begin, nbytes = strings
        if at >= nbytes:
            self._fail(f"is malformed: string {at} lies outside a table of {nbytes} bytes")
        raw, end, _ = self._at(begin + at, min(_MAX_STRING, nbytes - at)).partition(b"\0")
        if not end:
            self._fail(f"is malformed: string {at} has no end")
        return raw.decode("utf-8", "surrogateescape")

    def _at(self, offset: int, nbytes: int) -> bytes:
        if offset + nbytes > self._nbytes:
            self._fail(
                f"is truncated: bytes {offset} to {offset + nbytes} are needed, "
                f"the file has {self._nbytes}"
            )
        data = os.pread(self._file.fileno(), nbytes, offset)
        if len(data) < nbytes:
            self._fail("became shorter while it was read")
        return data

    def _fail(self, what: str) -> NoReturn:
        raise PluginLoadError(
            f"{self._path} {what}", path=self._path, hint="reinstall it, or fetch it again"
        )


def _kind(begin: bytes) -> str:
    """Names what the first bytes look like."""
    if not begin:
        return "an empty file"
    if begin.lstrip().startswith(b"<"):
        return "an HTML page (a download that a proxy or a login page answered?)"
    if begin.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer"
    for magic, text in (
        (b"PK\x03\x04", "a zip archive"),
        (b"\x1f\x8b", "a gzip archive"),
        (b"\x28\xb5\x2f\xfd", "a zstd archive"),
        (b"\xcf\xfa\xed\xfe", "a Mach-O library (macOS)"),
        (b"\xca\xfe\xba\xbe", "a Mach-O library (macOS)"),
        (b"MZ", "a PE library (Windows)"),
        (b"!<arch>", "a static library"),
    ):
        if begin.startswith(magic):
            return text
    return f"a file that begins with {begin[:8]!r}"
