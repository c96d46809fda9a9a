"""The contents of a shared library's file.

Owns the record `Binary`, whether it is for this machine, and `LibraryFile`, through which `elf`
reads. Every offset is checked and every loop bounded: hostile bytes give PluginLoadError, nothing
else.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import PluginLoadError

ENTRY_POINT = "GetPjrtApi"

# Real plugins stay far below: 30 needed libraries, 18 run paths, and in jaxlib 6 MB of names.
MAX_STRING = 8192
MAX_SYMBOL = 1 << 16  # C++ has names of several thousand characters.
MAX_NAMES_NBYTES = 1 << 27


class Binary(NamedTuple):
    """The parts of a library that the dynamic loader reads.

    Of a file for another system than Linux, `headers` tells the path and the system, and the kit
    for plugin authors the rest; a universal file of macOS holds a library for each machine.

    Attributes:
        path: the file.
        system: "linux", "macos", "windows", or another that Apple names, such as "ios".
        bits: 32 or 64; of another class than 64-bit little-endian only the header is read.
        little: whether it is little-endian.
        machine: "x86_64", "aarch64", ... or "machine 17".
        shared: whether it is a shared library, and no program or object file.
        name: what it calls itself (DT_SONAME), or empty.
        needed: the libraries without which it does not load, in order.
        optional: those of macOS that it loads later, or goes without.
        rpath: DT_RPATH with $ORIGIN expanded; empty where there is a DT_RUNPATH, which hides it.
        runpath: DT_RUNPATH, or LC_RPATH, with the library's folder expanded.
        run_paths: both as they are written.
        versions: (library, version) pairs that it needs, such as ("libc.so.6", "GLIBC_2.27").
        minimum: the oldest macOS that it says it runs on, (11, 0); () elsewhere.
        exported: whether it exports `GetPjrtApi`.
        executable_stack: whether loading it makes the stacks of the process executable.
        text_relocations: whether loading it writes into its code.
    """

    path: Path
    system: str
    bits: int = 0
    little: bool = False
    machine: str = ""
    shared: bool = False
    name: str = ""
    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    run_paths: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    minimum: tuple[int, ...] = ()
    exported: bool = False
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


class Problem(NamedTuple):
    """One reason why a library will not load.

    Attributes:
        text: what is wrong and what was found.
        hint: the next step, or an empty string.
    """

    text: str
    hint: str = ""


def unfit(binary: Binary, host: HostTag) -> list[Problem]:
    """Return the reasons in the file itself: its machine, type and entry point."""
    if binary.system != host.os:
        return [Problem(host.runs(HostTag(binary.system, binary.machine)))]
    if binary.system != "linux":
        return []  # Nothing else is known about it.
    if (binary.bits, binary.little) != (64, True):
        order = "little" if binary.little else "big"
        text = f"it is a {binary.bits}-bit {order}-endian library, 64-bit little is needed"
        return [Problem(text)]
    if binary.machine != host.arch:
        return [Problem(host.runs(HostTag(host.os, binary.machine)))]
    found = []
    if not binary.shared:
        found.append(Problem("it is a program or an object file, not a shared library"))
    if not binary.exported:
        found.append(
            Problem(f"it does not export {ENTRY_POINT}: it is not a PJRT plugin of the C API")
        )
    if binary.glibc and host.libc != "glibc":
        found.append(Problem(f"it needs glibc, this machine has {host.libc or 'another libc'}"))
    elif binary.glibc > host.version:
        need, have = (".".join(map(str, version)) for version in (binary.glibc, host.version))
        found.append(
            Problem(
                f"it needs glibc {need}, this machine has {have}",
                "use a newer system, or an older release of the plugin",
            )
        )
    return found


class Section(NamedTuple):
    """A section of the file, which only tools look at.

    Attributes:
        name: ".debug_info", "__TEXT,__cstring".
        role: "data" (constants and variables), "debug", "symbols" (which nothing reads at run
            time), or empty.
        offset: where it begins in the file.
        nbytes: how much of the file it takes.
    """

    name: str
    role: str
    offset: int
    nbytes: int


class LibraryFile:
    """An open library, with checked reads."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.nbytes = os.fstat(file.fileno()).st_size
        self._file = file

    def at(self, offset: int, nbytes: int) -> bytes:
        """Read some bytes."""
        self._check(offset, nbytes)
        self._file.seek(offset)
        data = self._file.read(nbytes)
        if len(data) < nbytes:
            self.fail("became shorter while it was read")
        return data

    def unpack(self, layout: str, offset: int) -> tuple[Any, ...]:
        """Read a struct."""
        return struct.unpack(layout, self.at(offset, struct.calcsize(layout)))

    def string(self, begin: int, nbytes: int, at: int) -> str:
        """Read a string that begins `at` bytes into a table of strings."""
        if at >= nbytes:
            self.fail(f"is malformed: string {at} lies outside a table of {nbytes} bytes")
        raw, end, _ = self.at(begin + at, min(MAX_STRING, nbytes - at)).partition(b"\0")
        if not end:
            self.fail(f"is malformed: string {at} has no end")
        return raw.decode("utf-8", "surrogateescape")

    def names(self, raw: Iterable[bytes]) -> tuple[str, ...]:
        """Sort and decode names of symbols, as many as a real file can hold."""
        found, nbytes = set(), 0
        for each in raw:
            nbytes += len(each)
            if len(each) > MAX_SYMBOL or nbytes > MAX_NAMES_NBYTES:
                self.fail("is malformed: its symbols have names without end")
            found.add(each.decode("utf-8", "surrogateescape"))
        return tuple(sorted(found))

    def symbol(self, text: bytes, at: int) -> bytes:
        """Read the name of a symbol that begins `at` bytes into a table of strings."""
        end = text.find(b"\0", at, at + MAX_SYMBOL + 1)
        return text[at:end] if end >= 0 else text[at : at + MAX_SYMBOL + 1]

    def fail(self, what: str) -> NoReturn:
        """Raise the error of a file that is no whole library."""
        raise PluginLoadError(
            f"{self.path} {what}", path=self.path, hint="reinstall it, or fetch it again"
        )

    def _check(self, offset: int, nbytes: int) -> None:
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            self.fail(
                f"is truncated: bytes {offset} to {offset + nbytes} are needed, "
                f"the file has {self.nbytes}"
            )
