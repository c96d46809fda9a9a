"""Safe writes to the disk below the cache, and their errors.

Must not know the layout.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pjrt_hub.errors import CacheError, PjrtHubError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def writing(what: str, path: Path, needed: int = 0) -> Iterator[None]:
    """Turn operating system errors inside the block into a CacheError.

    Args:
        what: was tried, as "cannot publish".
        path: it was tried on.
        needed: how many bytes that takes.
    """
    try:
        yield
    except PjrtHubError:  # ours, some of which are OSErrors too
        raise
    except OSError as exc:
        raise failure(what, path, exc, needed) from exc


def failure(what: str, path: Path, exc: OSError, needed: int = 0) -> CacheError:
    """Make the error for a call that failed below the cache root."""
    if exc.errno in _FULL:
        with suppress(OSError):
            return _full(f"{what} {path}: no space left", path, needed)
    return CacheError(
        f"{what} {path}: {exc.strerror or exc}",
        hint="set PJRT_HUB_CACHE to a directory that you can write to",
    )


def require_space(path: Path, needed: int) -> None:
    """Raise an error early if there is not enough space.

    Raises:
        CacheError: fewer than `needed` bytes are free where `path` is, or will be, or no file
            can be made there.
    """
    free, files = _free(path)
    if free < needed or not files:
        raise _full(f"no space in the cache {path}", path, needed)


def is_noexec(path: Path) -> bool:
    """Check whether nothing on the file system of `path` may be executed, libraries included."""
    flag = getattr(os, "ST_NOEXEC", 0)
    try:
        return bool(flag and os.statvfs(path).f_flag & flag)
    except OSError:
        return False


def _full(text: str, path: Path, needed: int) -> CacheError:
    free, files = _free(path)
    used_up = "" if files else "; no more files can be made there (its inodes are used up)"
    if files and free > needed:
        used_up = "; a quota or a limit of file sizes may hold"
    return CacheError(
        f"{text}: {needed:,} bytes needed, {free:,} free{used_up}",
        hint="free some space, run `pjrt-hub cache prune` or `pjrt-hub cache clear`, or set "
        "PJRT_HUB_CACHE to a directory on a larger disk",
    )


def _free(path: Path) -> tuple[int, int]:
    """Return the free space, in bytes and in files."""
    where = next(each for each in (path, *path.parents) if each.exists())
    if not hasattr(os, "statvfs"):
        import shutil

        return shutil.disk_usage(where).free, 1
    found = os.statvfs(where)
    # Some file systems, such as btrfs, count no inodes.
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else 1


def make(root: Path, path: Path, mode: int = 0o755) -> Path:
    """Make a directory below the cache root that only its owner can write.

    Step by step, because the mode of `mkdir(parents=True)` counts for the last one only.

    Args:
        root: of the cache.
        path: of the directory.
        mode: of what has to be made below the root.
    """
    if not root.is_dir():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for part in reversed([path, *path.parents]):
        if part != root and part.is_relative_to(root):
            part.mkdir(mode=mode, exist_ok=True)
    return path


def write_synced(path: Path, text: str) -> None:
    """Write a new, read-only file, and return when it is on disk (fsync)."""
    with open(path, "x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fchmod(file.fileno(), 0o444)
        os.fsync(file.fileno())


def replace(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file in one step: readers find the old one or the new one, whole.

    Raises:
        OSError: it cannot be written; the old one is as it was.
    """
    partial = path.with_name(f".{path.name}.{os.urandom(8).hex()}")  # of this call alone
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Sync the names in a directory to disk (fsync)."""
    if os.name == "nt":
        return  # it opens no directories, and NTFS logs renames
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def tree_nbytes(root: Path) -> int:
    """Return the size of the files below a directory, in bytes."""
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total
