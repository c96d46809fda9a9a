"""Pinned archives in one file, for machines without a network.

A bundle is a plain tar file of one fixed form: archives, in the order of their names. Only the
reader's registry or lock file says what they are.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, NoReturn

from pjrt_hub.errors import ArchiveError, DigestMismatchError
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.archive import unpacking
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Archive, Artifact
from pjrt_hub.finding.store.transfer.partial import Progress, enter, report_to

_FOLDER = "archives/"
_BLOCK = 512


def write(
    path: Path,
    archives: Iterable[Archive],
    fetch: Callable[[Archive, Path], AbstractContextManager[Path]],
) -> None:
    """Write a bundle; the same archives give the same bytes.

    The file appears once it is complete. `fetch` puts a verified archive into the folder that it is
    given, for a `with` block. Two archives of one name raise ArchiveError.
    """
    import tempfile

    by_name: dict[str, Archive] = {}
    for each in archives:
        if by_name.setdefault(each.file_name, each).sha256 != each.sha256:
            _refuse(path, f"two archives have the name {each.file_name}")
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as scratch:
        partial = Path(scratch, "bundle")
        with partial.open("xb") as out:
            for name, row in sorted(by_name.items()):
                out.write(_header(path, _FOLDER + name, row.size))
                folder = Path(scratch, row.sha256)
                folder.mkdir()
                with fetch(row, folder) as archive_path:
                    with archive_path.open("rb") as archive:
                        _copy(archive, row, path, out.write)
                    archive_path.unlink()
                out.write(_pad(row.size))
            out.write(bytes(2 * _BLOCK))
            out.flush()
            os.fsync(out.fileno())
        partial.replace(path)


def read(
    path: Path,
    known: Sequence[Artifact],
    cache: Cache,
    listen: Callable[[str], Progress | None] = lambda label: None,
) -> tuple[Archive, ...]:
    """Verify a whole bundle, then publish its archives to the cache, and return them.

    Only the `known` rows, of this machine's registry or lock file, are trusted. `listen` makes the
    progress listener for a name. A bundle that is malformed or incomplete, or that holds a file
    that no known row pins, raises ArchiveError. After a DigestMismatchError, nothing was published.
    """
    with path.open("rb") as file:
        slots = list(_slots(path, file, known))
        with report_to(listen(path.name)) as progress:
            enter(progress, "checking")
            for row, offset in slots:
                file.seek(offset)
                _copy(file, row, path, lambda chunk: None)
        for row, offset in slots:
            if cache.lookup(row):
                continue
            with cache.workspace(row) as folder, report_to(listen(row.package)) as progress:
                enter(progress, "unpacking")
                disk.require_space(cache.root, row.size + row.nbytes)
                archive_path = folder / "archive"
                with archive_path.open("wb") as out:
                    file.seek(offset)
                    _copy(file, row, path, out.write)
                cache.publish(row, archive_path)
                enter(progress, "done")
    return tuple(row for row, _ in slots)


def _slots(path: Path, file: BinaryIO, known: Sequence[Artifact]) -> Iterator[tuple[Archive, int]]:
    """Yield known archives, and where they begin in a file, if it has the form of a bundle."""
    by_name: dict[str, list[Archive]] = {}
    for plugin in known:
        for each in plugin.archives:
            by_name.setdefault(each.file_name, []).append(each)
    last, unknown = "", []
    while (block := file.read(_BLOCK)) != bytes(_BLOCK):
        try:
            info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        except (tarfile.HeaderError, ValueError) as exc:
            _refuse(path, f"it is incomplete, or no bundle: {exc}", exc)
        name = info.name.removeprefix(_FOLDER)
        if block != _header(path, _FOLDER + name, info.size) or name <= last:
            _refuse(path, f"it does not hold {name!a} as a bundle does")
        begin, last = file.tell(), name
        rows = {each.sha256: each for each in by_name.get(name, ()) if each.size == info.size}
        if not rows:
            unknown.append(f"{name} ({info.size:,} bytes)")
        else:
            row = next(iter(rows.values()))
            if len(rows) > 1:  # Packages may pin different files of one name and size.
                row = rows.get(_sha256(file, info.size), row)
            yield row, begin
        file.seek(begin + info.size)
        padding = _pad(info.size)
        if file.read(len(padding)) != padding:
            _refuse(path, f"it is incomplete, or has bytes after {name}")
    if file.read(_BLOCK + 1) != bytes(_BLOCK):
        _refuse(path, "it is incomplete, or has bytes after its end")
    if unknown:
        raise ArchiveError(
            f"the bundle {path} is refused: neither the registry nor a lock file of this machine "
            f"knows {', '.join(unknown)}",
            hint="a bundle does not vouch for itself: bring the project's pylock.pjrt.toml along "
            "and name it by PJRT_HUB_LOCK, or install the pjrt-hub release whose registry has "
            "these rows",
        )


def _header(path: Path, name: str, nbytes: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = nbytes
    try:
        return info.tobuf(tarfile.USTAR_FORMAT)
    except ValueError as exc:  # tar cannot express the name or the size.
        _refuse(path, f"{name} does not fit into a tar file: {exc}", exc)


def _pad(nbytes: int) -> bytes:
    return bytes(-nbytes % _BLOCK)


def _copy(source: BinaryIO, row: Archive, path: Path, sink: Callable[[bytes], object]) -> None:
    """Copy an archive, and refuse it if it is not the pinned one."""
    actual = _sha256(source, row.size, sink)
    if actual != row.sha256:
        raise DigestMismatchError(
            f"{row.file_name} in the bundle {path} is not the pinned file: it has sha256 "
            f"{actual}, the pin says {row.sha256}",
            expected=f"sha256:{row.sha256}",
            actual=f"sha256:{actual}",
            hint="copy the bundle again, or export it again",
        )


def _sha256(source: BinaryIO, nbytes: int, sink: Callable[[bytes], object] = len) -> str:
    """Return the digest of the next bytes, which `sink` gets in parts; fewer if they end early."""
    hashing = hashlib.sha256()
    for chunk in unpacking.parts(source, nbytes):
        hashing.update(chunk)
        sink(chunk)
    return hashing.hexdigest()


def _refuse(path: Path, what: str, cause: Exception | None = None) -> NoReturn:
    raise ArchiveError(
        f"the bundle {path} is refused: {what}",
        hint="copy it again, or make it again with `pjrt-hub bundle export`",
    ) from cause
