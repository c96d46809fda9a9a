"""A pinned artifact from the network.

Owns the order of sources and the check of the result. Size and sha256 come from the pin, never
from a server; a file that is not the pinned one is never kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from pjrt_hub.base import log
from pjrt_hub.base.listing import size_text
from pjrt_hub.errors import DigestMismatchError, DownloadError
from pjrt_hub.finding.store import disk, lock
from pjrt_hub.finding.store.cache.cache import Cache, CacheEntry
from pjrt_hub.finding.store.cache.layout import is_ours
from pjrt_hub.finding.store.catalog import Archive
from pjrt_hub.finding.store.transfer import index
from pjrt_hub.finding.store.transfer.credentials import redact
from pjrt_hub.finding.store.transfer.partial import (
    ARCHIVE_NAME,
    Partial,
    Progress,
    enter,
    fill,
    fork_error,
    report_to,
)
from pjrt_hub.finding.store.transfer.transport import Late, Patience, Refused


def fetch(
    artifact: Archive,
    cache: Cache,
    env: Mapping[str, str],
    progress: Progress | None,
    notify: Callable[[str], None] | None,
    limits: Patience,
) -> CacheEntry:
    """Fetch an artifact like `fetch.obtain`, unless another process does so meanwhile."""
    wait = lock.Wait(limits.lock_seconds, notify, limits.sleep, limits.clock)
    with cache.layout.fetch_lock(artifact.sha256, wait):
        if entry := cache.lookup(artifact):
            return entry
        with (
            cache.workspace(artifact) as folder,
            _note_what_is_kept(artifact, folder),
            report_to(progress),
        ):
            already = _nbytes(folder)
            disk.require_space(cache.root, artifact.size - already + artifact.nbytes)
            archive_path = download(artifact, folder, env=env, progress=progress, patience=limits)
            if not is_ours(folder):
                raise fork_error(artifact.package)
            enter(progress, "unpacking")
            entry = cache.publish(artifact, archive_path)
            enter(progress, "done")
            return entry


@contextmanager
def _note_what_is_kept(artifact: Archive, folder: Path) -> Iterator[None]:
    """Add a note to a KeyboardInterrupt: what the workspace keeps for the next attempt."""
    try:
        yield
    except KeyboardInterrupt as exc:
        whole = f"{size_text(artifact.size)} of {artifact.package}"
        if nbytes := _nbytes(folder):
            kept = f"{size_text(nbytes)} of {whole} are kept; run it again to continue"
        else:
            kept = f"none of the {whole} had come"
        exc.add_note(f"interrupted: {kept}")
        raise


def _nbytes(folder: Path) -> int:
    """Return how much of the archive an earlier attempt left."""
    archive_path = folder / ARCHIVE_NAME
    return archive_path.stat().st_size if archive_path.exists() else 0


def download(
    artifact: Archive,
    folder: Path,
    *,
    env: Mapping[str, str],
    progress: Progress | None = None,
    patience: Patience,
) -> Path:
    """Fetch the pinned archive into a private folder, from the first source that has it.

    Mirrors come first, then the artifact's own addresses, then the configured indexes. The
    file that an earlier attempt left in `folder` is continued. The caller ends `progress`.

    Raises:
        DigestMismatchError: a source gave other bytes, and no source gave the pinned ones.
        DownloadError: no source gave the file.
        StoreError: no package index is known.
    """
    failures: index.Failures = []
    mismatch: DigestMismatchError | None = None
    limits = patience.start()
    with suppress(Late), closing(Partial(artifact, folder, progress)) as partial:
        if partial.is_pinned:
            return partial.path
        if partial.is_complete:
            partial.restart()
        partial.enter("looking")
        look = functools.partial(index.addresses, artifact)
        with closing(index.search(env, limits, failures, look, artifact.urls)) as addresses:
            for url, transport in addresses:
                shown = transport.redact(url)
                log.step("store", "%s: from %s", artifact.file_name, shown, url=shown)
                try:
                    fill(partial, url, transport)
                    partial.enter("checking")
                    if not partial.is_pinned and partial.is_mixed:
                        # The file changed between two parts, so it is fetched again, in one part.
                        partial.restart()
                        fill(partial, url, transport)
                except Refused as exc:
                    failures.append((shown, str(exc)))
                    log.step("store", "%s: %s", shown, exc, url=shown, reason=str(exc))
                    if isinstance(exc, Late):
                        break
                    partial.enter("looking")
                    continue
                if partial.is_pinned:
                    return partial.path
                mismatch = _mismatch(artifact, shown, partial)
                failures.append((shown, f"its sha256 is {partial.sha256}"))
                partial.restart()
                partial.enter("looking")
    raise mismatch or _no_source(artifact, failures)


def _mismatch(artifact: Archive, shown: str, partial: Partial) -> DigestMismatchError:
    cause = "a mirror or proxy may have altered the file"
    if partial.is_page:
        cause = "it is a page, perhaps of a proxy or a login"
    return DigestMismatchError(
        f"{artifact.package} {artifact.version}, of the plugin {artifact.plugin!r}, from "
        f"{shown} is not the pinned file: "
        f"{partial.nbytes:,} bytes came with sha256 {partial.sha256}, "
        f"the pin of {artifact.file_name} says {artifact.size:,} bytes with sha256 "
        f"{artifact.sha256}; nothing was kept",
        expected=f"sha256:{artifact.sha256}",
        actual=f"sha256:{partial.sha256}",
        hint=f"{cause}: set PJRT_HUB_MIRRORS to a place that holds the original, and run "
        f"`pjrt-hub fetch {artifact.plugin}` again",
    )


def _no_source(artifact: Archive, failures: index.Failures) -> DownloadError:
    tried = "".join(f"\n  {redact(place)}: {reason}" for place, reason in failures)
    return DownloadError(
        f"no source gave {artifact.file_name} ({artifact.package} {artifact.version}, "
        f"{artifact.size:,} bytes){':' if tried else ': none is configured'}{tried}",
        url=redact(failures[-1][0]) if failures else "",
        hint="check the network and the proxy, set PJRT_HUB_MIRRORS to a place that holds the "
        f"file, or install {artifact.package}=={artifact.version} yourself",
    )
