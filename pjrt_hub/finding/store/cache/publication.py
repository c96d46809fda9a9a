"""An archive becomes an entry: it is unpacked, synced, and renamed into place, all or none.

A published file is never written to again: it is made in a private directory.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.cache.layout import ROW_NAME, CacheEntry, CacheLayout
from pjrt_hub.finding.store.cache.memo import Memo
from pjrt_hub.finding.store.catalog import Archive


def publish(
    layout: CacheLayout,
    artifact: Archive,
    archive_path: Path,
    memo: Memo,
    lookup: Callable[[Archive], CacheEntry | None],
) -> Path:
    """Unpack the pinned members of an archive, make them an entry, and return its directory.

    The caller has checked the archive's size and sha256. `memo` receives the digests of the
    members; `lookup` tells whether an entry that is there already is sound, and moves it away if
    not.
    """
    from pjrt_hub.finding.store.archive.archive import unpack

    root = layout.entry_root(artifact)
    layout.area(root.parent.name)
    for path in layout.abandoned_folders("unpacking"):
        shutil.rmtree(path, ignore_errors=True)
    private = layout.private("unpacking", artifact.sha256)
    process = os.getpid()
    try:
        unpack(archive_path, artifact.members, private, name=artifact.file_name)
        for member in artifact.members:
            memo.keep(private / member.path, member.sha256)
        disk.write_synced(private / ROW_NAME, json.dumps(artifact.as_row(), indent=1))
        private.chmod(0o755)
        for inside, _, _ in os.walk(private):
            disk.sync_directory(Path(inside))
        if not layout.settle(private, root):
            # Another process has published it meanwhile; that entry stays if it is sound.
            found = lookup(artifact)
            if found is None or found.root != root:
                private.rename(root)
        for folder in (root.parent, layout.tree):
            disk.sync_directory(folder)
    finally:
        if os.getpid() == process:  # A forked child must leave the folder alone.
            shutil.rmtree(private, ignore_errors=True)
    with layout.removal_lock(artifact.sha256):
        pass  # This makes the lock file, so that the first use has nothing to write.
    return root
