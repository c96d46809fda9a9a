"""Getting a pinned artifact from the cache, else from the network.

For an artifact from the cache, no module for the network is imported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pjrt_hub.base import log
from pjrt_hub.errors import CacheError, OfflineError
from pjrt_hub.finding.contract.variables import is_on
from pjrt_hub.finding.store.cache.cache import Cache, CacheEntry
from pjrt_hub.finding.store.catalog import Archive

if TYPE_CHECKING:
    from pjrt_hub.finding.store.transfer.partial import Progress
    from pjrt_hub.finding.store.transfer.transport import Patience

#: How often an entry may be removed between its fetch and its lease.
_LEASES = 5


def obtain(
    artifact: Archive,
    cache: Cache,
    *,
    env: Mapping[str, str],
    offline: bool = False,
    progress: Progress | None = None,
    notify: Callable[[str], None] | None = None,
    patience: Patience | None = None,
) -> CacheEntry:
    """Return the artifact's entry; fetch it first if the cache lacks it.

    Of `env`, `PJRT_HUB_MIRRORS`, `PJRT_HUB_OFFLINE` and the variables of pip, uv and TLS count.
    `notify` receives messages about waits. The default patience suits a person at a terminal.

    Raises:
        OfflineError: the entry is not in the cache and the network is forbidden.
        DigestMismatchError: the bytes that came are not the pinned ones.
        DownloadError: no source gave the file.
        ArchiveError: the archive does not hold the pinned members.
        CacheError: the cache cannot be used.
        StoreError: no package index is known.
    """
    if entry := cache.lookup(artifact):
        return entry
    if offline or is_on(env, "PJRT_HUB_OFFLINE"):
        raise OfflineError(
            f"{artifact.package} {artifact.version} is not in the cache {cache.root}, "
            "and the network is forbidden",
            hint=f"run `pjrt-hub fetch {artifact.plugin}` while there is a network, or bring it in "
            "a bundle (docs/airgapped.md)",
        )
    from pjrt_hub.finding.store.transfer import download, flight
    from pjrt_hub.finding.store.transfer.transport import Patience

    limits = patience or Patience.from_env(env)
    work = functools.partial(download.fetch, artifact, cache, env, progress, notify, limits)
    key = (cache.root, artifact.sha256)
    return flight.share(key, work, patience_seconds=limits.lock_seconds)


@contextmanager
def lease(
    artifact: Archive,
    cache: Cache,
    *,
    env: Mapping[str, str],
    offline: bool = False,
    progress: Progress | None = None,
    notify: Callable[[str], None] | None = None,
) -> Iterator[CacheEntry]:
    """Obtain like `obtain`, and keep the entry from removal during the `with` block.

    An entry that is removed between its fetch and the lease is fetched again, a few times.
    """
    for _ in range(_LEASES):
        with cache.lease(artifact, notify) as entry:
            if entry is not None:
                where = str(entry.root)
                log.step("store", "%s is in the cache: %s", artifact.package, where, path=where)
                yield entry
                return
        obtain(artifact, cache, env=env, offline=offline, progress=progress, notify=notify)
    raise CacheError(
        f"{artifact.package} {artifact.version} was removed from the cache {cache.root} "
        f"{_LEASES} times while it was to be loaded",
        hint="raise PJRT_HUB_CACHE_NBYTES, or end what removes plugins from the cache",
    )
