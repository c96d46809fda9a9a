"""The layout of a cache on disk.

Owns the paths, and the private directories of one process. Must not read members.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pjrt_hub.base import digest
from pjrt_hub.errors import ManifestError
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.catalog import Archive, Artifact, Requirement

if TYPE_CHECKING:
    from pjrt_hub.finding.store import lock

#: The version of the layout: a new layout gets a new version and leaves older trees alone.
LAYOUT = "v1"
#: The file that holds an entry's row, beside its members.
ROW_NAME = "pjrt_hub_entry.json"
#: The name of an entry is the sha256 of its archive, in hexadecimal digits.
_NAME_LENGTH = 64
#: A recorded last use is not updated for this long, so that most look-ups write nothing.
_USE_SECONDS = 24 * 3600
#: How long a lease waits for a process that removes the entry, which takes one rename.
_LEASE_PATIENCE_SECONDS = 10.0
#: A directory without a write for this long counts as abandoned if its process cannot be checked,
#: which is so for a process of another machine and on Windows.
_ABANDONED_SECONDS = 24 * 3600
#: Stands for the owner of a directory that any process may take over.
NOBODY = "left"


class CacheEntry(NamedTuple):
    """A published artifact."""

    artifact: Archive  # The row that it was published from.
    root: Path  # The folder with the members in the archive's own layout.
    verified: tuple[str, ...] = ()  # The members' identities when verified; empty if they were not.

    @property
    def library_path(self) -> Path:
        """The absolute path of the library to load; for a requirement, the entry's root."""
        return self.root / self.artifact.library

    def is_as_verified(self) -> bool:
        """Check whether every member is still the file that was verified, without reading any."""
        return bool(self.verified) and self.verified == self.identities()

    def identities(self) -> tuple[str, ...]:
        """Return the members' present identities; empty if one is missing."""
        try:
            return tuple(digest.identity(self.root / each.path) for each in self.artifact.members)
        except OSError:
            return ()


class CacheLayout:
    """The paths below a cache root, which is absolute."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = root / LAYOUT

    def entry_root(self, artifact: Archive) -> Path:
        """Return where the artifact's members lie once published."""
        return self.tree / artifact.sha256[:2] / artifact.sha256

    def roots(self) -> list[Path]:
        """Return every entry's directory, in the order of their digests; skip other names."""
        with disk.cache_errors("cannot look into", self.tree):
            if not disk.is_folder(self.tree):
                return []
            found = (path for path in self.tree.glob("[0-9a-f][0-9a-f]/*") if path.is_dir())
            return sorted(path for path in found if len(path.name) == _NAME_LENGTH)

    def area(self, name: str) -> Path:
        """Make a folder of the tree that only this user can write, if it does not exist.

        A folder that somebody else could write raises CacheError.
        """
        folder = disk.make(self.root, self.tree / name)
        disk.require_safe(self.root, folder)
        return folder

    def private(self, area: str, content: str) -> Path:
        """Make a directory for this process; its name shows others whether its owner has ended."""
        from tempfile import mkdtemp

        prefix = f"{content}.{this_process()}."
        return Path(mkdtemp(prefix=prefix, dir=self.area(area)))

    def abandoned_folders(self, area: str) -> list[Path]:
        """Return the private directories of processes that have ended."""
        return sorted(path for path in (self.tree / area).glob("*") if is_abandoned(path))

    def move_aside(self, root: Path, area: str) -> Path:
        """Rename an entry out of sight, whole; return its new place."""
        aside = self.area(area) / f"{root.name}.{this_process()}.{time.monotonic_ns()}"
        root.rename(aside)
        return aside

    @contextmanager
    def build(self, root: Path, is_sound: Callable[[], bool]) -> Iterator[Path]:
        """Yield a private folder to fill in a `with` block; then sync it, and rename it to `root`.

        So nothing is written to a folder that others see. If another process has made that folder
        meanwhile, it stays if `is_sound` says so; if not, `is_sound` has moved it aside.
        """
        import shutil

        self.area(root.parent.name)
        for path in self.abandoned_folders("unpacking"):
            shutil.rmtree(path, ignore_errors=True)
        private = self.private("unpacking", root.name)
        process = os.getpid()
        try:
            yield private
            private.chmod(0o755)
            for inside, _, _ in os.walk(private):
                disk.sync_directory(Path(inside))
            try:
                private.rename(root)
            except OSError as exc:
                if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                if not is_sound():
                    private.rename(root)
            for folder in (root.parent, self.tree):
                disk.sync_directory(folder)
        finally:
            if os.getpid() == process:  # A forked child must leave the folder alone.
                shutil.rmtree(private, ignore_errors=True)

    def last_use(self, root: Path) -> float:
        """Return when an entry was used or published, in seconds of the epoch; exact to a day."""
        for path in (self._use_path(root.name), root):
            with suppress(OSError):
                return path.stat().st_mtime
        return 0.0

    @contextmanager
    def lease(
        self, sha256: str, notify: Callable[[str], None] | None = None
    ) -> Iterator[lock.FileLock]:
        """Keep an entry from being removed during a `with` block."""
        from pjrt_hub.finding.store import lock

        wait = lock.Wait(_LEASE_PATIENCE_SECONDS, notify, doing="is removing this entry")
        path = self._use_path(sha256)
        with self._lock(path, wait, shared=True) as held:
            if held.file is not None:
                with suppress(OSError):  # The cache may be read-only.
                    if time.time() - os.fstat(held.file).st_mtime > _USE_SECONDS:
                        os.utime(held.file if os.utime in os.supports_fd else path)
            yield held

    def removal_lock(self, sha256: str) -> AbstractContextManager[lock.FileLock]:
        """Keep an entry from being used; the lock's state is "taken" if somebody uses the entry."""
        from pjrt_hub.finding.store import lock

        return self._lock(self._use_path(sha256), lock.NO_WAIT)

    def fetch_lock(self, sha256: str, wait: lock.Wait) -> AbstractContextManager[lock.FileLock]:
        """Keep other processes from fetching the same artifact during a `with` block."""
        with disk.cache_errors("cannot write to", self.tree):
            self.area("locks")
        return self._lock(self.tree / "locks" / sha256, wait)

    @contextmanager
    def _lock(
        self, path: Path, wait: lock.Wait, *, shared: bool = False
    ) -> Iterator[lock.FileLock]:
        """Lock like `lock.acquire`, in a folder that only this user can write."""
        from pjrt_hub.finding.store import lock

        with ExitStack() as stack:
            try:
                if not path.parent.is_dir():
                    disk.make(self.root, path.parent)
                folder = stack.enter_context(disk.open_folder(self.root, path.parent))
            except OSError:  # The cache is read-only, and nobody has ever locked anything in it.
                yield lock.FileLock(None, "unknown")
                return
            yield stack.enter_context(lock.acquire(path, wait, shared=shared, folder=folder))

    def _use_path(self, sha256: str) -> Path:
        return self.tree / "locks" / f"{sha256}.use"


def read_row(root: Path) -> Archive | str:
    """Return the row of an entry, or why it cannot be read."""
    path = root / ROW_NAME
    try:
        row = json.loads(digest.content(path))
        kind = Artifact if "library" in row else Requirement
        return kind.from_row(row, str(path))
    except ManifestError as exc:
        return exc.message
    except (OSError, ValueError, TypeError) as exc:
        return f"{path} cannot be read: {exc}"


def this_process() -> str:
    """Name this process as "machine-pid-start", so that a reused pid differs."""
    return f"{_machine()}-{os.getpid()}-{_start_time(os.getpid())}"


def is_ours(path: Path) -> bool:
    """Check whether a directory "content.owner.random" is this process's, and not its parent's."""
    return _owner(path) == this_process()


def is_abandoned(path: Path) -> bool:
    """Check whether the owner of a directory named "content.owner.random" is gone."""
    owner = _owner(path)
    if owner == NOBODY:
        return True
    if not owner:
        return False  # A person put it there and has to remove it.
    machine, _, process = owner.partition("-")
    pid, _, started = process.partition("-")
    if machine == _machine() and pid.isdecimal() and sys.platform != "win32":
        return _start_time(int(pid)) != started
    with suppress(OSError):
        newest = max(each.stat().st_mtime for each in (path, *path.iterdir()))
        return time.time() - newest > _ABANDONED_SECONDS
    return False


def _owner(path: Path) -> str:
    """Return the owner in a name "content.owner.random", or an empty string for other names."""
    parts = path.name.split(".")
    return parts[1] if len(parts) == 3 else ""


def _machine() -> str:
    import hashlib
    import platform

    namespace = ""
    with suppress(OSError):  # Two containers may share a cache and a host name.
        namespace = os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(f"{platform.node()} {namespace}".encode()).hexdigest()[:12]


def _start_time(pid: int) -> str:
    """Return when a process started, in clock ticks after boot (proc(5), stat, field 22).

    The result is "0" if that cannot be told, and empty if there is no such process.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "0" if _is_alive(pid) else ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]  # "Z" and "X" mean dead, but not waited for.


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # On Windows, os.kill would end the process.
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # No process has a number that overflows.
        return False
    except OSError:
        pass  # The process belongs to another user.
    return True
