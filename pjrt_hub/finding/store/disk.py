"""Files and folders below the cache: safe writes, their errors, and who else could write there.

Each folder is opened in the one above it and checked before it is used, so nobody can exchange one
on the way. Must not know the layout.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache as once
from pathlib import Path

from pjrt_hub.base import digest, log
from pjrt_hub.errors import CacheError, PjrtHubError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
#: This flag refuses to open a link, which others may have put there; Windows has no such flag.
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
# Windows has neither modes nor `dir_fd`; there, ACLs protect the user's folder.
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@contextmanager
def cache_errors(what: str, path: Path, needed: int = 0) -> Iterator[None]:
    """Turn operating system errors inside the block into a CacheError.

    It says what failed, such as "cannot publish", and on a full disk how many bytes were needed.
    """
    try:
        yield
    except PjrtHubError:  # Some errors of this package are OSErrors, too.
        raise
    except OSError as exc:
        error = CacheError(
            f"{what} {path}: {exc.strerror or exc}",
            hint="set PJRT_HUB_CACHE to a directory that you can write to",
        )
        if exc.errno in _FULL:
            with suppress(OSError):
                error = _full(f"{what} {path}: no space left", path, needed)
        raise error from exc


def require_space(path: Path, needed: int) -> None:
    """Raise CacheError early if `needed` bytes are not free at a path, or no file can be made."""
    free, files = _free(path)
    if free < needed or not files:
        raise _full(f"no space in the cache {path}", path, needed)


def is_folder(path: Path) -> bool:
    """Check whether a folder exists; raise OSError if this process may not look.

    The pathlib of Python 3.13 reports a folder that it may not look at as absent.
    """
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def is_noexec(path: Path) -> bool:
    """Check whether nothing on the file system of `path` may be executed, libraries included."""
    if sys.platform != "linux":
        return False
    try:
        return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
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
    if sys.platform == "win32":
        import shutil

        return shutil.disk_usage(where).free, 1
    found = os.statvfs(where)
    # Some file systems, such as btrfs, count no inodes.
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else 1


def make(root: Path, path: Path, mode: int = 0o755) -> Path:
    """Make a directory below the cache root that only its owner can write.

    Folders are made one by one, because `mkdir(parents=True)` gives the mode to the last one only.
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
        seal(file.fileno())


def seal(file: int, *, executable: bool = False) -> None:
    """Make a written file read-only, and return when it is on disk (fsync)."""
    if sys.platform != "win32":  # Windows cannot remove read-only files.
        os.fchmod(file, 0o555 if executable else 0o444)
    os.fsync(file)


def replace(
    path: Path, *parts: bytes, folder: int | None = None, mode: int = 0o666, sync: bool = True
) -> None:
    """Write a file in one step: readers find the old one or the new one, whole.

    `folder` is the descriptor of its folder if that is open. Unless `sync`, a power cut may lose
    the content.
    """
    partial = path.with_name(f".{path.name}.{os.urandom(8).hex()}")  # No other call uses this name.
    here, there = (each if folder is None else each.name for each in (partial, path))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW
    try:
        with open(os.open(here, flags, mode, dir_fd=folder), "wb") as file:
            file.writelines(parts)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(here, there, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(here, dir_fd=folder)
        raise


def sync_directory(path: Path) -> None:
    """Sync the names in a directory to disk (fsync)."""
    if sys.platform == "win32":
        return  # Windows opens no directories, and NTFS logs renames.
    directory = os.open(path, _FOLDER)
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


@contextmanager
def open_folder(root: Path, folder: Path) -> Iterator[int | None]:
    """Open a folder at or below a cache root during a `with` block.

    This gives a descriptor for `dir_fd`, or None if the system has none. If `root` is a link, it
    must belong to this user or to root; below it, no link is followed. CacheError means that
    somebody else owns a folder on the way, or can write to it; OSError, that there is no such
    folder, or that it cannot be read.
    """
    if sys.platform == "win32":
        yield None
        return
    _require_own_link(root)
    file = os.open(root, _FOLDER)
    try:
        _require(root, os.fstat(file))
        here = root
        for name in folder.relative_to(root).parts:
            here = here / name
            try:
                below = os.open(name, _FOLDER | NOFOLLOW, dir_fd=file)
            except NotADirectoryError as exc:  # Linux reports a link with this error.
                if not here.is_symlink():
                    raise
                raise CacheError(
                    f"the cache is not safe to use: {here} is a symbolic link, and none is "
                    "followed there",
                    hint=f"run `rm {here}`, or set PJRT_HUB_CACHE to the directory that holds the "
                    "whole cache",
                ) from exc
            os.close(file)
            file = below
            _require(here, os.fstat(file))
        yield file
    finally:
        with suppress(OSError):  # Nothing was written that could be lost.
            os.close(file)


def require_safe(root: Path, folder: Path) -> None:
    """Raise an error, as `open_folder` does, for a folder that somebody else could have filled."""
    with open_folder(root, folder):
        pass


def read(root: Path, path: Path, most_nbytes: int = digest.MOST_NBYTES) -> bytes:
    """Read a file below a cache root that nobody else could have written.

    If somebody else could have, it raises CacheError; if it is too large, OSError (EFBIG).
    """
    with open_folder(root, path.parent) as folder:
        place = path if folder is None else path.name
        file = os.open(place, os.O_RDONLY | NOFOLLOW, dir_fd=folder)
        with open(file, "rb") as content:
            _require(path, os.fstat(file))
            return digest.content_of(content, most_nbytes)


def oddity(found: os.stat_result) -> str:
    """Return who else could have written a file or folder, or an empty string."""
    if sys.platform == "win32":
        return ""
    if found.st_uid not in (0, os.geteuid()):
        return f"belongs to user {found.st_uid}, this process is user {os.geteuid()}"
    if found.st_mode & _OTHERS_WRITE:
        return f"can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def find(folder: Path, name: str) -> Path | None:
    """Find a trustworthy file of a name in a folder, or return None.

    In a folder that everybody can write to, another user's file is passed over, with a warning.
    """
    path = folder / name
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        what, is_shared = suspicion(path), folder.stat().st_mode & stat.S_IWOTH
    except OSError:  # The file is absent, or the user may not look into the folder.
        return None
    if what and is_shared:
        _pass_over(path, what)
        return None
    return path


def suspicion(path: Path) -> str:
    """Return who else may have written a file that was found, or an empty string.

    Members of the file's group may write it, because a team may share a working copy like this.
    """
    if sys.platform == "win32":
        return ""
    for found, what in ((path.lstat(), "is a link that " * path.is_symlink()), (path.stat(), "")):
        if found.st_uid not in (0, os.geteuid()):
            return f"{what}belongs to user {found.st_uid}"
    return "can be written by everybody" if found.st_mode & stat.S_IWOTH else ""


@once
def _pass_over(path: Path, what: str) -> None:
    text = "passed over %s: it %s, and lies where every user can put files"
    log.warn("pjrt_hub.store", text, path, what)


def _require(path: Path, found: os.stat_result) -> None:
    if sys.platform != "win32" and (what := oddity(found)):
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
    ours = sys.platform == "win32" or found.st_uid in (0, os.geteuid())
    if stat.S_ISLNK(found.st_mode) and not ours:
        raise CacheError(
            f"the cache is not safe to use: {root} is a link that belongs to user {found.st_uid}",
            hint="set PJRT_HUB_CACHE to a directory of your own",
        )
