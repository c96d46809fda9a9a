"""Pinned archives in one file, for machines without a network.

A bundle is a plain tar file of one possible form: its rows, then each row's archive. So it is read
by comparing it with what it must be. Its own rows prove nothing; those of the reader's registry or
lock file do.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from pjrt_hub.errors import ArchiveError, DigestMismatchError, ManifestError
from pjrt_hub.finding.contract.table import parse
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Archive, Artifact, write_rows
from pjrt_hub.finding.store.transfer.partial import Progress, enter, report_to

#: A change that an older pjrt-hub would misread raises this.
FORMAT = 1
_ROWS_NAME = "pjrt-hub-bundle.toml"
_FOLDER = "archives"
_HEAD = f"# Archives of PJRT plugins, for `pjrt-hub bundle import`.\n\nformat = {FORMAT}\n\n"
_OCTAL = re.compile(rb"[0-7]{11}")
_BLOCK = 512
_CHUNK = 1 << 20
_MOST_ROWS_NBYTES = 16 << 20
_END = bytes(2 * _BLOCK)


def write(
    path: Path,
    rows: Iterable[Artifact],
    fetch: Callable[[Archive, Path], AbstractContextManager[Path]],
) -> None:
    """Write a bundle; the same rows give the same bytes.

    Args:
        path: the file, which appears when it is whole.
        rows: what to put in, each with what it requires.
        fetch: brings an archive, verified, into the folder that it is given, for a block.

    Raises:
        ArchiveError: two archives have one name.
        StoreError: an archive cannot be fetched.
        OSError: `path` cannot be written.
    """
    import tempfile

    ordered = _sort(rows)
    archives = _archives(path, ordered)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as scratch:
        partial = Path(scratch, "bundle")
        with partial.open("xb") as out:
            text = (_HEAD + write_rows(ordered)).encode()
            out.write(_header(path, _ROWS_NAME, len(text)) + text + _pad(len(text)))
            for row in archives:
                out.write(_header(path, f"{_FOLDER}/{row.file_name}", row.size))
                folder = Path(scratch, row.sha256)
                folder.mkdir()
                with fetch(row, folder) as archive_path:
                    with archive_path.open("rb") as archive:
                        _copy(archive, row, path, out.write)
                    archive_path.unlink()
                out.write(_pad(row.size))
            out.write(_END)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(path)


def read(
    path: Path,
    known: Sequence[Artifact],
    cache: Cache,
    listen: Callable[[str], Progress | None] = lambda label: None,
) -> tuple[Archive, ...]:
    """Verify a whole bundle, then publish its archives to the cache.

    Args:
        path: the bundle.
        known: the rows of this machine's registry or lock file: only they are believed.
        cache: where entries are kept.
        listen: makes a listener to what is done with what it is given the name of.

    Returns:
        The archives that are in the cache now.

    Raises:
        ArchiveError: it is malformed, incomplete, or holds what no known row pins.
        DigestMismatchError: an archive is not what its row says; nothing was published.
        CacheError: the cache cannot be written.
        OSError: `path` cannot be read.
    """
    with path.open("rb") as file:
        slots = list(_slots(path, file, known))
        with report_to(listen(path.name)) as progress:
            enter(progress, "checking")
            for slot in slots:
                file.seek(slot.offset)
                _copy(file, slot.row, path, lambda chunk: None)
        for slot in slots:
            if cache.lookup(slot.row):
                continue
            with (
                cache.workspace(slot.row) as folder,
                report_to(listen(slot.row.package)) as progress,
            ):
                enter(progress, "unpacking")
                cache.require_space(slot.row.size + slot.row.nbytes)
                archive_path = folder / "archive"
                with archive_path.open("wb") as out:
                    file.seek(slot.offset)
                    _copy(file, slot.row, path, out.write)
                cache.publish(slot.row, archive_path)
                enter(progress, "done")
    return tuple(slot.row for slot in slots)


@dataclass(frozen=True, slots=True)
class _Slot:
    """A known archive, and where it begins in the bundle."""

    row: Archive
    offset: int


def _slots(path: Path, file: BinaryIO, known: Sequence[Artifact]) -> Iterator[_Slot]:
    """Check that the file has the one form that its rows allow, without reading the archives."""
    rows = _archives(path, _rows(path, file))
    by_sha256 = {each.sha256: each for row in known for each in row.archives}
    offset = file.tell()
    unknown = []
    for row in rows:
        file.seek(offset)
        if file.read(_BLOCK) != _header(path, f"{_FOLDER}/{row.file_name}", row.size):
            _refuse(path, f"it does not hold {row.file_name} where its rows say")
        ours = by_sha256.get(row.sha256)
        if ours is None or (ours.size, ours.file_name) != (row.size, row.file_name):
            unknown.append(f"{row.package} {row.version} (sha256 {row.sha256})")
        else:
            yield _Slot(ours, offset + _BLOCK)
        file.seek(offset := offset + _BLOCK + row.size)
        padding = _pad(row.size)
        if file.read(len(padding)) != padding:
            _refuse(path, f"it is incomplete, or has bytes after {row.file_name}")
        offset += len(padding)
    if file.read(len(_END) + 1) != _END:
        _refuse(path, "it is incomplete, or has bytes after its end")
    if unknown:
        raise ArchiveError(
            f"the bundle {path} is refused: neither the registry nor a lock file of this machine "
            f"knows {', '.join(unknown)}",
            hint="a bundle does not vouch for itself: bring the project's pylock.pjrt.toml along "
            "and name it by PJRT_HUB_LOCK, or install the pjrt-hub release whose registry has "
            "these rows",
        )


def _rows(path: Path, file: BinaryIO) -> tuple[Artifact, ...]:
    header = file.read(_BLOCK)
    digits = header[124:135]
    nbytes = int(digits, 8) if _OCTAL.fullmatch(digits) else 0
    if header != _header(path, _ROWS_NAME, nbytes) or nbytes > _MOST_ROWS_NBYTES:
        _refuse(path, "it does not begin as a bundle does")
    raw = file.read(nbytes)
    if len(raw) != nbytes or file.read(len(_pad(nbytes))) != _pad(nbytes):
        _refuse(path, "it is incomplete")
    try:
        data = parse(raw)
        form = data.pop("format", None)
        if type(form) is int and form > FORMAT:
            raise ArchiveError(
                f"the bundle {path} has format {form}, this pjrt-hub reads format {FORMAT}",
                hint="install a newer pjrt-hub",
            )
        tables = data.pop("artifact", [])
        rows = [Artifact.from_row(row, f"artifact {i}") for i, row in enumerate(tables, 1)]
    except ManifestError as exc:
        _refuse(path, exc.message, exc)
    except (ValueError, TypeError, AttributeError) as exc:
        _refuse(path, f"its rows are malformed: {str(exc)[:200]}", exc)
    ordered = _sort(rows)
    if raw != (_HEAD + write_rows(ordered)).encode():
        _refuse(path, "its rows are not written as they must be")
    return ordered


def _sort(rows: Iterable[Artifact]) -> tuple[Artifact, ...]:
    return tuple(sorted(rows, key=lambda row: row.file_name))


def _archives(path: Path, rows: Iterable[Artifact]) -> tuple[Archive, ...]:
    """Return every archive of some rows once, in the order in which a bundle has them."""
    by_name: dict[str, Archive] = {}
    for each in (archive for row in rows for archive in row.archives):
        if by_name.setdefault(each.file_name, each).sha256 != each.sha256:
            _refuse(path, f"two archives have the name {each.file_name}")
    return tuple(row for _, row in sorted(by_name.items()))


def _header(path: Path, name: str, nbytes: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = nbytes
    try:
        return info.tobuf(tarfile.USTAR_FORMAT)
    except ValueError as exc:  # a name or a size that tar cannot express
        _refuse(path, f"{name} does not fit into a tar file: {exc}", exc)


def _pad(nbytes: int) -> bytes:
    return bytes(-nbytes % _BLOCK)


def _copy(source: BinaryIO, row: Archive, path: Path, sink: Callable[[bytes], object]) -> None:
    """Copy an archive, and refuse it if it is not the pinned one."""
    hashing, left = hashlib.sha256(), row.size
    while left and (chunk := source.read(min(_CHUNK, left))):
        left -= len(chunk)
        hashing.update(chunk)
        sink(chunk)
    if left or hashing.hexdigest() != row.sha256:
        raise DigestMismatchError(
            f"{row.file_name} in the bundle {path} is not the pinned file: it has sha256 "
            f"{hashing.hexdigest()}, the pin says {row.sha256}",
            expected=f"sha256:{row.sha256}",
            actual=f"sha256:{hashing.hexdigest()}",
            hint="copy the bundle again, or export it again",
        )


def _refuse(path: Path, what: str, cause: Exception | None = None) -> NoReturn:
    raise ArchiveError(
        f"the bundle {path} is refused: {what}",
        hint="copy it again, or make it again with `pjrt-hub bundle export`",
    ) from cause
