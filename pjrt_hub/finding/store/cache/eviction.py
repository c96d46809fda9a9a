"""Removal from a cache: corrupted, unused or excess entries, and leftovers.

Owns the steps of a removal: no entry in use is removed; others are renamed first, then deleted.
"""

from __future__ import annotations

import shutil
import stat
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pjrt_hub.base import log
from pjrt_hub.errors import CacheError
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.cache import closure
from pjrt_hub.finding.store.cache.layout import CacheLayout, read_row
from pjrt_hub.finding.store.catalog import Artifact, Requirement

#: How many corrupted entries are kept for inspection.
_QUARANTINED = 2
_REASON = "reason.txt"
#: Notes of this age are about files that are long gone; making a note again takes a second.
_NOTE_SECONDS = 90 * 24 * 3600
#: A partial download of this age is not worth continuing, and a requirement of this age does not
#: belong to a plugin that is still being fetched.
_PARTIAL_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Removal:
    """The entries that were removed, or would be."""

    nbytes: int = 0  # The bytes that they took on disk.
    removed: tuple[Path, ...] = ()  # The entries' directories, and other files and directories.
    kept: tuple[Path, ...] = ()  # Entries that stay because another process uses them.


def clear(layout: CacheLayout) -> Removal:
    """Remove every entry that nobody uses, every compiled program, and leftovers."""
    tree = layout.tree
    others = [*layout.abandoned_folders("partial"), *layout.abandoned_folders("unpacking")]
    others += [*tree.glob("trash/*"), *tree.glob("quarantine/*")]
    others += [path for path in (tree / "compiled", *_notes(layout)) if path.is_dir()]
    return _remove(layout, layout.roots(), others)


def prune(
    layout: CacheLayout,
    max_nbytes: int | None,
    older_than_seconds: float | None,
    keep: Collection[str],
    dry_run: bool,
) -> Removal:
    """Remove the least recently used entries, and old leftovers, as `Cache.prune` does."""
    now = time.time()
    used = {root: layout.last_use(root) for root in layout.roots()}
    sizes = {root: disk.tree_nbytes(root) for root in used}
    total, going = sum(sizes.values()), dict[Path, None]()
    rows = {root: read_row(root) for root in used}
    requires = {
        root: [layout.entry_root(each) for each in row.requires]
        for root, row in rows.items()
        if isinstance(row, Artifact)
    }
    users = Counter(chain(*requires.values()))
    for root in sorted(used, key=lambda root: used[root]):
        if root in going or users[root] or root.name in keep:
            continue  # A requirement is removed with the last plugin that requires it.
        unused_seconds = now - used[root]
        too_many = max_nbytes is not None and total > max_nbytes
        too_old = older_than_seconds is not None and unused_seconds > older_than_seconds
        lost = isinstance(rows[root], Requirement) and unused_seconds > _PARTIAL_SECONDS
        if too_many or too_old or lost:
            users.subtract(requires.get(root, ()))
            freed = [each for each in requires.get(root, ()) if each in used and not users[each]]
            gone = [root, *(each for each in freed if each.name not in keep)]
            total -= sum(sizes[each] for each in gone)
            going |= dict.fromkeys(gone)
    return _remove(layout, list(going), list(_leftovers(layout, now)), dry_run)


def quarantine(layout: CacheLayout, root: Path, reason: str) -> Path | None:
    """Move a corrupted entry to the quarantine, from which nothing is loaded, and note the reason.

    The newest few stay there for inspection. A process that has loaded the entry keeps it: pages
    in memory outlive the file's name. Return None if another process has moved the entry; raise
    CacheError if it cannot be moved.
    """
    try:
        aside = layout.move_aside(root, "quarantine")
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise CacheError(
            f"the cache entry {root} is corrupted ({reason}) and cannot be removed: {exc.strerror}",
            hint="remove that directory, or set PJRT_HUB_CACHE to one that you can write to",
        ) from exc
    with suppress(OSError):
        disk.write_synced(aside / _REASON, f"{root}: {reason}\n")
    older = sorted(aside.parent.iterdir(), key=_mtime, reverse=True)[_QUARANTINED:]
    for path in older:
        shutil.rmtree(path, ignore_errors=True)
    log.warn("pjrt_hub.store", "moved the corrupted cache entry %s to %s: %s", root, aside, reason)
    return aside


def _remove(
    layout: CacheLayout, roots: list[Path], others: list[Path], dry_run: bool = False
) -> Removal:
    nbytes, removed, kept = 0, [], []
    for root in roots:
        size = disk.tree_nbytes(root)
        if dry_run or _evict(layout, root):
            nbytes += size
            removed.append(root)
        elif root.is_dir():
            kept.append(root)
    others = [*others, *(() if dry_run else closure.find_broken(layout))]
    for path in others:
        nbytes += disk.tree_nbytes(path)
        removed.append(path)
        if not dry_run:
            with suppress(FileNotFoundError):  # Another process may be replacing it.
                if stat.S_ISDIR(path.lstat().st_mode):
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
    return Removal(nbytes, tuple(removed), tuple(kept))


def _evict(layout: CacheLayout, root: Path) -> bool:
    """Remove one entry unless it is in use; without locks it counts as unused."""
    with layout.removal_lock(root.name) as lock:
        if lock.state == "taken":
            return False
        try:
            aside = layout.move_aside(root, "trash")
        except FileNotFoundError:  # Another process was faster.
            return False
    shutil.rmtree(aside, ignore_errors=True)
    return True


def _leftovers(layout: CacheLayout, now: float) -> Iterator[Path]:
    for area in ("trash", "unpacking"):
        yield from layout.abandoned_folders(area)
    for path in layout.abandoned_folders("partial"):
        if now - _mtime(path) > _PARTIAL_SECONDS:
            yield path
    for folder in _notes(layout):
        for path in folder.glob("*"):
            if now - _mtime(path) > _NOTE_SECONDS:
                yield path


def _notes(layout: CacheLayout) -> list[Path]:
    """List the folders of notes, which can be removed: making a note again costs only time."""
    return [layout.tree / area for area in ("memo", "probes", "journals")]


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
