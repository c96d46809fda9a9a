"""The contents of a shared library's file.

Owns the record `Binary`, the check that it is for this machine, and `LibraryFile`, through which
`elf` reads. Every offset is checked and every loop bounded: hostile bytes raise PluginLoadError,
nothing else.
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

# Real plugins have far less: 30 needed libraries, 18 run paths, and in jaxlib 6 MB of names.
MAX_STRING = 8192
MAX_SYMBOL = 1 << 16  # Some C++ names have several thousand characters.
MAX_NAMES_NBYTES = 1 << 27


class Binary(NamedTuple):
    """The parts of a library that the dynamic loader reads.

    For another system than Linux, `headers` fills in only the path and the system, and the kit for
    plugin authors the rest; a universal file of macOS holds a library for each machine.
    """

    path: Path
    system: str  # "linux", "macos", "windows", or another that Apple names, such as "ios".
    bits: int = 0  # 32 or 64; unless a file is 64-bit little-endian, only its header is read.
    little: bool = False  # Whether the file is little-endian.
    machine: str = ""  # "x86_64", "aarch64", ... or "machine 17".
    shared: bool = False  # Whether it is a shared library and not a program or an object file.
    name: str = ""  # The library's own name (DT_SONAME), or empty.
    needed: tuple[str, ...] = ()  # The libraries without which this one does not load, in order.
    optional: tuple[str, ...] = ()  # On macOS, libraries that it loads later or can do without.
    rpath: tuple[str, ...] = ()  # DT_RPATH with $ORIGIN expanded, unless a DT_RUNPATH hides it.
    runpath: tuple[str, ...] = ()  # DT_RUNPATH, or LC_RPATH, with the library's folder expanded.
    run_paths: tuple[str, ...] = ()  # The run paths of both kinds as the file spells them.
    versions: tuple[tuple[str, str], ...] = ()  # Versions it needs: ("libc.so.6", "GLIBC_2.27").
    minimum: tuple[int, ...] = ()  # The oldest macOS that it claims to run on, such as (11, 0).
    exported: bool = False  # Whether it exports the symbol that was looked for.
    executable_stack: bool = False  # Whether loading it makes the stacks of the process executable.
    text_relocations: bool = False  # Whether loading it writes into its code.

    @property
    def glibc(self) -> tuple[int, ...]:
        """The oldest glibc that has every symbol version needed; () if none is needed."""
        numbers = [
            tuple(int(part) for part in version[6:].split("."))
            for _, version in self.versions
            if version.startswith("GLIBC_")
            and all(part.isascii() and part.isdigit() for part in version[6:].split("."))
        ]
        return max(numbers, default=())


class Problem(NamedTuple):
    """One reason why a library will not load, and the next step as a hint."""

    text: str
    hint: str = ""


def unfit(binary: Binary, host: HostTag) -> list[Problem]:
    """Return why a library cannot run on `host`, by its machine, type, entry point and glibc."""
    if binary.system != host.os:
        return [Problem(host.runs(HostTag(binary.system, binary.machine)))]
    if binary.system != "linux":
        return []  # Only the system is known of a library that is not for Linux.
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
    """A section of a library's file; only tools look at sections."""

    name: str  # The section's name, such as ".debug_info" or "__TEXT,__cstring".
    role: str  # "data", "debug", "symbols" (which nothing reads at run time), or empty.
    offset: int
    nbytes: int  # The bytes that it takes in the file.


class LibraryFile:
    """An open library, with checked reads."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.nbytes = os.fstat(file.fileno()).st_size
        self._file = file

    def at(self, offset: int, nbytes: int) -> bytes:
        """Read `nbytes` bytes at an offset."""
        self._check(offset, nbytes)
        self._file.seek(offset)
        data = self._file.read(nbytes)
        if len(data) < nbytes:
            self.fail("became shorter while it was read")
        return data

    def unpack(self, layout: str, offset: int) -> tuple[Any, ...]:
        """Read a struct at an offset."""
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
        """Sort and decode names of symbols; fail if they are longer than in any real file."""
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
        """Raise the error for a file that is not an intact library."""
        raise PluginLoadError(
            f"{self.path} {what}",
            path=self.path,
            hint="reinstall it, or fetch it again; if it is no library, name one",
        )

    def _check(self, offset: int, nbytes: int) -> None:
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            self.fail(
                f"is truncated: bytes {offset} to {offset + nbytes} are needed, "
                f"the file has {self.nbytes}"
            )
