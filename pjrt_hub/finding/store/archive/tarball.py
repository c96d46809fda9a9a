"""A .tar.gz file's members, read strictly and as a stream.

Accepts plain files and folders of the ustar, pax and GNU forms, in one gzip member, and nothing
after the end. Numbers: POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar, "Basic Format".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, NoReturn

from pjrt_hub.errors import ArchiveError
from pjrt_hub.finding.store.archive.unpacking import GZIP, Names, inflate, is_bomb, parts, refusal

_BLOCK = 512
_MOST_HEADER_BYTES = 64 << 10
#: tar fills its last record; 1 MiB is the largest that GNU tar is asked for in practice.
_MOST_PADDING_BYTES = 1 << 20
_POSIX, _GNU = b"ustar\x0000", b"ustar  \x00"
_OCTAL = re.compile(rb" *([0-7]+)[ \0]*")
#: Mode, owner, group, time and device: not of interest, and yet to be sound.
_NUMBERS = ((100, 108), (108, 116), (116, 124), (136, 148), (329, 337), (337, 345))
#: What a number in base 256 begins with, which large user ids and negative times are written in.
_BINARY = (0x80, 0xFF)
_FILE, _OLD_FILE, _FOLDER = b"0", b"\0", b"5"
_PAX, _PAX_ALL, _LONG_NAME = b"x", b"g", b"L"
_KINDS = {
    b"1": "is a hard link",
    b"2": "is a link",
    b"3": "is a device",
    b"4": "is a device",
    b"6": "is a pipe",
    b"K": "is a link",
    b"S": "is sparse",
}
#: What pax may say beside a path: nothing of it reaches the disk.
_HARMLESS = (b"mtime", b"atime", b"ctime", b"uid", b"gid", b"uname", b"gname", b"comment")
_HARMLESS_PREFIXES = (b"SCHILY.", b"LIBARCHIVE.")


class Tarball:
    """One open .tar.gz file, to be read once, from its start to its end.

    Args:
        file: open for reading, at its start; stays the caller's.
        name: the archive's file name, for messages.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._name = name
        self._packed = os.fstat(file.fileno()).st_size
        self._stream = inflate(parts(file, self._packed), GZIP)
        self._ahead = b""
        self._nbytes = 0

    def files(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, int, Iterator[bytes]]]:
        """Yield the wanted members in order: path, size and content, which is valid until the next.

        Raises:
            ArchiveError: the archive is malformed, hostile or cut; told at the latest at its end.
        """
        names = Names(self._name)
        path = ""  # from a header of its own, for the next member
        while any(header := self._take(_BLOCK)):
            kind = header[156:157]
            nbytes = self._size(header)
            if kind in (_PAX, _PAX_ALL, _LONG_NAME):
                if kind != _PAX_ALL and path:
                    self._fail(f"gives the member {path!r} two names")
                data = self._take_padded(nbytes)
                if kind == _LONG_NAME:
                    path = self._text_to_nul(data)
                else:
                    path = self._pax_path(data, everyone=kind == _PAX_ALL) or path
                continue
            name = (path or self._own_name(header)).removeprefix("./")
            path = ""
            if kind not in (_FILE, _OLD_FILE, _FOLDER):
                what = _KINDS.get(kind, f"has the unknown kind {kind!r}")
                raise refusal(self._name, name, what)
            is_folder = kind == _FOLDER
            if name.endswith("/") and not is_folder:
                raise refusal(self._name, name, "is a file with the name of a folder")
            if is_folder and nbytes:
                raise refusal(self._name, name, "is a folder with content")
            if is_folder and name in ("", "."):
                continue
            names.add(name, is_folder=is_folder)
            if is_bomb(nbytes, self._packed):
                what = f"is a bomb: {self._packed} bytes would unfold to {nbytes}"
                raise refusal(self._name, name, what)
            content = self._chunks(nbytes)
            if not is_folder and wanted(name):
                yield name, nbytes, content
            for _ in content:
                pass
            self._skip_padding(-nbytes % _BLOCK)
        if path:
            self._fail(f"ends before the member {path!r}")
        names.finish()
        self._end()

    def _size(self, header: bytes) -> int:
        """Check a header and return its size field."""
        unsigned = sum(header) - sum(header[148:156]) + 8 * ord(" ")
        if self._octal(header[148:156]) != unsigned:
            self._fail("has a damaged header, or is not a tar file")
        if header[257:265] not in (_POSIX, _GNU):
            self._fail("has a header of an unknown form")
        # A reader that stops at an odd number would see fewer files.
        for begin, end in _NUMBERS:
            field = header[begin:end]
            if field[0] not in _BINARY and field.strip(b"\0 "):
                self._octal(field)
        return self._octal(header[124:136])

    def _octal(self, field: bytes) -> int:
        if not (found := _OCTAL.fullmatch(field)):
            self._fail(f"has the number {field!r} in a header")
        return int(found[1], 8)

    def _own_name(self, header: bytes) -> str:
        name = self._text_to_nul(header[:100])
        if header[257:265] == _POSIX and header[345]:
            name = f"{self._text_to_nul(header[345:500])}/{name}"
        return name

    def _text_to_nul(self, raw: bytes) -> str:
        name, _, rest = raw.partition(b"\0")
        if rest.strip(b"\0"):
            shown = raw.decode("utf-8", "backslashreplace")
            raise refusal(self._name, shown, "has a name that readers understand differently")
        return self._text(name)

    def _pax_path(self, data: bytes, *, everyone: bool) -> str:
        """Return the path in a pax header, or an empty string; refuse what would change a file."""
        path, seen = "", set()
        while data:
            digits = data.partition(b" ")[0]
            if not digits.isdigit() or len(digits) > 5:
                self._fail("has a malformed pax header")
            record, data = data[: int(digits)], data[int(digits) :]
            key, equals, value = record[len(digits) + 1 :].partition(b"=")
            if len(record) < int(digits) or not equals or value[-1:] != b"\n" or key in seen:
                self._fail("has a malformed pax header")
            seen.add(key)
            if key == b"path" and not everyone:
                path = self._text(value[:-1])
            elif key not in _HARMLESS and not key.startswith(_HARMLESS_PREFIXES):
                self._fail(f"has a pax header that sets {key!r}")
        return path

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as exc:
            raise ArchiveError(f"{self._name} has a header that is not text: {exc}") from None

    def _end(self) -> None:
        """Check that only zeros follow the first block of zeros, at least one block of them."""
        left = 0
        for chunk in self._chunks(_MOST_PADDING_BYTES, may_end=True):
            if any(chunk):
                self._fail("has bytes after its end")
            left += len(chunk)
        if left < _BLOCK or left % _BLOCK:
            self._fail("is cut in its end")
        if self._ahead or self._next():
            self._fail("has too many bytes after its end")

    def _take(self, nbytes: int) -> bytes:
        return b"".join(self._chunks(nbytes))

    def _take_padded(self, nbytes: int) -> bytes:
        if nbytes > _MOST_HEADER_BYTES:
            self._fail(f"has a header of {nbytes} bytes")
        data = self._take(nbytes)
        self._skip_padding(-nbytes % _BLOCK)
        return data

    def _skip_padding(self, nbytes: int) -> None:
        if any(self._take(nbytes)):
            self._fail("has bytes between its members")

    def _chunks(self, nbytes: int, *, may_end: bool = False) -> Iterator[bytes]:
        while nbytes:
            chunk = self._ahead or self._next()
            if not chunk:
                if may_end:
                    return
                self._fail("is cut")
            chunk, self._ahead = chunk[:nbytes], chunk[nbytes:]
            nbytes -= len(chunk)
            yield chunk

    def _next(self) -> bytes:
        try:
            chunk = next(self._stream, b"")
        except ValueError as exc:
            raise ArchiveError(f"{self._name} {exc}") from None
        self._nbytes += len(chunk)
        if is_bomb(self._nbytes, self._packed):
            self._fail(f"is a bomb: {self._packed} bytes unfold to more than {self._nbytes}")
        return chunk

    def _fail(self, what: str) -> NoReturn:
        raise ArchiveError(f"{self._name} {what}")
