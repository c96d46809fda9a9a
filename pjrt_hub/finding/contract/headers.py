"""A library's headers, read without loading it.

Owns the verdict on a file that is not a library for Linux: its first bytes tell for which system it
is built, or what else it looks like. A file of 500 MB costs a few page reads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract import elf
from pjrt_hub.finding.contract.binary import ENTRY_POINT, Binary, LibraryFile, Section

# The first bytes of Mach-O for one machine and for several (<mach-o/loader.h>, <mach-o/fat.h>).
_MACHO = (b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xfe\xed\xfa\xcf", b"\xfe\xed\xfa\xce")
_UNIVERSAL = (b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf")
_MAX_JAVA = 43  # A universal file counts its parts where a Java class has its version, 45 or more.


def inspect(path: Path, symbol: str = ENTRY_POINT) -> Binary:
    """Read a library's headers; if it is for another system than Linux, only tell which one.

    The path is absolute. A file that cannot be read, is not a shared library, or is truncated or
    malformed raises PluginLoadError.
    """
    with _open(path) as (system, file):
        if system != "linux":
            return Binary(path, system)
        return elf.Reader(file).read(symbol)


def is_library(path: Path) -> bool:
    """Check whether a file begins like a library or a program, of any system."""
    try:
        with _open(path):
            return True
    except PluginLoadError:
        return False


def is_plugin(path: Path) -> bool:
    """Check whether a file is a library for Linux that exports `GetPjrtApi`."""
    try:
        return inspect(path).exported
    except PluginLoadError:
        return False


def sections(path: Path) -> tuple[Section, ...]:
    """Read the sections of a 64-bit little-endian library for Linux; none if they were stripped."""
    with _open(path) as (_, file):
        return elf.Reader(file).sections()


def exports(path: Path) -> tuple[str, ...]:
    """Read the sorted exports of a 64-bit little-endian library for Linux.

    Without section headers there are none.
    """
    with _open(path) as (_, file):
        return elf.Reader(file).exports()


@contextmanager
def _open(path: Path) -> Iterator[tuple[str, LibraryFile]]:
    """Yield an open library, and the system that it is built for."""
    try:
        # This comes before opening, because opening a FIFO waits for its writer.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise PluginLoadError(f"{path} is not a regular file", path=path)
        with path.open("rb", buffering=0) as opened:
            file = LibraryFile(path, opened)
            yield _system(file), file
    except (OSError, ValueError) as exc:  # A NUL in the path is a ValueError.
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise PluginLoadError(f"{path} cannot be read: {reason}", path=path) from None


def _system(file: LibraryFile) -> str:
    begin = file.at(0, min(64, file.nbytes))
    if begin[:4] == elf.MAGIC:
        return "linux"
    count = int.from_bytes(begin[4:8], "big")
    if begin[:4] in _MACHO or (begin[:4] in _UNIVERSAL and count < _MAX_JAVA):
        return "macos"
    if begin[:2] == b"MZ" and len(begin) == 64:
        at = int.from_bytes(begin[60:], "little")
        if at + 4 <= file.nbytes and file.at(at, 4) == b"PE\0\0":
            return "windows"
    file.fail(f"is not a shared library: it is {_kind(begin)}")


def _kind(begin: bytes) -> str:
    """Name what the first bytes look like."""
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
        (b"\xca\xfe\xba\xbe", "a class of Java"),
        (b"MZ", "a program of DOS"),
        (b"!<arch>", "a static library"),
    ):
        if begin.startswith(magic):
            return text
    return f"a file that begins with {begin[:8]!r}"
