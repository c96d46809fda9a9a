"""The rules for every archive, inflating, and the writing of pinned members to the disk.

Owns the rules of names, counts and ratios, and the writing of one verified file.
Trusts no size, name, mode or time of an archive.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, TypeAlias

from pjrt_hub.errors import ArchiveError
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.catalog import Member

zlib: ModuleType
try:
    from isal import isal_zlib as zlib  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    import zlib

#: The files of an archive: path, size in bytes, and content, which is valid until the next file.
Files: TypeAlias = Iterator[tuple[str, int, Iterator[bytes]]]

_CHUNK = 1 << 20
MOST_MEMBERS = 10_000
#: zlib's window bits for a bare deflate stream, as in a zip, and for a gzip member.
RAW, GZIP = -15, 31
_MOST_NAME_BYTES, _MOST_PARTS = 1024, 64
#: A library shrinks to a fifth at most. A size below the floor is never suspicious.
_MOST_RATIO, _RATIO_FLOOR = 20, 16 << 20
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.I)
_PLAIN = re.compile(r"[^\x00-\x1f\x7f\\:]*")


def refusal(archive: str, name: str, what: str) -> ArchiveError:
    """Make the error that names the archive and its member."""
    return ArchiveError(f"{archive}: the member {name!r} {what}")


def require_names(archive: str, names: Sequence[str]) -> None:
    """Check that no member could be taken for another path than its own, or for another member.

    A folder's name ends with a slash. ArchiveError also means that a member lies below a file, or
    that there are too many members.
    """
    if len(names) > MOST_MEMBERS:
        raise ArchiveError(f"{archive} has more than {MOST_MEMBERS} members")
    seen: dict[str, str] = {}
    for name in names:
        if what := _oddity(name):
            raise refusal(archive, name, what)
        twin = seen.setdefault(_collision_key(name.rstrip("/")), name)
        if twin is not name:
            raise refusal(archive, name, f"appears twice (also as {twin!r})")
    for folded, name in seen.items():
        while folded := folded.rpartition("/")[0]:
            if (above := seen.get(folded, "/"))[-1] != "/":
                raise refusal(archive, name, f"lies below the file {above!r}")


def _collision_key(name: str) -> str:
    """Return a key that is equal for names that some file system takes for the same name."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _oddity(name: str) -> str:
    if len(name.encode("utf-8", "surrogatepass")) > _MOST_NAME_BYTES:
        return f"has a name of more than {_MOST_NAME_BYTES} bytes"
    parts = name.removesuffix("/").split("/")
    if not _PLAIN.fullmatch(name):
        return "has a name that readers understand differently"
    if name.startswith("/") or ".." in parts:
        return "points outside of the archive"
    if "" in parts or "." in parts:
        return "has no plain name"
    if len(parts) > _MOST_PARTS:
        return f"lies deeper than {_MOST_PARTS} folders"
    if any(part[-1] in ". " for part in parts):
        return "has a name that readers understand differently"
    if any(_DEVICE.fullmatch(part) for part in parts):
        return "has the name of a device"
    return ""


def is_bomb(nbytes: int, packed: int) -> bool:
    """Check whether `packed` bytes are too few for honest compression of `nbytes`."""
    return nbytes > max(_RATIO_FLOOR, _MOST_RATIO * packed)


def parts(file: BinaryIO, nbytes: int) -> Iterator[bytes]:
    """Yield the next bytes of a file, in parts; fewer if it ends early."""
    while nbytes and (part := file.read(min(nbytes, _CHUNK))):
        nbytes -= len(part)
        yield part


def write(archive: str, member: Member, content: Iterable[bytes], destination: Path) -> None:
    """Write one pinned member; return when it is verified and on disk (fsync).

    The file gets mode 0444, a program 0555, and its folders 0755, whatever the archive and the
    umask say. Nobody else writes to `destination`. Other bytes than the pinned ones raise
    ArchiveError.
    """
    from concurrent.futures import Future, ThreadPoolExecutor

    target = destination / member.path
    for folder in reversed(target.relative_to(destination).parents[:-1]):
        (destination / folder).mkdir(exist_ok=True)
        (destination / folder).chmod(0o755)
    hashing = hashlib.sha256()
    # Hashing and writing release the GIL, so they run while the next chunk is inflated.
    with open(target, "xb", buffering=0) as out, ThreadPoolExecutor(1, "pjrt-hub write") as beside:

        def take(chunk: bytes) -> None:
            hashing.update(chunk)
            view = memoryview(chunk)
            while view:
                view = view[out.write(view) :]

        taken: Future[None] | None = None
        for chunk in content:
            if taken is not None:
                taken.result()
            taken = beside.submit(take, chunk)
        if taken is not None:
            taken.result()
        if hashing.hexdigest() != member.sha256:
            found = f"has sha256 {hashing.hexdigest()}, the pin says {member.sha256}"
            raise refusal(archive, member.path, found)
        disk.seal(out.fileno(), executable=member.executable)


def inflate(packed: Iterable[bytes], wrapper: int, what: str) -> Iterator[bytes]:
    """Inflate one stream that `packed` holds exactly, in chunks of at most 1 MiB.

    `wrapper` is `RAW` or `GZIP`. A stream that is damaged, ends early, or is followed by other
    bytes raises ArchiveError.
    """
    stream = zlib.decompressobj(wrapper)
    try:
        for part in packed:
            while part and not stream.eof:
                if chunk := stream.decompress(part, _CHUNK):
                    yield chunk
                part = stream.unconsumed_tail
            if part or stream.unused_data:
                raise ArchiveError(f"{what} is followed by other bytes")
        # Because of the limit, the last call may have kept some output inside the stream.
        while not stream.eof and (chunk := stream.decompress(b"", _CHUNK)):
            yield chunk
    except zlib.error as exc:
        raise ArchiveError(f"{what} cannot be inflated: {exc}") from exc
    if not stream.eof:
        raise ArchiveError(f"{what} ends early")
