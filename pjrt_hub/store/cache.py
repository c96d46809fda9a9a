"""The layout on disk: verified entries, addressed by the sha256 of their archive (layer 2).

Owns every path below the cache root. A published file is never written to again: it is made in
a private directory, synced, and renamed into place together with its siblings.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from pjrt_hub.abi import Verdict
from pjrt_hub.errors import CacheError, ManifestError
from pjrt_hub.store import digest, disk, owner
from pjrt_hub.store.catalog import Artifact, Member
from pjrt_hub.store.memo import Memo

#: The layout's version: a change of layout changes this and leaves older trees alone.
LAYOUT = "v1"
#: The row of an entry, beside its members.
ROW_NAME = "pjrt_hub_entry.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """A published artifact.

    Attributes:
        artifact: the row that it was published from.
        root: the directory that holds the members in the archive's own layout.
    """

    artifact: Artifact
    root: Path

    @property
    def library_path(self) -> Path:
        """The absolute path of the library to load."""
        return self.root / self.artifact.library


@dataclass(frozen=True, slots=True)
class Audit:
    """What `Cache.verify` found in one entry.

    Attributes:
        root: the entry's directory.
        entry: the entry, or None where its row cannot be read.
        verdict: whether every byte is the pinned one; the reason names the first that is not.
    """

    root: Path
    entry: Entry | None
    verdict: Verdict


class Cache:
    """A cache directory; it is created by the first write, not by a look.

    Args:
        root: an absolute path.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._tree = root / LAYOUT
        self._memo = Memo(root, self._tree / "memo")

    @classmethod
    def configured(cls, env: Mapping[str, str]) -> Cache:
        """The cache that `PJRT_HUB_CACHE` names, else the user's cache directory.

        Raises:
            CacheError: there is neither.
        """
        if named := env.get("PJRT_HUB_CACHE"):
            return cls(Path(named).expanduser().absolute())
        from platformdirs import user_cache_path

        root = user_cache_path("pjrt-hub", appauthor=False)
        if not root.is_absolute():  # without HOME the tilde is left as it is
            raise CacheError(
                "no cache directory: this user has no home directory",
                hint="set PJRT_HUB_CACHE to a directory that you can write to",
            )
        return cls(root)

    def __repr__(self) -> str:
        return f"Cache({str(self.root)!r})"

    def entry_root(self, artifact: Artifact) -> Path:
        """Where the artifact's members lie once published."""
        return self._tree / artifact.sha256[:2] / artifact.sha256

    def lookup(self, artifact: Artifact) -> Entry | None:
        """The published artifact, or None.

        Each member's size and sha256 are compared with the pin; the sha256 of a file whose
        identity (device, inode, size, times) was verified before is not computed again, so a
        warm look reads a few stat records, writes nothing and uses no network. An entry that
        fails is removed with a warning in the log, and None is answered.

        Raises:
            CacheError: a corrupted entry cannot be moved aside, or nothing can be read.
        """
        root = self.entry_root(artifact)
        with disk.writing("cannot read the cache entry", root):
            if not root.is_dir():
                return None
            for member in artifact.members:
                if reason := _difference(root, member, self._memo.sha256):
                    self._set_aside(root, reason)
                    return None
        return Entry(artifact, root)

    def publish(self, artifact: Artifact, archive_path: Path) -> Entry:
        """Unpacks the pinned members of an archive and makes them an entry, all or none.

        Args:
            artifact: the pin.
            archive_path: a file with the pinned size and sha256; the caller has checked both.

        Raises:
            ArchiveError: the archive does not hold the pinned members.
            CacheError: the directory cannot be written, or is full.
        """
        from pjrt_hub.store.archive import unpack

        root = self.entry_root(artifact)
        with disk.writing("cannot publish", root, artifact.nbytes):
            self.require_space(artifact.nbytes)
            disk.make(self.root, root.parent)
            for path in self._abandoned("unpacking"):
                shutil.rmtree(path, ignore_errors=True)
            private = self._make_private("unpacking", artifact)
            try:
                unpack(archive_path, artifact.members, private)
                disk.write_synced(private / ROW_NAME, json.dumps(artifact.as_row(), indent=1))
                private.chmod(0o755)
                for folder, _, _ in os.walk(private):
                    disk.sync_directory(Path(folder))
                self._rename_into_place(artifact, private, root)
            finally:
                shutil.rmtree(private, ignore_errors=True)
        entry = self.lookup(artifact)
        if entry is None:
            raise CacheError(f"the entry {root} changed while it was published")
        return entry

    def entries(self) -> tuple[Entry, ...]:
        """Every entry whose row can be read, in the order of their digests; nothing is hashed."""
        found = ((root, _read_row(root)) for root in self._roots())
        return tuple(Entry(row, root) for root, row in found if isinstance(row, Artifact))

    def verify(self) -> tuple[Audit, ...]:
        """Hashes every member of every entry, whatever was verified before; changes nothing."""
        audits = []
        for root in self._roots():
            row = _read_row(root)
            if isinstance(row, str):
                audits.append(Audit(root, None, Verdict(False, row)))
                continue
            reason = ""
            for member in row.members:
                try:
                    reason = reason or _difference(root, member, digest.of_file)
                except OSError as exc:
                    reason = f"{member.path} cannot be read: {exc.strerror}"
            audits.append(Audit(root, Entry(row, root), Verdict(not reason, reason)))
        return tuple(audits)

    def clear(self) -> int:
        """Removes every entry, compiled program and abandoned download; says what they took.

        A process that has one of the libraries loaded keeps it: its pages outlive the name.

        Raises:
            CacheError: the directory cannot be written.
        """
        with disk.writing("cannot look into", self._tree):
            if not self._tree.is_dir():
                return 0
        freed = 0
        with disk.writing("cannot clear", self._tree):
            gone = [*self._roots(), *self._abandoned("partial"), *self._abandoned("unpacking")]
            gone += self._tree.glob("compiled")
            for root in gone:
                freed += disk.tree_nbytes(root)
                self._discard(root)
            for leftover in (self._tree / "trash").glob("*"):
                freed += disk.tree_nbytes(leftover)
                shutil.rmtree(leftover, ignore_errors=True)
            shutil.rmtree(self._tree / "memo", ignore_errors=True)
        return freed

    def nbytes(self) -> int:
        """What the whole cache takes on disk, in bytes."""
        return disk.tree_nbytes(self._tree)

    def lock_path(self, artifact: Artifact) -> Path:
        """The lock file of an artifact, in a directory that exists afterwards.

        Raises:
            CacheError: the directory cannot be made.
        """
        with disk.writing("cannot write to", self._tree):
            return self._make_area("locks") / artifact.sha256

    @contextmanager
    def workspace(self, artifact: Artifact) -> Iterator[Path]:
        """A private directory to download into; it may hold what an earlier attempt left.

        It goes away when the block succeeds. When the block fails it is left for the next
        attempt, and so is that of a killed process. Its name tells its owner, so two live
        processes never share one, lock or no lock.

        Raises:
            CacheError: the directory cannot be written, or is full.
        """
        with disk.writing("cannot download to", self._tree, artifact.size):
            private = self._make_private("partial", artifact)
            for path in self._abandoned("partial"):
                if path.name.startswith(artifact.sha256):
                    # Renaming over an empty directory is atomic: one adopter wins.
                    with suppress(OSError):
                        path.rename(private)
                        break
            try:
                yield private
            except BaseException:
                if disk.tree_nbytes(private):
                    tail = private.name.rpartition(".")[2]
                    private.rename(private.with_name(f"{artifact.sha256}.{owner.NOBODY}.{tail}"))
                else:
                    shutil.rmtree(private, ignore_errors=True)
                raise
            shutil.rmtree(private, ignore_errors=True)

    def require_space(self, nbytes: int) -> None:
        """Refuses early what cannot fit.

        Raises:
            CacheError: fewer than `nbytes` bytes are free where the cache lies.
        """
        disk.require_space(self.root, nbytes)

    # Paths below the root.

    def _roots(self) -> list[Path]:
        with disk.writing("cannot look into", self._tree):
            return sorted(path for path in self._tree.glob("[0-9a-f][0-9a-f]/*") if path.is_dir())

    def _abandoned(self, area: str) -> list[Path]:
        return sorted(path for path in (self._tree / area).glob("*") if owner.is_abandoned(path))

    def _make_area(self, name: str) -> Path:
        return disk.make(self.root, self._tree / name)

    def _make_private(self, area: str, artifact: Artifact) -> Path:
        """A directory of our own, whose name tells when nobody owns it any more."""
        return Path(
            mkdtemp(prefix=f"{artifact.sha256}.{owner.this_process()}.", dir=self._make_area(area))
        )

    def _rename_into_place(self, artifact: Artifact, private: Path, root: Path) -> None:
        try:
            private.rename(root)
        except OSError as exc:
            if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            # Somebody else published meanwhile: theirs stays if it is sound.
            if self.lookup(artifact) is None:
                private.rename(root)
        disk.sync_directory(root.parent)
        disk.sync_directory(self._tree)

    def _discard(self, root: Path) -> None:
        """Out of sight first, so that nobody finds half of it; then gone."""
        trash = (
            self._make_area("trash") / f"{root.name}.{owner.this_process()}.{time.monotonic_ns()}"
        )
        root.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)

    def _set_aside(self, root: Path, reason: str) -> None:
        import logging

        try:
            self._discard(root)
        except FileNotFoundError:
            return  # another process has already done so
        except OSError as exc:
            raise CacheError(
                f"the cache entry {root} is corrupted ({reason}) and cannot be removed: "
                f"{exc.strerror}",
                hint="remove that directory, or set PJRT_HUB_CACHE to one that you can write to",
            ) from exc
        logging.getLogger("pjrt_hub.store").warning(
            "removed the corrupted cache entry %s: %s", root, reason
        )


def _difference(root: Path, member: Member, sha256: Callable[[Path], str]) -> str:
    """Says how a file differs from its pin, or gives an empty string."""
    path = root / member.path
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return f"{member.path} is missing"
    if not stat.S_ISREG(found.st_mode):
        return f"{member.path} is not a plain file"
    if found.st_size != member.size:
        return f"{member.path} has {found.st_size} bytes, the pin says {member.size}"
    if (actual := sha256(path)) != member.sha256:
        return f"{member.path} has sha256 {actual}, the pin says {member.sha256}"
    return ""


def _read_row(root: Path) -> Artifact | str:
    """The row of an entry, or why it cannot be read."""
    path = root / ROW_NAME
    try:
        row = json.loads(path.read_text("utf-8"))
        return Artifact.from_row(row, str(path))
    except ManifestError as exc:
        return exc.message
    except (OSError, ValueError, TypeError) as exc:
        return f"{path} cannot be read: {exc}"
