"""A cache of verified entries, addressed by the sha256 of their archive.

Owns look-ups: the user's own cache first, then those of the machine, which are only read.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pjrt_hub.base import log
from pjrt_hub.errors import CacheError
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.cache.layout import NOBODY, ROW_NAME, CacheEntry, CacheLayout, read_row
from pjrt_hub.finding.store.cache.memo import Memo
from pjrt_hub.finding.store.catalog import Archive
from pjrt_hub.finding.store.level import SYSTEM_STORE, levels

if TYPE_CHECKING:
    from pjrt_hub.finding.store.cache.audit import Audit
    from pjrt_hub.finding.store.cache.eviction import Removal

__all__ = ["ROW_NAME", "SYSTEM", "Cache", "CacheEntry"]

#: Where an administrator may keep plugins for all users of a machine; Windows has no such place.
SYSTEM: tuple[Path, ...] = ()
if sys.platform != "win32":
    SYSTEM = (Path("/", SYSTEM_STORE), Path("/usr/share/pjrt-hub"))


class Cache:
    """A cache directory; the first write creates it, a look-up does not.

    Its root is an absolute path. The `system` caches are looked at after it, and only read. If the
    entries take more than `max_nbytes`, the least recently used are removed; None is no limit.
    """

    def __init__(
        self, root: Path, *, system: Collection[Path] = (), max_nbytes: int | None = None
    ) -> None:
        self.root = root
        self.system = tuple(system)
        self.max_nbytes = max_nbytes
        self.layout = CacheLayout(root)
        self._layouts = (self.layout, *map(CacheLayout, system))
        self._memo = Memo(root, self.layout.tree / "memo")

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Cache:
        """Return the cache that `PJRT_HUB_CACHE` names, else the user's cache directory.

        After it come the caches of `PJRT_HUB_SYSTEM_CACHE`, else of `SYSTEM`. A user without a home
        directory, or a variable that cannot be understood, raises CacheError.
        """
        named = env.get("PJRT_HUB_SYSTEM_CACHE")
        system = (
            SYSTEM if named is None else tuple(map(Path, filter(None, named.split(os.pathsep))))
        )
        here = levels(env, windows=sys.platform == "win32")
        stores = [each.store for each in here if each.name != "system" and each.store.is_absolute()]
        for path in system:
            if not path.is_absolute():
                raise CacheError(
                    f"PJRT_HUB_SYSTEM_CACHE names {str(path)!r}, which is not an absolute path",
                    hint="give absolute paths, joined as in PATH",
                )
        bound = env.get("PJRT_HUB_CACHE_NBYTES", "")
        if bound and not bound.isdecimal():
            raise CacheError(
                f"PJRT_HUB_CACHE_NBYTES is {bound!r}, which is not a number of bytes",
                hint="set it to a number such as 20000000000, or unset it",
            )
        max_nbytes = int(bound) if bound else None
        if named := env.get("PJRT_HUB_CACHE"):
            root = Path(named).expanduser().absolute()
        else:
            from platformdirs import user_cache_path

            root = user_cache_path("pjrt-hub", appauthor=False)
        if not root.is_absolute():  # Without HOME, the tilde is not expanded.
            raise CacheError(
                "no cache directory: this user has no home directory",
                hint="set PJRT_HUB_CACHE to a directory that you can write to",
            )
        return cls(root, system=(*stores, *system), max_nbytes=max_nbytes)

    def __repr__(self) -> str:
        return f"Cache({str(self.root)!r})"

    def place(self, artifact: Archive) -> Path | None:
        """Find the artifact, unverified, in this cache or one of the machine, or return None."""
        for layout in self._layouts:
            if os.path.isdir(root := layout.entry_root(artifact)):
                return root
        return None

    def lookup(self, artifact: Archive) -> CacheEntry | None:
        """Return the published artifact, verified, or None.

        Each member's size and sha256 are compared with the pin; the sha256 of a file whose identity
        (device, inode, size, times) was verified before is not computed again, so a warm look reads
        a few stat records, writes nothing and uses no network. An entry that fails is moved to the
        quarantine with a warning in the log, and None is returned; CacheError means that it cannot
        be moved, that nothing can be read, or that somebody else could have written to the cache.
        """
        found = self._look(self.layout, artifact)
        for layout in self._layouts[1:]:
            if found is None:
                with _skip_unsound(layout):
                    found = self._look(layout, artifact)
        return found

    @contextmanager
    def lease(
        self, artifact: Archive, notify: Callable[[str], None] | None = None
    ) -> Iterator[CacheEntry | None]:
        """Look up like `lookup`, and keep the entry from removal during the `with` block.

        `notify` receives a message when another process must be waited for.
        """
        with ExitStack() as stack:
            for layout in self._layouts:
                if os.path.isdir(layout.entry_root(artifact)):
                    with _skip_unsound(layout) if layout is not self.layout else ExitStack():
                        stack.enter_context(layout.lease(artifact.sha256, notify))
            yield self.lookup(artifact)

    def _look(self, layout: CacheLayout, artifact: Archive) -> CacheEntry | None:
        from pjrt_hub.finding.store.cache import audit

        root = layout.entry_root(artifact)
        with disk.cache_errors("cannot read the cache entry", root):
            if (inode := _inode(root)) is None:
                return None
            try:
                verified = CacheEntry(artifact, root).identities()  # Hashing must come after this.
                reason = audit.difference(root, artifact.members, self._memo)
                if not reason:
                    for folder in {(root / member.path).parent for member in artifact.members}:
                        disk.require_safe(layout.root, folder)
                    return CacheEntry(artifact, root, verified)
            except FileNotFoundError as exc:
                reason = f"{exc.filename} is missing"
            if _inode(root) != inode:  # The entry was removed, and perhaps published again.
                return self._look(layout, artifact)
            disk.require_safe(layout.root, root)
        if layout is not self.layout:
            raise CacheError(f"the cache entry {root} is corrupted: {reason}")
        from pjrt_hub.finding.store.cache import eviction

        eviction.quarantine(layout, root, reason)
        return None

    def publish(self, artifact: Archive, archive_path: Path) -> CacheEntry:
        """Unpack the pinned members of an archive and make them an entry, all or none.

        If the cache has a limit, the least recently used entries are removed. The caller checked
        the archive's size and sha256; an archive without the pinned members raises ArchiveError. A
        directory that cannot be written, or is full, raises CacheError.
        """
        import json

        from pjrt_hub.finding.store.archive.archive import unpack

        root = self.layout.entry_root(artifact)
        with disk.cache_errors("cannot publish", root, artifact.nbytes):
            disk.require_space(self.root, artifact.nbytes)
            with self.layout.lease(artifact.sha256):  # The entry must stay until it is looked up.
                with self._build(artifact) as private:
                    unpack(archive_path, artifact.members, private, name=artifact.file_name)
                    for member in artifact.members:
                        self._memo.keep(private / member.path, member.sha256)
                    disk.write_synced(private / ROW_NAME, json.dumps(artifact.as_row(), indent=1))
                entry = self._look(self.layout, artifact)
        if entry is None:
            raise CacheError(
                f"the entry {root} changed while it was published",
                hint="run it again; the log says what had changed",
            )
        if self.max_nbytes is not None:
            self.prune(max_nbytes=self.max_nbytes, keep={artifact.sha256})
        return entry

    def adopt(self, entry: CacheEntry) -> None:
        """Make a verified entry of another cache an entry of this one, by hard links if it can."""
        import shutil

        artifact = entry.artifact
        with disk.cache_errors("cannot write to", self.layout.entry_root(artifact)):
            disk.require_space(self.root, artifact.nbytes)
            # The lease makes the lock file, so that the first use has nothing to write.
            with self.layout.lease(artifact.sha256), self._build(artifact) as private:
                shutil.copytree(entry.root, private, dirs_exist_ok=True, copy_function=_link)

    def _build(self, artifact: Archive) -> AbstractContextManager[Path]:
        """Yield a private folder that becomes the artifact's entry, unless a sound one is there."""
        root = self.layout.entry_root(artifact)

        def is_sound() -> bool:
            found = self.lookup(artifact)  # This moves an entry that is not sound aside.
            return found is not None and found.root == root

        return self.layout.build(root, is_sound)

    def lay_out(self, files: Mapping[str, Path]) -> Path | None:
        """Return a folder with a link to each file, as if an installer had put them there.

        A plugin finds much of what it requires by its own path, so it is loaded from this folder.
        The folder is removed once one of the files is removed. The result is None if the folder
        does not exist yet, and this cache can only be read. CacheError means that others can write
        there, or that the disk is full.
        """
        from pjrt_hub.finding.store.cache import closure

        for layout in self._layouts:
            root = closure.place(layout, files)
            if closure.holds(root, files):
                for folder in {(root / name).parent for name in files}:
                    disk.require_safe(layout.root, folder)
                return root
        with disk.cache_errors("cannot write to", self.layout.tree):
            try:
                return closure.lay_out(self.layout, files)
            except OSError as exc:
                if exc.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                    return None
                raise

    def entries(self) -> tuple[CacheEntry, ...]:
        """Return every entry with a readable row, in the order of their digests; hash nothing."""
        found = ((root, read_row(root)) for root in self.layout.roots())
        return tuple(CacheEntry(row, root) for root, row in found if isinstance(row, Archive))

    def verify(self) -> tuple[Audit, ...]:
        """Hash every member of every entry, whatever was verified before; change nothing.

        The caches of the machine are looked at, too.
        """
        from pjrt_hub.finding.store.cache import audit

        return tuple(each for layout in self._layouts for each in audit.verify(layout))

    def holder(self, root: Path) -> Cache:
        """Return the cache that an entry is in: this one, or one of the machine."""
        return next(Cache(each.root) for each in self._layouts if root.is_relative_to(each.root))

    def clear(self) -> Removal:
        """Remove every entry that no process uses, every compiled program, and leftovers."""
        from pjrt_hub.finding.store.cache import eviction

        with disk.cache_errors("cannot look into", self.layout.tree):
            if not disk.is_folder(self.layout.tree):
                return eviction.Removal()
        with disk.cache_errors("cannot clear", self.layout.tree):
            return eviction.clear(self.layout)

    def prune(
        self,
        *,
        max_nbytes: int | None = None,
        older_than_seconds: float | None = None,
        keep: Collection[str] = (),
        dry_run: bool = False,
    ) -> Removal:
        """Remove the least recently used entries, and old leftovers.

        Entries are removed until the others take at most `max_nbytes`, and so are those not used
        for `older_than_seconds`; artifacts whose sha256 is in `keep` stay.
        """
        from pjrt_hub.finding.store.cache import eviction

        with disk.cache_errors("cannot prune", self.layout.tree):
            return eviction.prune(self.layout, max_nbytes, older_than_seconds, keep, dry_run)

    def nbytes(self) -> int:
        """Return the size of the whole cache on disk, in bytes."""
        return disk.tree_nbytes(self.layout.tree)

    @contextmanager
    def workspace(self, artifact: Archive) -> Iterator[Path]:
        """Make a private directory to download into; it may hold an earlier attempt's files.

        It is removed when the block succeeds. If the block fails or the process is killed, it stays
        for the next attempt. Its name tells its owner, so two live processes never share one, even
        without locks; a process that is forked meanwhile leaves it alone.
        """
        import shutil

        with disk.cache_errors("cannot download to", self.layout.tree, artifact.size):
            private = self.layout.private("partial", artifact.sha256)
            process = os.getpid()
            for path in self.layout.abandoned_folders("partial"):
                if path.name.startswith(artifact.sha256):
                    # One process gets the folder. Windows cannot rename over even an empty one.
                    private.rmdir()
                    with suppress(OSError):
                        path.rename(private)
                        break
                    private.mkdir(mode=0o700)
            try:
                yield private
            except BaseException:
                if os.getpid() != process:
                    raise
                if disk.tree_nbytes(private):
                    tail = private.name.rpartition(".")[2]
                    private.rename(private.with_name(f"{artifact.sha256}.{NOBODY}.{tail}"))
                else:
                    shutil.rmtree(private, ignore_errors=True)
                raise
            if os.getpid() == process:
                shutil.rmtree(private, ignore_errors=True)


def _link(source: str, target: str) -> None:
    import shutil

    try:
        os.link(source, target)
    except OSError:  # It is another file system, or one without links.
        with open(source, "rb") as original, open(target, "xb") as copy:
            shutil.copyfileobj(original, copy)
            copy.flush()
            disk.seal(copy.fileno(), executable=os.access(source, os.X_OK))


def _inode(folder: Path) -> int | None:
    """Return the inode of the directory, or None if there is none."""
    try:
        found = os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino if stat.S_ISDIR(found.st_mode) else None


@contextmanager
def _skip_unsound(layout: CacheLayout) -> Iterator[None]:
    """Skip a cache of the machine that is corrupted or unsafe, with a warning in the log."""
    try:
        yield
    except CacheError as exc:
        log.warn("pjrt_hub.store", "left out %s: %s", layout.root, exc.message)
