"""Getting a pinned artifact: the cache, else the network.

Owns the order of sources and the check of the result. Size and sha256 come from the pin, never
from a server; a file that is not the pinned one is never kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from pjrt_hub.base import log
from pjrt_hub.errors import CacheError, DigestMismatchError, DownloadError, OfflineError
from pjrt_hub.finding.store.artifact.catalog import Artifact
from pjrt_hub.finding.store.cache.cache import Cache, Entry
from pjrt_hub.finding.store.disk import lock, owner
from pjrt_hub.finding.store.transfer import flight, index
from pjrt_hub.finding.store.transfer.credentials import redacted
from pjrt_hub.finding.store.transfer.offline import is_offline
from pjrt_hub.finding.store.transfer.partial import Partial, Progress, fill, forked
from pjrt_hub.finding.store.transfer.transport import Late, Patience, Refused

#: How often an entry may be removed between its fetch and its lease.
_LEASES = 5


def obtain(
    artifact: Artifact,
    cache: Cache,
    *,
    env: Mapping[str, str],
    offline: bool = False,
    progress: Progress | None = None,
    notify: Callable[[str], None] | None = None,
    patience: Patience | None = None,
) -> Entry:
    """Return the artifact's entry; fetch it first if the cache lacks it.

    Args:
        artifact: the pin.
        cache: where entries are kept.
        env: `PJRT_HUB_MIRRORS`, `PJRT_HUB_OFFLINE`, and the variables of pip, uv and TLS.
        offline: whether the network is forbidden.
        progress: is told how a download goes.
        notify: is told what the user should know of a wait.
        patience: the limits; the defaults suit a person at a terminal.

    Raises:
        OfflineError: the entry is not in the cache and `offline` is set.
        DigestMismatchError: the bytes that came are not the pinned ones.
        DownloadError: no source gave the file.
        ArchiveError: the archive does not hold the pinned members.
        CacheError: the cache cannot be used.
        StoreError: no package index is known.
    """
    if entry := cache.lookup(artifact):
        return entry
    if offline or is_offline(env):
        raise OfflineError(
            f"{artifact.package} {artifact.version} is not in the cache {cache.root}, "
            "and the network is forbidden",
            hint=f"run `pjrt-hub get {artifact.plugin}` once where there is a network",
        )
    limits = patience or Patience.configured(env)
    work = functools.partial(_fetch, artifact, cache, env, progress, notify, limits)
    key = (cache.root, artifact.sha256)
    return flight.joined(key, work, patience_seconds=limits.lock_seconds)


@contextmanager
def leased(
    artifact: Artifact,
    cache: Cache,
    *,
    env: Mapping[str, str],
    offline: bool = False,
    progress: Progress | None = None,
    notify: Callable[[str], None] | None = None,
) -> Iterator[Entry]:
    """Obtain like `obtain`, and keep the entry from removal during the `with` block.

    What is removed between the end of a fetch and the lease is fetched again, a few times.
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


def _fetch(
    artifact: Artifact,
    cache: Cache,
    env: Mapping[str, str],
    progress: Progress | None,
    notify: Callable[[str], None] | None,
    limits: Patience,
) -> Entry:
    wait = lock.Wait(limits.lock_seconds, notify, limits.sleep, limits.clock)
    with cache.fetching(artifact, wait):
        if entry := cache.lookup(artifact):
            return entry
        with cache.workspace(artifact) as folder:
            already = sum(path.stat().st_size for path in folder.iterdir())
            cache.require_space(artifact.size - already + artifact.nbytes)
            archive_path = download(artifact, folder, env=env, progress=progress, patience=limits)
            if not owner.is_ours(folder):
                raise forked(artifact.package)
            return cache.publish(artifact, archive_path)


def download(
    artifact: Artifact,
    folder: Path,
    *,
    env: Mapping[str, str],
    progress: Progress | None = None,
    patience: Patience,
) -> Path:
    """Fetch the pinned archive into a private folder, from the first source that has it.

    Mirrors come first, then the artifact's own addresses, then the configured indexes. What an
    earlier attempt left in `folder` is continued.

    Returns:
        The path of the archive, whose size and sha256 are the pinned ones.

    Raises:
        DigestMismatchError: a source gave other bytes, and no source gave the pinned ones.
        DownloadError: no source gave the file.
        StoreError: no package index is known.
        OSError: `folder` cannot be written.
    """
    failures: index.Failures = []
    mismatch: DigestMismatchError | None = None
    limits = patience.started()
    with suppress(Late), closing(Partial(artifact, folder, progress)) as partial:
        if partial.is_pinned:
            return partial.path
        if partial.is_complete:
            partial.restart()
        look = functools.partial(index.addresses, artifact)
        with closing(index.search(env, limits, failures, look, artifact.urls)) as addresses:
            for url, transport in addresses:
                shown = transport.shown(url)
                log.step("store", "%s: from %s", artifact.file_name, shown, url=shown)
                try:
                    fill(partial, url, transport)
                    if not partial.is_pinned and partial.is_mixed:
                        # The file changed between two parts: once more, in one part.
                        partial.restart()
                        fill(partial, url, transport)
                except Refused as exc:
                    failures.append((shown, str(exc)))
                    log.step("store", "%s: %s", shown, exc, url=shown, reason=str(exc))
                    if isinstance(exc, Late):
                        break
                    continue
                if partial.is_pinned:
                    return partial.path
                mismatch = _mismatch(artifact, shown, partial)
                failures.append((shown, f"its sha256 is {partial.sha256}"))
                partial.restart()
    raise mismatch or _no_source(artifact, failures)


def _mismatch(artifact: Artifact, shown: str, partial: Partial) -> DigestMismatchError:
    cause = "a mirror or proxy may have altered the file"
    if partial.is_page:
        cause = "it is a page, perhaps of a proxy or a login"
    return DigestMismatchError(
        f"{artifact.package} {artifact.version}, the plugin {artifact.plugin!r}, from "
        f"{shown} is not the pinned file: "
        f"{partial.nbytes:,} bytes came with sha256 {partial.sha256}, "
        f"the pin of {artifact.file_name} says {artifact.size:,} bytes with sha256 "
        f"{artifact.sha256}; nothing was kept",
        expected=f"sha256:{artifact.sha256}",
        actual=f"sha256:{partial.sha256}",
        hint=f"{cause}: set PJRT_HUB_MIRRORS to a place that holds the original, and run "
        f"`pjrt-hub get {artifact.plugin}` again",
    )


def _no_source(artifact: Artifact, failures: index.Failures) -> DownloadError:
    tried = "".join(f"\n  {redacted(place)}: {reason}" for place, reason in failures)
    return DownloadError(
        f"no source gave {artifact.file_name} ({artifact.package} {artifact.version}, "
        f"{artifact.size:,} bytes){':' if tried else ': none is configured'}{tried}",
        url=redacted(failures[-1][0]) if failures else "",
        hint="check the network and the proxy, set PJRT_HUB_MIRRORS to a place that holds the "
        f"file, or install {artifact.package}=={artifact.version} yourself",
    )
