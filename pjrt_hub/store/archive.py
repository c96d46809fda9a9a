"""The pinned members of a wheel, read strictly (layer 2).

Takes nothing that the pin does not name and trusts no size, name or mode of the archive.
Refuses whatever two zip readers could read differently.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from pjrt_hub.errors import ArchiveError
from pjrt_hub.store.catalog import Member

_CHUNK = 1 << 20
_MOST_MEMBERS = 10_000
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_END_RECORD = struct.Struct("<4s4H2IH")
_ENCRYPTED, _SIZES_FOLLOW = 0x1, 0x8


def unpack(archive_path: Path, members: Iterable[Member], destination: Path) -> None:
    """Writes the pinned members below `destination`, each verified and on disk (fsync).

    Files get mode 0444 and directories 0755, whatever the archive and the umask say.

    Args:
        archive_path: a zip file; the caller has checked its own pin.
        members: what to take.
        destination: an empty directory that nobody else writes to.

    Raises:
        ArchiveError: the archive is malformed or hostile, or a member is not what the pin says.
        OSError: `destination` cannot be written.
    """
    with open(archive_path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                infos = archive.infolist()
                _check_directory(file, archive_path, archive, infos)
                by_name = {info.filename: info for info in infos}
                for member in members:
                    info = by_name.get(member.path)
                    if info is None:
                        raise _refusal(archive_path, member.path, "is pinned and not in it")
                    if info.file_size != member.size:
                        found = f"has {info.file_size} bytes, the pin says {member.size}"
                        raise _refusal(archive_path, member.path, found)
                    _extract(archive, archive_path, info, member, destination)
        except (zipfile.BadZipFile, NotImplementedError, EOFError, struct.error, ValueError) as exc:
            raise ArchiveError(f"{archive_path.name} is not a sound zip file: {exc}") from exc
        except RuntimeError as exc:  # zipfile's word for "a password is needed"
            raise ArchiveError(f"{archive_path.name} cannot be read: {exc}") from exc


def _refusal(archive_path: Path, name: str, what: str) -> ArchiveError:
    return ArchiveError(f"{archive_path.name}: the member {name!r} {what}")


def _extract(
    archive: zipfile.ZipFile,
    archive_path: Path,
    info: zipfile.ZipInfo,
    member: Member,
    destination: Path,
) -> None:
    import zlib

    target = destination / member.path
    for folder in reversed(target.relative_to(destination).parents[:-1]):
        (destination / folder).mkdir(exist_ok=True)
        (destination / folder).chmod(0o755)
    hashing, left = hashlib.sha256(), member.size
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(target, flags, 0o600), "wb", buffering=0) as out:
        try:
            with archive.open(info) as source:
                while chunk := source.read(_CHUNK):
                    left -= len(chunk)
                    if left < 0:
                        raise _refusal(archive_path, member.path, "holds more than it declares")
                    hashing.update(chunk)
                    view = memoryview(chunk)
                    while view:
                        view = view[out.write(view) :]
        except zlib.error as exc:
            raise _refusal(archive_path, member.path, f"cannot be inflated: {exc}") from exc
        if left or hashing.hexdigest() != member.sha256:
            raise _refusal(
                archive_path,
                member.path,
                f"has sha256 {hashing.hexdigest()}, the pin says {member.sha256}",
            )
        os.fchmod(out.fileno(), 0o444)
        os.fsync(out.fileno())


def _check_directory(
    file: BinaryIO, path: Path, archive: zipfile.ZipFile, infos: Sequence[zipfile.ZipInfo]
) -> None:
    if len(infos) > _MOST_MEMBERS:
        raise ArchiveError(f"{path.name} has {len(infos)} members, more than {_MOST_MEMBERS}")
    names: dict[str, str] = {}
    for info in infos:
        _check_entry(path, info)
        folded = info.filename.rstrip("/").casefold()
        if folded in names:
            what = f"appears twice (also as {names[folded]!r})"
            raise _refusal(path, info.filename, what)
        names[folded] = info.filename
    for folded, name in names.items():
        parents = folded.split("/")[:-1]
        for depth in range(1, len(parents) + 1):
            clash = names.get("/".join(parents[:depth]))
            if clash is not None and not clash.endswith("/"):
                raise _refusal(path, name, f"lies below the file {clash!r}")
    _check_end(file, path, archive)
    _check_local_headers(file, path, infos, archive.start_dir)


def _check_entry(path: Path, info: zipfile.ZipInfo) -> None:
    # zipfile cuts `filename` at a NUL and rewrites separators; `orig_filename` is what was stored.
    name = info.orig_filename
    what = ""
    if name != info.filename or "\0" in name or "\\" in name or ":" in name:
        what = "has a name that readers understand differently"
    elif name.startswith("/") or ".." in name.split("/"):
        what = "points outside of the archive"
    elif not name.rstrip("/") or "//" in name or "." in name.split("/"):
        what = "has no plain name"
    elif info.flag_bits & _ENCRYPTED:
        what = "is encrypted"
    elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        what = f"is compressed by method {info.compress_type}, not stored or deflated"
    elif (kind := stat.S_IFMT(info.external_attr >> 16)) not in (0, stat.S_IFREG, stat.S_IFDIR):
        what = "is a link" if kind == stat.S_IFLNK else "is not a plain file"
    if what:
        raise _refusal(path, name, what)


def _check_end(file: BinaryIO, path: Path, archive: zipfile.ZipFile) -> None:
    """The end record must close the file, and the directory must end where it begins."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END_RECORD.size - len(archive.comment)))
    record = file.read(_END_RECORD.size)
    if len(record) < _END_RECORD.size or record[:4] != b"PK\5\6":
        raise ArchiveError(f"{path.name} has bytes after its end record")
    fields = _END_RECORD.unpack(record)
    if fields[7] != len(archive.comment) or b"PK\5\6" in archive.comment:
        raise ArchiveError(f"{path.name} has two end records")
    _, _, _, _, entries, directory_size, directory_offset, _ = fields
    if entries != 0xFFFF and entries != len(archive.infolist()):
        raise ArchiveError(
            f"{path.name} declares {entries} members and lists {len(archive.infolist())}"
        )
    # 0xFFFFFFFF: the ZIP64 record holds the number, and zipfile has checked its place.
    if directory_offset != 0xFFFFFFFF and directory_offset != archive.start_dir:
        raise ArchiveError(f"{path.name} has bytes before its first member")
    if directory_size != 0xFFFFFFFF and directory_offset != 0xFFFFFFFF:
        end = directory_offset + directory_size
        file.seek(end)
        if file.read(4) not in (b"PK\5\6", b"PK\6\6"):
            raise ArchiveError(f"{path.name} has bytes between its directory and its end record")


def _check_local_headers(
    file: BinaryIO, path: Path, infos: Sequence[zipfile.ZipInfo], start_dir: int
) -> None:
    """Each local header must agree with the directory, and no two members may share bytes."""
    end = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        name = info.filename
        if info.header_offset < end:
            raise _refusal(path, name, "overlaps another member")
        if end == 0 and info.header_offset != 0:
            raise ArchiveError(f"{path.name} has bytes before its first member")
        file.seek(info.header_offset)
        header = file.read(_LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\3\4":
            raise _refusal(path, name, "has no local header")
        _, _, flags, method, _, _, crc, packed, unpacked, name_size, extra_size = (
            _LOCAL_HEADER.unpack(header)
        )
        encoding = "utf-8" if flags & 0x800 else "cp437"
        local_name = file.read(name_size).decode(encoding, "replace")
        extra = file.read(extra_size)
        if 0xFFFFFFFF in (packed, unpacked):
            unpacked, packed = _zip64_sizes(extra, unpacked, packed)
        if local_name != name or flags != info.flag_bits or method != info.compress_type:
            raise _refusal(path, name, "has a local header that differs from the directory")
        if not flags & _SIZES_FOLLOW and (crc, packed, unpacked) != (
            info.CRC,
            info.compress_size,
            info.file_size,
        ):
            raise _refusal(path, name, "has a size or a CRC that differs from the directory")
        end = file.tell() + info.compress_size
        if end > start_dir:
            raise _refusal(path, name, "runs into the directory")


def _zip64_sizes(extra: bytes, unpacked: int, packed: int) -> tuple[int, int]:
    """Reads the ZIP64 extra field, which small members of real wheels carry too."""
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<HH", extra)
        body, extra = extra[4 : 4 + size], extra[4 + size :]
        if kind == 1:
            values = list(struct.unpack_from(f"<{len(body) // 8}Q", body))
            if unpacked == 0xFFFFFFFF and values:
                unpacked = values.pop(0)
            if packed == 0xFFFFFFFF and values:
                packed = values.pop(0)
            break
    return unpacked, packed
