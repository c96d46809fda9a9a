"""A library's headers, read without loading it, for any system.

Owns which reader reads a file (`elf`, `macho` or `pe`), and what is said of a file that none can
read. A file of 500 MB costs a few page reads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pjrt_hub.base.frozen import replace
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract import elf
from pjrt_hub.finding.contract.binary import ENTRY_POINT, Binary, LibraryFile, Section

if TYPE_CHECKING:
    from typing import Protocol

    class _Reader(Protocol):
        """The interface of the modules that read a format."""

        def is_wide(self, file: LibraryFile) -> bool: ...
        def read(self, file: LibraryFile, symbol: str) -> Binary: ...
        def exports(self, file: LibraryFile) -> tuple[str, ...]: ...
        def sections(self, file: LibraryFile) -> tuple[Section, ...]: ...


def inspect(path: Path, symbol: str = ENTRY_POINT, *, machine: str = "") -> Binary:
    """Read a library's headers.

    Args:
        path: an absolute path.
        symbol: the exported symbol to look for, as C writes it.
        machine: of a universal file, the part for it, where there is one; else the first.

    Raises:
        PluginLoadError: it cannot be read, is not a shared library, is truncated or malformed.
    """
    found = parts(path, symbol)
    fitting = [each for each in found if each.machine == machine]
    return fitting[0] if fitting else found[0]


def parts(path: Path, symbol: str = ENTRY_POINT) -> tuple[Binary, ...]:
    """Read the headers of each part of a universal file, or of any other file as one part.

    Raises:
        PluginLoadError: it cannot be read, is not a shared library, is truncated or malformed.
    """
    with _open_parts(path) as read:
        return tuple(reader.read(file, symbol) for reader, file in read)


def sections(path: Path) -> tuple[Section, ...]:
    """Read the sections; none if they were stripped.

    Raises:
        PluginLoadError: it cannot be read, is no 64-bit little-endian library, is truncated or
            malformed.
    """
    with _open_parts(path) as read:
        return tuple(
            replace(section, offset=file.begin + section.offset)
            for reader, file in _wide(path, read)
            for section in reader.sections(file)
        )


def exports(path: Path) -> tuple[str, ...]:
    """Read the names that a library exports, as C writes them, sorted.

    Of ELF libraries, none without section headers.

    Raises:
        PluginLoadError: it cannot be read, is no 64-bit little-endian library, is truncated or
            malformed.
    """
    with _open_parts(path) as read:
        names = [reader.exports(file) for reader, file in _wide(path, read)]
        return tuple(sorted(set().union(*names)))


def is_library(path: Path) -> bool:
    """Check whether a file begins like a program or a library."""
    try:
        with _open_parts(path):
            return True
    except PluginLoadError:
        return False


@contextmanager
def _open_parts(path: Path) -> Iterator[list[tuple[_Reader, LibraryFile]]]:
    """Yield each part of a file, with its reader."""
    try:
        # Asked before opening: to open a FIFO is to wait for its writer.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise PluginLoadError(f"{path} is not a regular file", path=path)
        with path.open("rb", buffering=0) as opened:
            yield _parts(LibraryFile(path, opened))
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise PluginLoadError(f"{path} cannot be read: {reason}", path=path) from None


def _parts(file: LibraryFile) -> list[tuple[_Reader, LibraryFile]]:
    begin = file.at(0, min(64, file.nbytes))
    if begin[:4] == elf.MAGIC:
        return [(elf, file)]
    # Few ever read those of another system.
    from pjrt_hub.finding.contract import macho, pe

    if begin[:4] in macho.MAGICS:
        return [(macho, file)]
    if macho.is_universal(begin):
        return [(macho, part) for part in macho.universal(file)]
    if pe.is_pe(file):
        return [(pe, file)]
    file.fail(f"is not a shared library: it is {_kind(begin)}")


def _wide(path: Path, read: list[tuple[_Reader, LibraryFile]]) -> list[tuple[_Reader, LibraryFile]]:
    """Return the parts that are read beyond the header."""
    wide = [(reader, file) for reader, file in read if reader.is_wide(file)]
    if not wide:
        raise PluginLoadError(f"{path} is not a 64-bit little-endian library", path=path)
    return wide


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
