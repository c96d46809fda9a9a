"""The pinned members of an archive: of a wheel or zip, a tar.gz, or a bare library.

Owns the choice of the reader, by the archive's name. Takes only pinned members.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from pjrt_hub.base import log
from pjrt_hub.errors import ArchiveError
from pjrt_hub.finding.store.archive import record, unpacking
from pjrt_hub.finding.store.archive.unpacking import Files, refusal
from pjrt_hub.finding.store.catalog import Member


def unpack(
    archive_path: Path, members: Iterable[Member], destination: Path, *, name: str = ""
) -> None:
    """Write the pinned members below `destination`, each verified and on disk (fsync).

    Files get mode 0444, programs 0555 and directories 0755, whatever the archive and the umask say.
    A wheel whose RECORD is wrong is taken with a warning in the log, because the pins decide. The
    caller has checked the archive's own pin; `destination` is empty, and nobody else writes to it.
    `name`, by default the path's, tells the archive's kind. An archive that is malformed or
    hostile, or a member that is not what the pin says, raises ArchiveError.
    """
    name = name or archive_path.name
    pins = {member.path: member for member in members}
    left = dict(pins)
    with open(archive_path, "rb") as file:
        for path, nbytes, content in _files(file, name):
            if member := left.pop(path, None):
                if nbytes != member.size:
                    what = f"has {nbytes} bytes, the pin says {member.size}"
                    raise refusal(name, path, what)
                unpacking.write(name, member, content, destination)
        for path in sorted(left):
            raise refusal(name, path, "is pinned and not in it")
        if wrong := _wrong_record(file, name, pins.values()):
            log.warn("pjrt_hub.store", "%s: %s; its members are the pinned ones", name, wrong)


def measure(
    archive_path: Path, wanted: Callable[[str], bool], *, name: str = ""
) -> tuple[Member, ...]:
    """Measure the wanted members of an unpinned archive, in its order; write nothing.

    `name` is as for `unpack`. ArchiveError means that the archive is malformed or hostile, or that
    the RECORD of the wheel is missing, incomplete or wrong.
    """
    name = name or archive_path.name
    found = []
    with open(archive_path, "rb") as file:
        for path, nbytes, content in _files(file, name):
            if wanted(path):
                hashing = hashlib.sha256()
                for chunk in content:
                    hashing.update(chunk)
                found.append(Member(path, nbytes, hashing.hexdigest()))
        if wrong := _wrong_record(file, name, found):
            raise ArchiveError(f"{name}: {wrong}")
    return tuple(found)


def _files(file: BinaryIO, name: str) -> Files:
    if name.endswith(".tar.gz"):
        from pjrt_hub.finding.store.archive import tarball

        return tarball.files(file, name)
    if name.endswith(".so"):
        nbytes = os.fstat(file.fileno()).st_size
        return iter([(name, nbytes, unpacking.parts(file, nbytes))])
    from pjrt_hub.finding.store.archive import zip_reader

    return zip_reader.files(file, name)


def _wrong_record(file: BinaryIO, name: str, members: Iterable[Member]) -> str:
    return record.difference(_files(file, name), members) if name.endswith(".whl") else ""
