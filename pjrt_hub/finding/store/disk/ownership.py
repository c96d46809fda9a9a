"""Checks of the owner, mode and links of directories below a cache root and of found files.

Owns the way down: each folder is opened in the one above it and looked at before it is used, so
nobody can exchange one on the way. Must not change anything.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache as once
from pathlib import Path

from pjrt_hub.base import digest
from pjrt_hub.errors import CacheError

_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_READ = os.O_RDONLY | _NOFOLLOW | getattr(os, "O_CLOEXEC", 0)
#: Windows has neither these modes nor `dir_fd`; there the user's folder is the user's by its ACL.
_HAS_MODES = hasattr(os, "geteuid") and os.open in os.supports_dir_fd
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@contextmanager
def opened(root: Path, folder: Path) -> Iterator[int | None]:
    """Open a folder at or below a cache root during a `with` block.

    Args:
        root: of the cache; a link to it must be ours or root's, and no link is followed below it.
        folder: it exists.

    Yields:
        A descriptor for `dir_fd`, or None where the system has none.

    Raises:
        CacheError: somebody else owns a folder on the way, or can write to it.
        OSError: there is no such folder, or it cannot be read.
    """
    if not _HAS_MODES:
        yield None
        return
    _require_own_link(root)
    file = os.open(root, os.O_RDONLY | _FOLDER)
    try:
        _require(root, os.fstat(file))
        here = root
        for name in folder.relative_to(root).parts:
            here = here / name
            try:
                below = os.open(name, os.O_RDONLY | _FOLDER | _NOFOLLOW, dir_fd=file)
            except NotADirectoryError as exc:  # what Linux says of a link
                if here.is_symlink():
                    raise _linked(here) from exc
                raise
            os.close(file)
            file = below
            _require(here, os.fstat(file))
        yield file
    finally:
        with suppress(OSError):  # it was only read
            os.close(file)


def require(root: Path, folder: Path) -> None:
    """Raise an error for a folder that somebody else could have filled.

    Raises:
        CacheError: as for `opened`.
        OSError: there is no such folder.
    """
    with opened(root, folder):
        pass


def read(root: Path, path: Path, most_nbytes: int = digest.MOST_NBYTES) -> bytes:
    """Read a file below a cache root that nobody else could have written.

    Raises:
        CacheError: somebody else could.
        OSError: there is no such file, it cannot be read, or is larger (EFBIG).
    """
    with opened(root, path.parent) as folder:
        file = os.open(path if folder is None else path.name, _READ, dir_fd=folder)
        with open(file, "rb") as content:
            _require(path, os.fstat(file))
            return digest.content_of(content, most_nbytes)


def oddity(found: os.stat_result) -> str:
    """Return who else could have written a file or folder, or an empty string."""
    if not _HAS_MODES:
        return ""
    if found.st_uid not in (0, os.geteuid()):
        return f"belongs to user {found.st_uid}, this process is user {os.geteuid()}"
    if found.st_mode & _OTHERS_WRITE:
        return f"can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def found(folder: Path, name: str) -> Path | None:
    """Find a trustworthy file of a name in a folder, or return None.

    In a folder that everybody can write to, another user's is passed over, with a warning.
    """
    path = folder / name
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        what, is_shared = suspicion(path), folder.stat().st_mode & stat.S_IWOTH
    except OSError:  # absent, or in a folder that this user may not look into
        return None
    if what and is_shared:
        _pass_over(path, what)
        return None
    return path


def suspicion(path: Path) -> str:
    """Return who else may have written a file that was found, or an empty string.

    A team may share it by its group, as a working copy is shared.

    Raises:
        OSError: there is no such file.
    """
    if not _HAS_MODES:
        return ""
    for found, what in ((path.lstat(), "is a link that " * path.is_symlink()), (path.stat(), "")):
        if found.st_uid not in (0, os.geteuid()):
            return f"{what}belongs to user {found.st_uid}"
    return "can be written by everybody" if found.st_mode & stat.S_IWOTH else ""


@once
def _pass_over(path: Path, what: str) -> None:
    import logging

    text = "passed over %s: it %s, and lies where every user can put files"
    logging.getLogger("pjrt_hub.store").warning(text, path, what)


def _require(path: Path, found: os.stat_result) -> None:
    if what := oddity(found):
        mode = stat.S_IMODE(found.st_mode)
        mend = (
            f"run `chmod go-w {path}`"
            if found.st_uid in (0, os.geteuid())
            else f"run `chown -R {os.geteuid()} {path}` as root"
        )
        raise CacheError(
            f"the cache is not safe to use: {path} {what}; its owner is {found.st_uid}, "
            f"its mode {mode:04o}",
            hint=f"{mend} if you trust what is in it, or set PJRT_HUB_CACHE to a directory of "
            "your own",
        )


def _require_own_link(root: Path) -> None:
    found = os.lstat(root)
    if stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid()):
        raise CacheError(
            f"the cache is not safe to use: {root} is a link that belongs to user {found.st_uid}",
            hint="set PJRT_HUB_CACHE to a directory of your own",
        )


def _linked(path: Path) -> CacheError:
    return CacheError(
        f"the cache is not safe to use: {path} is a symbolic link, and none is followed there",
        hint=f"run `rm {path}`, or set PJRT_HUB_CACHE to the directory that holds the whole cache",
    )
