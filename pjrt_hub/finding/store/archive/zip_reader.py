"""A zip file's directory and members, read strictly.

Accepts the plain form that every writer makes, byte for byte: members without gaps, the
directory, the end. So no two readers can see different files in it. Numbers: APPNOTE.TXT 6.3.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

from pjrt_hub.errors import ArchiveError
from pjrt_hub.finding.store.archive.unpacking import (
    MOST_MEMBERS,
    RAW,
    Names,
    inflate,
    inflater,
    is_bomb,
    parts,
    refusal,
)

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_ZIP64, _UNICODE_PATH = 0x0001, 0x7075
_ENCRYPTED, _SIZES_FOLLOW, _PATCHED, _STRONG, _UTF8 = 0x1, 0x8, 0x20, 0x40, 0x800
_STORED, _DEFLATED = 0, 8
_NEWEST = 63
_FULL_16, _FULL_32 = 0xFFFF, 0xFFFFFFFF
_MOST_DIRECTORY_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """One member, by the directory and its local header, which agree.

    Attributes:
        name: its path; a folder's ends with a slash.
        nbytes: of its content.
        packed: how many bytes its content takes in the archive.
        crc: of its content (CRC-32).
        method: 0 stored, 8 deflated.
        flags: the general purpose flags.
        header: where its local header begins.
    """

    name: str
    nbytes: int
    packed: int
    crc: int
    method: int
    flags: int
    header: int

    @property
    def is_folder(self) -> bool:
        """Whether this is the entry of a folder, which has no content."""
        return self.name.endswith("/")


class Zip:
    """One open zip file, whose whole structure has been checked.

    Args:
        file: open for reading; stays the caller's.
        name: the archive's file name, for messages.

    Raises:
        ArchiveError: the archive is malformed, or two readers could read it differently.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._nbytes = file.seek(0, os.SEEK_END)
        entries, begin, nbytes = self._end()
        self.records = tuple(self._directory(entries, begin, nbytes))
        self._content = dict(self._local_headers(begin))
        for record in self.records:
            if is_bomb(record.nbytes, record.packed):
                what = f"is a bomb: {record.packed} bytes would unfold to {record.nbytes}"
                raise refusal(self._name, record.name, what)
        if is_bomb(total := sum(record.nbytes for record in self.records), self._nbytes):
            self._fail(f"is a bomb: {self._nbytes} bytes would unfold to {total}")

    def files(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, int, Iterator[bytes]]]:
        """Yield the wanted members in the order of their bytes: path, size and content.

        Raises:
            ArchiveError: as for `content`.
        """
        for record in sorted(self.records, key=lambda record: record.header):
            if not record.is_folder and wanted(record.name):
                yield record.name, record.nbytes, self.content(record)

    def content(self, record: Record) -> Iterator[bytes]:
        """Yield a member's bytes, in chunks of at most 1 MiB.

        Raises:
            ArchiveError: they are not what the directory says; raised at the latest at their end.
        """
        self._file.seek(self._content[record.header])
        packed = parts(self._file, record.packed)
        unpacked = packed if record.method == _STORED else inflate(packed, RAW)
        crc, left, crc32 = 0, record.nbytes, inflater().crc32
        try:
            for chunk in unpacked:
                left -= len(chunk)
                if left < 0:
                    raise refusal(self._name, record.name, "holds more than it declares")
                crc = crc32(chunk, crc)
                yield chunk
        except ValueError as exc:
            raise refusal(self._name, record.name, str(exc)) from None
        if left:
            raise refusal(self._name, record.name, "holds less than it declares")
        if crc != record.crc:
            raise refusal(self._name, record.name, "has another CRC-32 than it declares")

    def _end(self) -> tuple[int, int, int]:
        """Read the directory's number of entries, its place and its size."""
        tail_at = max(0, self._nbytes - _END.size - _FULL_16)
        tail = self._at(tail_at, self._nbytes - tail_at)
        ends = [
            at
            for at in _occurrences(tail, b"PK\5\6")
            if at + _END.size <= len(tail)
            and at + _END.size + _END.unpack_from(tail, at)[7] == len(tail)
        ]
        if not ends:
            known = b"PK\5\6" in tail
            self._fail(
                "has bytes after its end record, or is cut"
                if known
                else "is not a zip file, or is cut: it has no end record"
            )
        if len(ends) > 1:
            self._fail("has two end records")
        at = tail_at + ends[0]
        fields = _END.unpack_from(tail, ends[0])
        _, disk, first_disk, here, entries, nbytes, begin, _ = fields
        if disk or first_disk or here != entries:
            self._fail("is a part of several")
        before = at
        if at >= _LOCATOR.size and self._at(at - _LOCATOR.size, 4) == b"PK\6\7":
            entries, nbytes, begin, before = self._end_64(at, entries, nbytes, begin)
        if entries > MOST_MEMBERS:
            self._fail(f"has more than {MOST_MEMBERS} members")
        if nbytes > _MOST_DIRECTORY_BYTES:
            self._fail(f"has a directory of {nbytes} bytes")
        if begin + nbytes != before:
            self._fail(
                f"has other bytes than its members: the directory ends at {begin + nbytes} "
                f"and the end record begins at {before}"
            )
        return entries, begin, nbytes

    def _end_64(self, at: int, *small: int) -> tuple[int, int, int, int]:
        """Read the ZIP64 end record, which must precede its locator and agree with `small`."""
        _, disk, place, disks = _LOCATOR.unpack(self._at(at - _LOCATOR.size, _LOCATOR.size))
        if disk or disks > 1 or place != at - _LOCATOR.size - _END_64.size:
            self._fail("has a ZIP64 end record that is not where it should be")
        magic, size, _, _, disk, first_disk, here, entries, nbytes, begin = _END_64.unpack(
            self._at(place, _END_64.size)
        )
        if magic != b"PK\6\6" or size != _END_64.size - 12 or disk or first_disk or here != entries:
            self._fail("has a malformed ZIP64 end record")
        for short, long, full in zip(
            small, (entries, nbytes, begin), (_FULL_16, _FULL_32, _FULL_32), strict=True
        ):
            if short not in (long, full):
                self._fail(f"has two end records that differ: {short} and {long}")
        return entries, nbytes, begin, place

    def _directory(self, entries: int, begin: int, nbytes: int) -> Iterator[Record]:
        data = self._at(begin, nbytes)
        names = Names(self._name)
        at = 0
        for _ in range(entries):
            if at + _CENTRAL.size > nbytes or data[at : at + 4] != b"PK\1\2":
                self._fail(f"declares {entries} members and lists fewer")
            fields = _CENTRAL.unpack_from(data, at)
            _, _, needed, flags, method, _, _, crc, packed, full, *lengths = fields[:13]
            disk, _, attributes, header = fields[13:]
            name_nbytes, extra_nbytes, comment_nbytes = lengths
            name_end = at + _CENTRAL.size + name_nbytes
            raw = data[at + _CENTRAL.size : name_end]
            extra = data[name_end : name_end + extra_nbytes]
            at = name_end + extra_nbytes + comment_nbytes
            if at > nbytes:
                self._fail("has a directory that is cut")
            name = self._text(raw, flags)
            names.add(name, is_folder=name.endswith("/"))
            if needed & 0xFF > _NEWEST:
                what = f"needs a reader of version {needed / 10}"
                raise refusal(self._name, name, what)
            if disk:
                raise refusal(self._name, name, "lies in another part of the archive")
            full, packed, header = self._wide(name, extra, full, packed, header)
            record = Record(name, full, packed, crc, method, flags, header)
            if what := _oddity(record, attributes):
                raise refusal(self._name, name, what)
            yield record
        if at != nbytes:
            self._fail(f"declares {entries} members and lists more")
        names.finish()

    def _local_headers(self, directory: int) -> Iterator[tuple[int, int]]:
        """Find where each member's content begins, by where its header does."""
        records = sorted(self.records, key=lambda record: record.header)
        if records and records[0].header:
            self._fail("has bytes before its first member")
        if not records and directory:
            self._fail("has bytes before its directory")
        following = [*(record.header for record in records), directory][1:]
        for record, limit in zip(records, following, strict=True):
            if record.header + _LOCAL.size > limit:
                raise refusal(self._name, record.name, "overlaps another member")
            fields = _LOCAL.unpack(self._at(record.header, _LOCAL.size))
            magic, _, flags, method, _, _, crc, packed, nbytes, name_size, extra_size = fields
            if magic != b"PK\3\4":
                raise refusal(self._name, record.name, "has no local header")
            rest = self._at(record.header + _LOCAL.size, name_size + extra_size)
            name, extra = self._text(rest[:name_size], flags), rest[name_size:]
            if (name, flags, method) != (record.name, record.flags, record.method):
                what = "has a local header that differs from the directory"
                raise refusal(self._name, record.name, what)
            nbytes, packed = self._wide(record.name, extra, nbytes, packed)
            declared = (record.crc, record.packed, record.nbytes)
            if (crc, packed, nbytes) != declared and not (
                flags & _SIZES_FOLLOW and not crc and not packed and not nbytes
            ):
                what = "has a size or a CRC-32 that differs from the directory"
                raise refusal(self._name, record.name, what)
            begin = record.header + _LOCAL.size + name_size + extra_size
            end = begin + record.packed
            if end > limit:
                raise refusal(self._name, record.name, "overlaps another member")
            self._descriptor(record, end, limit)
            yield record.header, begin

    def _descriptor(self, record: Record, end: int, limit: int) -> None:
        """Check that nothing lies before the next header, or the sizes that the flags promise."""
        numbers = (record.crc, record.packed, record.nbytes)
        forms = [b""]
        if record.flags & _SIZES_FOLLOW:
            bodies = [struct.pack("<IQQ", *numbers)]
            if max(numbers) <= _FULL_32:
                bodies.append(struct.pack("<III", *numbers))
            forms = [magic + body for magic in (b"PK\7\x08", b"") for body in bodies]
        if limit - end > 24 or self._at(end, limit - end) not in forms:
            raise refusal(self._name, record.name, "is followed by bytes of no member")

    def _wide(self, name: str, extra: bytes, *numbers: int) -> list[int]:
        """Put the ZIP64 field's numbers where a header has only a mark."""
        wide: list[int] | None = None
        while extra:
            if len(extra) < 4 or len(extra) < 4 + struct.unpack_from("<H", extra, 2)[0]:
                raise refusal(self._name, name, "has a malformed extra field")
            kind, size = struct.unpack_from("<HH", extra)
            body, extra = extra[4 : 4 + size], extra[4 + size :]
            if kind == _UNICODE_PATH:
                raise refusal(self._name, name, "has a second name")
            if kind == _ZIP64:
                if wide is not None or size % 8:
                    raise refusal(self._name, name, "has a malformed ZIP64 field")
                wide = list(struct.unpack(f"<{size // 8}Q", body))
        if numbers.count(_FULL_32) != len(wide or ()):
            raise refusal(self._name, name, "has a ZIP64 field that does not fit its header")
        return [(wide or []).pop(0) if number == _FULL_32 else number for number in numbers]

    def _text(self, raw: bytes, flags: int) -> str:
        try:
            return raw.decode("utf-8" if flags & _UTF8 else "ascii")
        except UnicodeDecodeError:
            shown = raw.decode("utf-8", "backslashreplace")
            what = "has a name that readers understand differently"
            raise refusal(self._name, shown, what) from None

    def _at(self, offset: int, nbytes: int) -> bytes:
        self._file.seek(offset)
        data = self._file.read(nbytes)
        if len(data) < nbytes:
            self._fail(f"is cut: {nbytes} bytes are missing at {offset}")
        return data

    def _fail(self, what: str) -> NoReturn:
        raise ArchiveError(f"{self._name} {what}")


def _oddity(record: Record, attributes: int) -> str:
    kind = stat.S_IFMT(attributes >> 16)
    folder_kinds = (0, stat.S_IFDIR) if record.is_folder else (0, stat.S_IFREG)
    if record.flags & (_ENCRYPTED | _STRONG):
        return "is encrypted"
    if record.flags & _PATCHED:
        return "is a patch of another file"
    if record.method not in (_STORED, _DEFLATED):
        return f"is compressed by method {record.method}, not stored or deflated"
    if kind not in folder_kinds:
        return "is a link" if kind == stat.S_IFLNK else "is not a plain file"
    if record.method == _STORED and record.packed != record.nbytes:
        return "is stored in another size than its own"
    if record.is_folder and record.nbytes:
        return "is a folder with content"
    return ""


def _occurrences(data: bytes, wanted: bytes) -> Sequence[int]:
    found, at = [], data.find(wanted)
    while at >= 0:
        found.append(at)
        at = data.find(wanted, at + 1)
    return found
