"""The disk below the cache (layer 2): what is safely on it, and its errors in our words.

Must not know the layout.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pjrt_hub.errors import CacheError, PjrtHubError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def writing(what: str, path: Path, needed: int = 0) -> Iterator[None]:
    """Turns what the operating system says inside the block into a CacheError.

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
    """The error for a call that failed below the cache root."""
    if exc.errno in _FULL:
        with suppress(OSError):
            return _full(f"{what} {path}: no space left", path, needed)
    return CacheError(
        f"{what} {path}: {exc.strerror or exc}",
        hint="set PJRT_HUB_CACHE to a directory that you can write to",
    )


def require_space(path: Path, needed: int) -> None:
    """Refuses early what cannot fit.

    Raises:
        CacheError: fewer than `needed` bytes are free where `path` is, or will be.
    """
    if _free(path) < needed:
        raise _full(f"no space in the cache {path}", path, needed)


def _full(text: str, path: Path, needed: int) -> CacheError:
    return CacheError(
        f"{text}: {needed:,} bytes needed, {_free(path):,} free",
        hint="free some space, run `pjrt-hub cache clear`, or set PJRT_HUB_CACHE to a "
        "directory on a larger disk",
    )


def _free(path: Path) -> int:
    return shutil.disk_usage(next(each for each in (path, *path.parents) if each.exists())).free


def make(root: Path, path: Path) -> Path:
    """Makes a directory below the cache root: for its owner alone, with nothing others can write.

    Step by step, because the mode of `mkdir(parents=True)` counts for the last one only.
    """
    if not root.is_dir():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for part in reversed([path, *path.parents]):
        if part != root and part.is_relative_to(root):
            part.mkdir(mode=0o755, exist_ok=True)
    return path


def write_synced(path: Path, text: str) -> None:
    """Writes a new, read-only file, and returns when it is on disk (fsync)."""
    with open(path, "x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fchmod(file.fileno(), 0o444)
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Returns when the names in a directory are on disk (fsync)."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def tree_nbytes(root: Path) -> int:
    """What the files below a directory hold together, in bytes."""
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total
