"""A zip file's members: `zipfile` reads the directory, and what it would overlook is refused here.

Members lie without gaps, then the directory, then the end record, and all of them have to agree, so
that no two readers can see different files. The numbers are from APPNOTE.TXT 6.3.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from io import FileIO
from typing import BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from pjrt_hub.errors import ArchiveError
from pjrt_hub.finding.store.archive import unpacking
from pjrt_hub.finding.store.archive.unpacking import Files, refusal

_LOCAL = struct.Struct("<4s5H3I2H")
_END = struct.Struct("<4s4H2IH")
#: The ZIP64 end record, followed by its locator.
_END_64 = struct.Struct("<4sQ2H2I4Q4sIQI")
_ZIP64, _UNICODE_PATH = 0x0001, 0x7075
_ENCRYPTED, _SIZES_FOLLOW, _PATCHED, _STRONG, _UTF8 = 0x1, 0x8, 0x20, 0x40, 0x800
_FULL_16, _FULL_32 = 0xFFFF, 0xFFFFFFFF
_MOST_DIRECTORY_BYTES = 16 << 20


class _File(FileIO):
    def at(self, place: int, nbytes: int) -> bytes:
        self.seek(place)
        return self.read(nbytes)

    def read(self, size: int | None = -1, /) -> bytes:
        # `zipfile` would read a directory of any size at once.
        if size is not None and size > _MOST_DIRECTORY_BYTES:
            raise BadZipFile(f"its directory has {size} bytes")
        return super().read(size)


def files(file: BinaryIO, name: str) -> Files:
    """Yield the files of a zip in the order of their bytes: path, size and content.

    `file` stays the caller's. An archive that is malformed, or that two readers could read
    differently, raises ArchiveError before the first file; a content that is not what the directory
    says does so when it is read.
    """
    raw = _File(file.fileno(), closefd=False)
    try:
        archive = ZipFile(raw)
        members = sorted(archive.infolist(), key=lambda member: member.header_offset)
        unpacking.require_names(name, [member.orig_filename for member in members])
        for member in members:
            if what := _oddity(member):
                raise refusal(name, member.orig_filename, what)
        _check_end(raw, archive)
        places = [*(member.header_offset for member in members), archive.start_dir]
        if places[0]:
            raise BadZipFile("it has bytes before its first member")
        contents = [
            _content_place(raw, member, limit)
            for member, limit in zip(members, places[1:], strict=True)
        ]
    except (BadZipFile, NotImplementedError, ValueError, struct.error) as exc:
        raise ArchiveError(f"{name} is not a plain zip file: {exc}") from exc
    for member, place in zip(members, contents, strict=True):
        if not member.is_dir():
            yield member.orig_filename, member.file_size, _unpack(raw, name, member, place)


def _unpack(raw: _File, archive: str, member: ZipInfo, place: int) -> Iterator[bytes]:
    raw.seek(place)
    content = unpacking.parts(raw, member.compress_size)
    if member.compress_type == ZIP_DEFLATED:
        what = f"{archive}: the member {member.orig_filename!r}"
        content = unpacking.inflate(content, unpacking.RAW, what)
    crc, left = 0, member.file_size
    for chunk in content:
        left -= len(chunk)
        if left < 0:
            raise refusal(archive, member.orig_filename, "holds more than it declares")
        crc = unpacking.zlib.crc32(chunk, crc)
        yield chunk
    if left or crc != member.CRC:
        what = "has another size or CRC-32 than it declares"
        raise refusal(archive, member.orig_filename, what)


def _check_end(raw: _File, archive: ZipFile) -> None:
    """Refuse an end record that differs from what `zipfile` found before it."""
    members, begin, comment = archive.infolist(), archive.start_dir, len(archive.comment)
    nbytes, count = raw.seek(0, os.SEEK_END), len(members)
    at = end = nbytes - _END.size - comment
    directory, marks = raw.at(begin, at - begin), None
    if directory[-20:-16] == b"PK\6\7":
        end -= _END_64.size
        magic, size, _, _, *said = _END_64.unpack(directory[-_END_64.size :].rjust(_END_64.size))
        own = [0, 0, count, count, end - begin, begin, b"PK\6\7", 0, end, 1]
        if (magic, size, said) != (b"PK\6\6", 44, own):
            raise BadZipFile(f"its ZIP64 end does not fit its {count} members")
        marks = [0, 0, _FULL_16, _FULL_16, _FULL_32, _FULL_32, 0]
    magic, *said = _END.unpack(raw.at(at, _END.size))
    own = [0, 0, count, count, end - begin, begin, comment]
    fits = all(number in pair for number, *pair in zip(said, own, marks or own, strict=True))
    if not fits or magic != b"PK\5\6":
        raise BadZipFile(f"its end does not fit its {count} members, or it has bytes of none")
    for found in re.finditer(b"PK\5\6", directory):
        record = directory[found.start() :] + raw.at(at, _END.size)
        if found.start() + _END.size + _END.unpack_from(record)[-1] == nbytes - begin:
            raise BadZipFile("it has two ends")
    if unpacking.is_bomb(total := sum(member.file_size for member in members), nbytes):
        raise BadZipFile(f"it is a bomb: {nbytes} bytes would unfold to {total}")


def _content_place(raw: _File, member: ZipInfo, limit: int) -> int:
    """Return where a member's content begins; refuse bytes of no member between it and `limit`."""
    place = member.header_offset + _LOCAL.size
    if place > limit:
        raise BadZipFile(f"the member {member.orig_filename!r} overlaps another member")
    head = _LOCAL.unpack(raw.at(member.header_offset, _LOCAL.size))
    magic, _, flags, method, _, _, *numbers, name_size, extra_size = head
    begin: int = place + name_size + extra_size
    end = begin + member.compress_size
    name, extra = raw.at(place, name_size), raw.read(extra_size)
    said = (magic, name, flags, method)
    own = (b"PK\3\4", member.orig_filename.encode(), member.flag_bits, member.compress_type)
    sizes = (member.CRC, member.compress_size, member.file_size)
    follow = flags & _SIZES_FOLLOW
    fits = _fits(numbers, sizes, extra) or (follow and _fits(numbers, (0, 0, 0), extra))
    gap = raw.at(end, min(limit - end, 25)) if end <= limit else b""
    forms = (struct.pack("<I2Q", *sizes), struct.pack("<3I", *(n & _FULL_32 for n in sizes)))
    what = _odd_extra(member.extra, member) or _odd_extra(extra, member)
    if said != own or not fits:
        what = "has a local header that differs from the directory"
    elif end > limit:
        what = "overlaps another member"
    elif gap.removeprefix(b"PK\7\x08") not in forms if follow else gap:
        what = "is followed by bytes of no member"
    if what:
        raise BadZipFile(f"the member {member.orig_filename!r} {what}")
    return begin


def _oddity(member: ZipInfo) -> str:
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFDIR if member.is_dir() else stat.S_IFREG):
        return "is a link" if kind == stat.S_IFLNK else "is not a plain file"
    if not (member.flag_bits & _UTF8 or member.orig_filename.isascii()):
        return "has a name that readers understand differently"
    if member.volume:
        return "lies in another part of the archive"
    if member.flag_bits & (_ENCRYPTED | _STRONG):
        return "is encrypted"
    if member.flag_bits & _PATCHED:
        return "is a patch of another file"
    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        return f"is compressed by method {member.compress_type}, not stored or deflated"
    if member.compress_type == ZIP_STORED and member.compress_size != member.file_size:
        return "is stored in another size than its own"
    if member.is_dir() and member.file_size:
        return "is a folder with content"
    if unpacking.is_bomb(member.file_size, member.compress_size):
        return f"is a bomb: {member.compress_size} bytes would unfold to {member.file_size}"
    return ""


def _fits(numbers: list[int], own: tuple[int, int, int], extra: bytes) -> bool:
    """Check a local header's CRC-32 and sizes; the sizes may be marks that mean a ZIP64 field."""
    crc, packed, nbytes = own
    wide = (_ZIP64, 16, struct.pack("<2Q", nbytes, packed)) in _fields(extra)
    return numbers == ([crc, _FULL_32, _FULL_32] if wide else [crc, packed, nbytes])


def _fields(extra: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the kind, the size and the bytes of each extra field; fewer bytes if it is cut."""
    while extra:
        kind, size = struct.unpack_from("<2H", extra.ljust(4, b"\xff"))
        yield kind, size, extra[4 : 4 + size]
        extra = extra[4 + size :]


def _odd_extra(extra: bytes, member: ZipInfo) -> str:
    own = {0, member.file_size, member.compress_size, member.header_offset}
    for kind, size, body in _fields(extra):
        if len(body) < size:
            return "has a malformed extra field"
        if kind == _UNICODE_PATH:
            return "has a second name"
        if kind == _ZIP64 and (
            size not in (8, 16, 24) or not own.issuperset(struct.unpack(f"<{size // 8}Q", body))
        ):
            return "has a ZIP64 field that does not fit its header"
    return ""
