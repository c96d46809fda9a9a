"""The received bytes of an archive: one private file, filled from any source.

Owns resuming: what may be appended to what. Must not know pins of members, nor the cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import urlsplit

from pjrt_hub.base import digest
from pjrt_hub.errors import CacheError
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.catalog import Archive
from pjrt_hub.finding.store.transfer.credentials import redact
from pjrt_hub.finding.store.transfer.transport import (
    Dropped,
    Pace,
    Patience,
    Refused,
    Transport,
    refuse_encoding,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    import httpx

#: The name of a partial file in its folder.
ARCHIVE_NAME = "archive"
_CHUNK = 256 << 10
_HASHED_AT_ONCE = 1 << 20
#: The most bytes of a file that has no pin.
_MOST_NBYTES = 8 << 30
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


#: What a download does at the moment: ask for the file; wait before another attempt; receive it;
#: compare it with its pin; write its members to the disk; nothing more, as all of it succeeded.
Phase = Literal["looking", "waiting", "fetching", "checking", "unpacking", "done"]


class Progress(Protocol):
    """A listener to a download's progress; sizes are in bytes.

    A listener that also has a method `enter(phase)` is told each `Phase` as it begins, and is also
    told of a file of unknown size, whose `total` is None.
    """

    def start(self, total: int, already: int) -> None:
        """Begin a download, or begin it again.

        Args:
            total: the size of the file.
            already: the bytes of it that are there already.
        """

    def advance(self, n: int) -> None:
        """Count more bytes.

        Args:
            n: the number of bytes.
        """

    def finish(self) -> None:
        """End the download, whether it succeeded or not."""


def enter(progress: Progress | None, phase: Phase) -> None:
    """Tell a listener that has `enter` which phase begins."""
    if (told := getattr(progress, "enter", None)) is not None:
        told(phase)


@contextmanager
def report_to(progress: Progress | None) -> Iterator[Progress | None]:
    """Call the listener's `finish` at the end of a `with` block."""
    try:
        yield progress
    finally:
        if progress:
            progress.finish()


class Partial:
    """The received bytes: a private file, its digest, and its source.

    Without a pin, only the server may say how large the file is. The caller ends `progress`.
    """

    def __init__(self, pin: Archive | None, folder: Path, progress: Progress | None) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self.path = folder / ARCHIVE_NAME
        self.size = pin.size if pin else None
        self.is_mixed = False
        self.pin = pin
        self._origin_path = folder / "origin.json"
        self._progress = progress
        self._process = os.getpid()
        flags = os.O_RDWR | os.O_CREAT | disk.NOFOLLOW
        self._file = os.fdopen(os.open(self.path, flags, 0o600), "r+b", buffering=0)
        # A file that an earlier process left is hashed again.
        if os.fstat(self._file.fileno()).st_size:
            self.enter("checking")
        self._digest = hashlib.file_digest(self._file, "sha256")
        self._waiting: list[bytes] = []
        self._waiting_nbytes = 0
        self._beside = ThreadPoolExecutor(1, "pjrt-hub hash")
        self._hashing: Future[None] | None = None
        self.nbytes = self._file.seek(0, os.SEEK_END)
        if self.nbytes > self.most_nbytes:
            self.restart()
        else:
            self._begin()

    def close(self) -> None:
        self._beside.shutdown()
        self._file.close()

    def enter(self, phase: Phase) -> None:
        """Tell the listener which phase begins."""
        enter(self._progress, phase)

    @property
    def sha256(self) -> str:
        self._settle()
        return self._digest.hexdigest()

    @property
    def most_nbytes(self) -> int:
        """The largest allowed size of the file, in bytes."""
        return _MOST_NBYTES if self.size is None else self.size

    @property
    def is_complete(self) -> bool:
        return self.nbytes == self.size

    @property
    def came(self) -> str:
        """The number of received bytes, as text for a message."""
        whole = "" if self.size is None else f" of {self.size:,}"
        return f"{self.nbytes:,}{whole} bytes"

    @property
    def is_page(self) -> bool:
        """Whether the file begins like a page, not like an archive."""
        with self.path.open("rb") as file:
            return is_page(file.read(64))

    @property
    def is_pinned(self) -> bool:
        return self.pin is not None and self.is_complete and self.sha256 == self.pin.sha256

    def append(self, chunk: bytes) -> None:
        self.nbytes += len(chunk)
        self._waiting.append(chunk)
        self._waiting_nbytes += len(chunk)
        if self._waiting_nbytes >= _HASHED_AT_ONCE:
            self._hash()
        view = memoryview(chunk)
        while view:
            view = view[self._file.write(view) :]
        if self._progress and self._is_told:
            self._progress.advance(len(chunk))
            self._require_no_fork()

    def restart(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._settle()
        self._digest = hashlib.sha256()
        self.nbytes = 0
        self.is_mixed = False
        self.size = self.pin.size if self.pin else None
        self._origin_path.unlink(missing_ok=True)
        self._begin()

    def expect(self, nbytes: int) -> None:
        """Set the size of a file without a pin; raise Refused if it is beyond the limit."""
        if nbytes > _MOST_NBYTES:
            raise Refused(f"it has {nbytes:,} bytes, and {_MOST_NBYTES:,} is the most")
        self.size = nbytes
        self._begin()

    def _begin(self) -> None:
        if self._progress and self._is_told:
            self._progress.start(self.size, self.nbytes)  # type: ignore[arg-type]
            self._require_no_fork()

    @property
    def _is_told(self) -> bool:
        return self.size is not None or hasattr(self._progress, "enter")

    def _require_no_fork(self) -> None:
        """Raise CacheError in a forked process, which must not continue its parent's download.

        The file, its position and the connection are the parent's, and the hashing thread is gone.
        """
        if os.getpid() != self._process:
            raise fork_error(self.pin.package if self.pin else "a file")

    def _hash(self) -> None:
        """Hash received bytes; hashing releases the GIL, so it runs beside the network."""
        if self._hashing is not None:
            self._hashing.result()
        self._hashing = self._beside.submit(self._digest.update, b"".join(self._waiting))
        self._waiting, self._waiting_nbytes = [], 0

    def _settle(self) -> None:
        """Wait until all received bytes are hashed."""
        self._hash()
        self._hash()

    def remember(self, url: str, response: httpx.Response) -> None:
        """Remember the validator for If-Range; a weak one promises nothing about bytes."""
        validator = response.headers.get("etag", "")
        if not validator or validator.startswith("W/"):
            validator = response.headers.get("last-modified", "")
        origin = {"url": redact(url), "validator": validator}
        self._origin_path.write_text(json.dumps(origin), "utf-8")

    def range_headers(self, url: str) -> dict[str, str]:
        """Return the headers that ask for the rest, if it is still a part of the same file."""
        if not self.nbytes or self.size is None:
            return {}
        headers = {"Range": f"bytes={self.nbytes}-"}
        with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            origin = json.loads(digest.content(self._origin_path))
            if origin["url"] == redact(url) and origin["validator"]:
                return {**headers, "If-Range": str(origin["validator"])}
        # Without a pin, nothing would show that the parts come from two files.
        return headers if self.pin else {}


def fork_error(package: str) -> CacheError:
    """Make the error for a process that continues its parent's download."""
    return CacheError(
        f"the process was forked while it fetched {package}",
        hint="fetch before you fork, or once more in the child",
    )


class _Unranged(Dropped):
    """The server cannot continue a file; it must be asked for all of it."""


def fill(partial: Partial, url: str, transport: Transport) -> None:
    """Fill the partial to its full size, over as many connections as patience allows.

    An address that does not give the file raises Refused.
    """
    if urlsplit(url).scheme == "file":
        copy(partial, url, transport.patience)
        return
    patience = transport.patience
    failures, furthest, ranged = 0, partial.nbytes, True
    while not partial.is_complete:
        if not ranged and partial.nbytes:
            partial.restart()
        try:
            _receive(partial, url, transport)
        except Dropped as drop:
            ranged = ranged and not isinstance(drop, _Unranged)
            if partial.nbytes - furthest >= patience.useful_nbytes:
                failures = 0
            furthest = max(furthest, partial.nbytes)
            failures += 1
            if partial.is_complete:
                return
            if failures >= patience.tries:
                raise Refused(f"{drop}, {failures} times in a row, at {partial.came}") from drop
            partial.enter("waiting")
            patience.wait(failures, drop.wait_seconds)
            partial.enter("looking")


def _receive(partial: Partial, url: str, transport: Transport) -> None:
    """Receive the part of the file that one connection brings."""
    with transport.stream(url, partial.range_headers(url)) as response:
        _accept(partial, url, response)
        partial.enter("fetching")
        pace = Pace(transport.patience)
        for chunk in response.iter_raw():
            if not partial.nbytes and is_page(chunk):
                raise Refused("it sends a page and no archive, perhaps of a proxy or a login")
            if partial.nbytes + len(chunk) > partial.most_nbytes:
                bound = f"the pinned {partial.size:,}" if partial.pin else f"{_MOST_NBYTES:,}"
                partial.restart()
                raise Refused(f"it sends more than {bound} bytes")
            partial.append(chunk)
            pace.came(len(chunk))
    if partial.size is None:
        partial.expect(partial.nbytes)  # A lost connection would look the same.
    if not partial.is_complete:
        raise Dropped("the server closed the connection early")


def _accept(partial: Partial, url: str, response: httpx.Response) -> None:
    """Decide whether an answer's body continues the partial, or starts it over."""
    refuse_encoding(response)
    status, headers = response.status_code, response.headers
    if status == 416:
        if not partial.nbytes:
            raise Refused("the server answered 416 to a request without a range")
        partial.restart()
        raise _Unranged("the server cannot continue the file (416)")
    declared = headers.get("content-length", "")
    if status == 206:
        found = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
        start, end, total = map(int, found.groups()) if found else (-1, -1, -1)
        exact = start == partial.nbytes and total == partial.size and start <= end < total
        if not partial.nbytes or not exact or declared not in ("", str(end - start + 1)):
            spoken = headers.get("content-range", "none")
            partial.restart()
            raise _Unranged(f"the server sent another range than was asked for ({spoken})")
        partial.is_mixed = True
        return
    if "content-range" in headers:
        partial.restart()
        raise _Unranged("the server sent a range and called it the whole file")
    if partial.pin is None:
        partial.restart()
        if declared:
            partial.expect(int(declared))
    elif declared and declared != str(partial.size):
        kind = headers.get("content-type", "no type").partition(";")[0]
        page = " (a page, perhaps of a proxy or a login)" if kind == "text/html" else ""
        raise Refused(
            f"it offers {declared} bytes of {kind}{page}, the pin says {partial.size:,} bytes"
        )
    elif partial.nbytes:
        partial.restart()
    partial.remember(url, response)


def is_page(head: bytes) -> bool:
    """Check whether bytes begin like HTML or XML, unlike an archive."""
    return head.lstrip().startswith(b"<")


def local_path(url: str) -> Path:
    """Return the path that a file: address names."""
    from urllib.request import url2pathname

    return Path(url2pathname(urlsplit(url).path))


def copy(partial: Partial, url: str, patience: Patience) -> None:
    """Copy a file of this machine, whose size must be the pinned one, if there is a pin.

    A file that cannot be read, or has another size, raises Refused.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its writer.
        source = os.open(local_path(url), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as exc:
        raise Refused(f"cannot be read: {exc.strerror}") from exc
    found = os.fstat(source)
    if not stat.S_ISREG(found.st_mode):  # A folder or a pipe cannot be copied.
        os.close(source)
        raise Refused("it is not a file")
    with os.fdopen(source, "rb", buffering=0) as file:
        size = found.st_size
        if partial.pin is None:
            partial.restart()
            partial.expect(size)
        elif size != partial.size:
            raise Refused(f"it has {size:,} bytes, the pin says {partial.size:,} bytes")
        partial.enter("fetching")
        partial.is_mixed = file.seek(partial.nbytes) > 0
        while chunk := file.read(min(_CHUNK, partial.most_nbytes - partial.nbytes)):
            partial.append(chunk)
            patience.remaining()
    if not partial.is_complete:
        raise Refused("it became shorter while it was read")
