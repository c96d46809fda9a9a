"""The repair of a corrupted cache entry: it is moved aside, and its archive is fetched again.

Owns which row is fetched: the one that the lock file or the registry has for the entry's digest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pjrt_hub.base.progress import choose_progress
from pjrt_hub.door import privilege
from pjrt_hub.door.process import cache, catalog, environment, installed, known_rows, pins, say
from pjrt_hub.errors import PjrtHubError
from pjrt_hub.finding.store.cache import eviction
from pjrt_hub.finding.store.transfer import fetch

if TYPE_CHECKING:
    from pjrt_hub.finding.store.cache.audit import Audit


def repair(audit: Audit) -> str:
    """Quarantine an entry that `Cache.verify` found corrupted, and fetch its archive again.

    Args:
        audit: what `Cache.verify` said of the entry.

    Returns:
        What was done, as text; the entry is whole again if `audit.root` exists.

    Raises:
        CacheError: the entry cannot be moved.
    """
    store = cache().holder(audit.root)
    aside = eviction.quarantine(store.layout, audit.root, audit.verdict.reason)
    moved = f"moved to {aside}" if aside else "another process moved it aside"
    try:
        rows = known_rows(catalog(installed(), pins()))
        archives = (each for row in rows for each in row.archives)
        row = next((each for each in archives if each.sha256 == audit.root.name), None)
        if row is None:
            pinning = "the registry" if pins() is None else "the lock file"
            return f"{moved}; not fetched again: {pinning} pins it no more"
        fetch.obtain(
            row,
            store,
            env=environment(),
            offline=bool(privilege.reason()),
            progress=choose_progress(row.package),
            notify=say,
        )
    except PjrtHubError as exc:
        return f"{moved}; it cannot be fetched: {exc.message}"
    return f"{moved}; fetched {row.package} {row.version} again"
