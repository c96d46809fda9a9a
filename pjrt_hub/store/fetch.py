"""Getting a pinned artifact: the cache, else the network (layer 2).

Owns the only socket that moves plugin bytes, and resuming it. Size and sha256 come from the pin,
never from a server; a file that is not the pinned one is never kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from pjrt_hub.errors import DigestMismatchError, DownloadError, OfflineError, StoreError
from pjrt_hub.store import index, lock
from pjrt_hub.store.cache import Cache, Entry
from pjrt_hub.store.catalog import Artifact
from pjrt_hub.store.transport import (
    Dropped,
    Patience,
    Refused,
    Transport,
    redacted,
    refuse_encoding,
)

if TYPE_CHECKING:
    import httpx

_Look = Callable[[Artifact, str, Transport], Iterator[str]]

_CHUNK = 256 << 10
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class Progress(Protocol):
    """Is told how a download goes; sizes are in bytes."""

    def start(self, total: int, already: int) -> None:
        """A download begins, or begins again from `already` bytes."""

    def advance(self, n: int) -> None:
        """`n` more bytes came."""

    def finish(self) -> None:
        """No more bytes come, whether it succeeded or not."""


def obtain(
    artifact: Artifact,
    cache: Cache,
    *,
    env: Mapping[str, str],
    offline: bool = False,
    progress: Progress | None = None,
    notify: Callable[[str], None] | None = None,
    patience: Patience | None = None,
) -> Entry:
    """Gives the artifact's entry, and fetches it first where the cache lacks it.

    Args:
        artifact: the pin.
        cache: where entries are kept.
        env: `PJRT_HUB_MIRRORS`, and the variables of pip, uv and TLS.
        offline: whether the network is forbidden.
        progress: is told how a download goes.
        notify: is told what the user should know of a wait.
        patience: the limits; the defaults suit a person at a terminal.

    Raises:
        OfflineError: the entry is not in the cache and `offline` is set.
        DigestMismatchError: the bytes that came are not the pinned ones.
        DownloadError: no source gave the file.
        ArchiveError: the archive does not hold the pinned members.
        CacheError: the cache cannot be used.
        StoreError: no package index is known.
    """
    if entry := cache.lookup(artifact):
        return entry
    if offline:
        raise OfflineError(
            f"{artifact.package} {artifact.version} is not in the cache {cache.root}, "
            "and the network is forbidden",
            hint=f"run `pjrt-hub get {artifact.plugin}` once where there is a network",
        )
    limits = patience or Patience()
    with lock.held(
        cache.lock_path(artifact),
        patience_seconds=limits.lock_seconds,
        notify=notify,
        sleep=limits.sleep,
        clock=limits.clock,
    ):
        if entry := cache.lookup(artifact):
            return entry
        with cache.workspace(artifact) as folder:
            already = sum(path.stat().st_size for path in folder.iterdir())
            cache.require_space(artifact.size - already + artifact.nbytes)
            archive_path = download(artifact, folder, env=env, progress=progress, patience=limits)
            return cache.publish(artifact, archive_path)


def download(
    artifact: Artifact,
    folder: Path,
    *,
    env: Mapping[str, str],
    progress: Progress | None = None,
    patience: Patience,
) -> Path:
    """Fetches the pinned archive into a private folder, from the first source that has it.

    Mirrors come first, then the artifact's own addresses, then the configured indexes. What an
    earlier attempt left in `folder` is continued.

    Returns:
        The path of the archive, whose size and sha256 are the pinned ones.

    Raises:
        DigestMismatchError: a source gave other bytes, and no source gave the pinned ones.
        DownloadError: no source gave the file.
        StoreError: no package index is known.
        OSError: `folder` cannot be written.
    """
    failures: list[tuple[str, str]] = []
    mismatch: DigestMismatchError | None = None
    with closing(_Partial(artifact, folder, progress)) as partial:
        if partial.is_pinned:
            return partial.path
        if partial.is_complete:
            partial.restart()
        with closing(_addresses(artifact, env, patience, failures)) as addresses:
            for url, transport in addresses:
                try:
                    _fill(partial, url, transport)
                    if not partial.is_pinned and partial.is_mixed:
                        # The file changed between two parts: once more, in one part.
                        partial.restart()
                        _fill(partial, url, transport)
                except Refused as exc:
                    failures.append((url, str(exc)))
                    continue
                if partial.is_pinned:
                    return partial.path
                mismatch = _mismatch(artifact, url, partial)
                failures.append((url, f"its sha256 is {partial.sha256}"))
                partial.restart()
    raise mismatch or _no_source(artifact, failures)


def _addresses(
    artifact: Artifact,
    env: Mapping[str, str],
    patience: Patience,
    failures: list[tuple[str, str]],
) -> Generator[tuple[str, Transport], None, None]:
    """Every address worth trying, each with the client to ask it with, found as late as can be."""
    with Transport(
        env, certificates=env.get("PIP_CERT"), proxy=env.get("PIP_PROXY"), patience=patience
    ) as transport:
        for base in index.mirrors(env):
            try:
                for url in index.on_mirror(artifact, base, transport):
                    yield url, transport
            except (Refused, OSError) as exc:
                failures.append((base, str(exc)))
        for url in artifact.urls:
            yield url, transport
    try:
        sources = index.configured(env)
    except StoreError as exc:
        if not failures:
            raise
        failures.append(("package index", exc.message))
        return
    looks: list[tuple[str, _Look]] = []
    looks += [(place, index.in_find_links) for place in sources.find_links]
    looks += [(base, index.on_index) for base in sources.indexes]
    with Transport(
        env, certificates=sources.certificates, proxy=sources.proxy, patience=patience
    ) as transport:
        for place, look in looks:
            try:
                for url in look(artifact, place, transport):
                    yield url, transport
            except (Refused, OSError) as exc:
                failures.append((place, str(exc)))


class _Unranged(Dropped):
    """The server cannot continue a file; it must be asked for all of it."""


class _Partial:
    """The bytes that came so far: a private file, its digest, and where they came from."""

    def __init__(self, artifact: Artifact, folder: Path, progress: Progress | None) -> None:
        self.path = folder / "archive"
        self.size = artifact.size
        self.is_mixed = False
        self._artifact = artifact
        self._origin_path = folder / "origin.json"
        self._progress = progress
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(self.path, flags, 0o600), "r+b", buffering=0)
        # Nothing vouches for what an earlier process left: it is hashed again.
        self._digest = hashlib.file_digest(self._file, "sha256")
        self.nbytes = self._file.seek(0, os.SEEK_END)
        if self.nbytes > self.size:
            self.restart()
        elif self._progress:
            self._progress.start(self.size, self.nbytes)

    def close(self) -> None:
        self._file.close()
        if self._progress:
            self._progress.finish()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    @property
    def is_complete(self) -> bool:
        return self.nbytes == self.size

    @property
    def is_pinned(self) -> bool:
        return self.is_complete and self.sha256 == self._artifact.sha256

    def append(self, chunk: bytes) -> None:
        self.nbytes += len(chunk)
        self._digest.update(chunk)
        view = memoryview(chunk)
        while view:
            view = view[self._file.write(view) :]
        if self._progress:
            self._progress.advance(len(chunk))

    def restart(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._digest = hashlib.sha256()
        self.nbytes = 0
        self.is_mixed = False
        self._origin_path.unlink(missing_ok=True)
        if self._progress:
            self._progress.start(self.size, 0)

    def remember(self, url: str, response: httpx.Response) -> None:
        """Keeps what If-Range needs; a weak validator promises nothing about bytes."""
        validator = response.headers.get("etag", "")
        if not validator or validator.startswith("W/"):
            validator = response.headers.get("last-modified", "")
        origin = {"url": redacted(url), "validator": validator}
        self._origin_path.write_text(json.dumps(origin), "utf-8")

    def range_headers(self, url: str) -> dict[str, str]:
        """Asks for the rest, if it is still a part of the same file."""
        if not self.nbytes:
            return {}
        headers = {"Range": f"bytes={self.nbytes}-"}
        with suppress(OSError, ValueError, TypeError, KeyError):
            origin = json.loads(self._origin_path.read_text("utf-8"))
            if origin["url"] == redacted(url) and origin["validator"]:
                headers["If-Range"] = str(origin["validator"])
        return headers


def _fill(partial: _Partial, url: str, transport: Transport) -> None:
    """Brings the partial to its full size, over as many connections as patience allows.

    Raises:
        Refused: this address does not give the file.
    """
    if urlsplit(url).scheme == "file":
        _copy(partial, Path(unquote(urlsplit(url).path)))
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
                raise Refused(
                    f"{drop}, {failures} times in a row, "
                    f"at {partial.nbytes:,} of {partial.size:,} bytes"
                ) from drop
            patience.wait(failures, drop.wait_seconds)


def _receive(partial: _Partial, url: str, transport: Transport) -> None:
    """One connection's worth of the file."""
    patience = transport.patience
    with transport.stream(url, partial.range_headers(url)) as response:
        _accept(partial, url, response)
        since, came = patience.clock(), 0
        for chunk in response.iter_raw():
            if partial.nbytes + len(chunk) > partial.size:
                partial.restart()
                raise Refused(f"it sends more than the pinned {partial.size:,} bytes")
            partial.append(chunk)
            came += len(chunk)
            if patience.clock() - since >= patience.floor_seconds:
                if came < patience.floor_nbytes:
                    raise Dropped(
                        f"fewer than {patience.floor_nbytes:,} bytes came in "
                        f"{patience.floor_seconds:.0f} s"
                    )
                since, came = patience.clock(), 0
    if not partial.is_complete:
        raise Dropped("the server closed the connection early")


def _accept(partial: _Partial, url: str, response: httpx.Response) -> None:
    """Decides whether an answer's body continues the partial, or starts it over."""
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
    if declared and declared != str(partial.size):
        kind = headers.get("content-type", "no type").partition(";")[0]
        page = " (a page, perhaps of a proxy or a login)" if kind == "text/html" else ""
        raise Refused(
            f"it offers {declared} bytes of {kind}{page}, the pin says {partial.size:,} bytes"
        )
    if partial.nbytes:
        partial.restart()
    partial.remember(url, response)


def _copy(partial: _Partial, path: Path) -> None:
    """A file of this machine, held to the same pin."""
    partial.restart()
    try:
        source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as exc:
        raise Refused(f"cannot be read: {exc.strerror}") from exc
    with os.fdopen(source, "rb", buffering=0) as file:
        size = os.fstat(source).st_size
        if size != partial.size:
            raise Refused(f"it has {size:,} bytes, the pin says {partial.size:,} bytes")
        while chunk := file.read(min(_CHUNK, partial.size - partial.nbytes)):
            partial.append(chunk)
    if not partial.is_complete:
        raise Refused("it became shorter while it was read")


def _mismatch(artifact: Artifact, url: str, partial: _Partial) -> DigestMismatchError:
    return DigestMismatchError(
        f"{artifact.package} {artifact.version} from {redacted(url)} is not the pinned file: "
        f"{partial.nbytes:,} bytes came with sha256 {partial.sha256}, "
        f"the pin of {artifact.file_name} says {artifact.size:,} bytes with sha256 "
        f"{artifact.sha256}; nothing was kept",
        expected=f"sha256:{artifact.sha256}",
        actual=f"sha256:{partial.sha256}",
        hint="a mirror or proxy may have altered the file: set PJRT_HUB_MIRRORS to a place that "
        "holds the original",
    )


def _no_source(artifact: Artifact, failures: list[tuple[str, str]]) -> DownloadError:
    tried = "".join(f"\n  {redacted(place)}: {reason}" for place, reason in failures)
    return DownloadError(
        f"no source gave {artifact.file_name} ({artifact.package} {artifact.version}, "
        f"{artifact.size:,} bytes){':' if tried else ': none is configured'}{tried}",
        url=redacted(failures[-1][0]) if failures else "",
        hint="check the network and the proxy, set PJRT_HUB_MIRRORS to a place that holds the "
        f"file, or install {artifact.package}=={artifact.version} yourself",
    )
