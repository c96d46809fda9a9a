"""A .tar.gz file's members: `tarfile` reads them, and what it would overlook is refused here.

Accepts plain files and folders of the ustar, pax and GNU forms, in one gzip member, and nothing
after the end.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from tarfile import AREGTYPE, DIRTYPE, GNUTYPE_LONGNAME, REGTYPE, XGLTYPE, XHDTYPE, ReadError
from typing import BinaryIO, Self

from pjrt_hub.errors import ArchiveError
from pjrt_hub.finding.store.archive import unpacking
from pjrt_hub.finding.store.archive.unpacking import Files, refusal

_BLOCK, _NAME_FIELD_NBYTES = 512, 100
_MOST_HEADER_BYTES = 16 << 10
#: tar pads its last record; in practice, GNU tar uses records of 1 MiB at most.
_MOST_PADDING_BYTES = 1 << 20
_POSIX, _GNU = b"ustar\x0000", b"ustar  \x00"
_TYPES = (REGTYPE, AREGTYPE, DIRTYPE, XHDTYPE, XGLTYPE, GNUTYPE_LONGNAME)
_OCTAL = re.compile(rb" *([0-7]+)[ \0]*")
#: The length, the key and the "=" of a record of a pax header.
_RECORD = re.compile(rb"([1-9]\d{0,4}) ([^=\n]+)=")
#: The keys that a pax header may have besides a path, because none of them reaches the disk.
_HARMLESS = re.compile(r"[acm]time|[ug]id|[ug]name|comment|(SCHILY|LIBARCHIVE)\..*", re.DOTALL)


def files(file: BinaryIO, name: str) -> Files:
    """Yield the files of a .tar.gz in order: path, size and content, which is valid until the next.

    `file` is at its start, and stays the caller's. An archive that is malformed, hostile or cut
    raises ArchiveError, at the latest at its end.
    """
    stream = _Stream(file, name)
    names: list[str] = []
    try:
        archive = tarfile.TarFile(
            fileobj=stream,  # type: ignore[arg-type]
            tarinfo=_Header,
            encoding="utf-8",
            errors="strict",
        )
        for info in archive:
            path = info.name.removeprefix("./") + "/" * info.isdir()
            if what := _oddity(info, archive, stream.packed):
                raise refusal(name, path, what)
            if len(names) == unpacking.MOST_MEMBERS:
                raise ArchiveError(f"{name} has more than {len(names)} members")
            if path not in ("/", "./"):
                names.append(path)
            content = stream.parts(info.size)
            if not path.endswith("/"):
                yield path, info.size, content
            for _ in content:
                pass
            if any(stream.read(-info.size % _BLOCK)):
                raise ReadError("it has bytes between its members")
            stream.header_nbytes, stream.is_extended = 0, False
        unpacking.require_names(name, names)
        nbytes = 0
        while chunk := stream.next():
            nbytes += len(chunk)
            if any(chunk) or nbytes > _MOST_PADDING_BYTES:
                raise ReadError("it has bytes after its end")
        if nbytes < _BLOCK or nbytes % _BLOCK:
            raise ReadError("it is cut in its end")
    except (tarfile.TarError, ValueError) as exc:
        raise ArchiveError(f"{name} is not a plain tar.gz file: {exc}") from exc


def _oddity(info: tarfile.TarInfo, archive: tarfile.TarFile, packed: int) -> str:
    for key in archive.pax_headers.keys() | info.pax_headers.keys() - {"path"}:
        if not _HARMLESS.fullmatch(key):
            return f"has a pax header that sets {key!r}"
    if info.linkname:
        return "is a link"
    if info.pax_headers.get("path", "").endswith("/") and not info.isdir():
        return "is a file with the name of a folder"
    extended = info.offset_data - info.offset > _BLOCK
    if extended and not info.pax_headers and len(info.name.encode()) < _NAME_FIELD_NBYTES:
        return "has a header that it does not need"
    if info.size and (info.isdir() or info.name.endswith("/")):
        return "is a folder with content"
    if unpacking.is_bomb(info.size, packed):
        return f"is a bomb: {packed} bytes would unfold to {info.size}"
    return ""


class _Header(tarfile.TarInfo):
    """A header of a known form and type; another one is an error, not the end of the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        _check_extension(archive.fileobj)  # type: ignore[arg-type]
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined, unused-ignore]
            raise
        except tarfile.HeaderError as exc:
            raise ReadError(str(exc)) from exc

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        info = super().frombuf(buf, encoding, errors)
        if buf[257:265] not in (_POSIX, _GNU):
            raise ReadError("a header is of an unknown form")
        fields = [buf[:100]] + [buf[345:500]] * (buf[257:265] == _POSIX)
        texts = [bytes(field).partition(b"\0") for field in fields]
        if any(rest.strip(b"\0") for _, _, rest in texts):
            raise ReadError(f"{info.name!r} has a name that readers understand differently")
        if buf[257:265] == _GNU:  # GNU's form has times where `tarfile` sees a part of the name.
            name = texts[0][0].decode(encoding, errors)
            info.name = name.rstrip("/") if info.isdir() else name
        if not _OCTAL.fullmatch(buf[124:136]):
            raise ReadError(f"{info.name!r} has the size {bytes(buf[124:136])!r}")
        if info.type not in _TYPES:
            raise ReadError(f"{info.name!r} is no file or folder, its type is {info.type!r}")
        return info


def _check_extension(stream: _Stream) -> None:
    """Refuse a header that gives a member a second name, or that readers understand differently."""
    head = stream.peek(_BLOCK)
    kind, size = head[156:157], _OCTAL.fullmatch(head[124:136])
    if kind not in (XHDTYPE, XGLTYPE, GNUTYPE_LONGNAME) or not size:
        return
    if kind != XGLTYPE and stream.is_extended:
        raise ReadError("it gives a member two names")
    stream.is_extended |= kind != XGLTYPE
    nbytes = int(size[1], 8)
    if nbytes > _MOST_HEADER_BYTES:
        return  # The stream refuses to read it.
    body = stream.peek(_BLOCK + nbytes)[_BLOCK:]
    if kind == GNUTYPE_LONGNAME:
        if body.partition(b"\0")[2].strip(b"\0"):
            raise ReadError("a long name has bytes after its end")
    else:
        _check_pax(body)


def _check_pax(body: bytes) -> None:
    keys: set[bytes] = set()
    while body:
        record = _RECORD.match(body)
        length = int(record[1]) if record else 0
        if not record or not record.end() < length <= len(body) or body[length - 1] != 10:
            raise ReadError("a pax header is malformed")
        if record[2] in keys:
            raise ReadError(f"a pax header has {record[2].decode('utf-8', 'replace')!r} twice")
        keys.add(record[2])
        body = body[length:]


class _Stream:
    """The content of a gzip file; a read by `tarfile` never gets fewer bytes than it asks for."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.packed = os.fstat(file.fileno()).st_size
        self.header_nbytes = 0
        self.is_extended = False  # Whether a header has named the member that comes next.
        self._name = name
        self._chunks = unpacking.inflate(unpacking.parts(file, self.packed), unpacking.GZIP, name)
        self._ahead = b""
        self._nbytes = 0

    def tell(self) -> int:
        return self._nbytes - len(self._ahead)

    def read(self, nbytes: int) -> bytes:
        self.header_nbytes += nbytes
        # `tarfile` would read a header of any size at once, and any number of headers.
        if self.header_nbytes > _MOST_HEADER_BYTES:
            raise ReadError(f"a header has {self.header_nbytes} bytes")
        return b"".join(self.parts(nbytes))

    def peek(self, nbytes: int) -> bytes:
        found = b"".join(self.parts(nbytes))
        self._ahead = found + self._ahead
        return found

    def parts(self, nbytes: int) -> Iterator[bytes]:
        while nbytes:
            if not (chunk := self.next()):
                raise ArchiveError(f"{self._name} is cut")
            chunk, self._ahead = chunk[:nbytes], chunk[nbytes:]
            nbytes -= len(chunk)
            yield chunk

    def next(self) -> bytes:
        """Return the next bytes, any number of them; none at the end."""
        if chunk := self._ahead:
            self._ahead = b""
            return chunk
        chunk = next(self._chunks, b"")
        self._nbytes += len(chunk)
        if unpacking.is_bomb(self._nbytes, self.packed):
            raise ArchiveError(
                f"{self._name} is a bomb: {self.packed} bytes unfold to more than {self._nbytes}"
            )
        return chunk
