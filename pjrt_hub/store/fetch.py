"""Getting a pinned artifact: the cache, else the network (layer 2).

Owns the order of sources and the verdict on what came. Size and sha256 come from the pin, never
from a server; a file that is not the pinned one is never kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from pjrt_hub.errors import DigestMismatchError, DownloadError, OfflineError, StoreError
from pjrt_hub.store import index, lock
from pjrt_hub.store.cache import Cache, Entry
from pjrt_hub.store.catalog import Artifact
from pjrt_hub.store.partial import Partial, Progress, fill
from pjrt_hub.store.transport import Patience, Refused, Transport, redacted

_Look = Callable[[Artifact, str, Transport], Iterator[str]]


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
    """Gives the artifact's entry, and fetches it first where the cache lacks it.

    Args:
        artifact: the pin.
        cache: where entries are kept.
        env: `PJRT_HUB_MIRRORS`, and the variables of pip, uv and TLS.
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
    if offline:
        raise OfflineError(
            f"{artifact.package} {artifact.version} is not in the cache {cache.root}, "
            "and the network is forbidden",
            hint=f"run `pjrt-hub get {artifact.plugin}` once where there is a network",
        )
    limits = patience or Patience()
    with lock.held(
        cache.lock_path(artifact),
        patience_seconds=limits.lock_seconds,
        notify=notify,
        sleep=limits.sleep,
        clock=limits.clock,
    ):
        if entry := cache.lookup(artifact):
            return entry
        with cache.workspace(artifact) as folder:
            already = sum(path.stat().st_size for path in folder.iterdir())
            cache.require_space(artifact.size - already + artifact.nbytes)
            archive_path = download(artifact, folder, env=env, progress=progress, patience=limits)
            return cache.publish(artifact, archive_path)


def download(
    artifact: Artifact,
    folder: Path,
    *,
    env: Mapping[str, str],
    progress: Progress | None = None,
    patience: Patience,
) -> Path:
    """Fetches the pinned archive into a private folder, from the first source that has it.

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
    failures: list[tuple[str, str]] = []
    mismatch: DigestMismatchError | None = None
    with closing(Partial(artifact, folder, progress)) as partial:
        if partial.is_pinned:
            return partial.path
        if partial.is_complete:
            partial.restart()
        with closing(_addresses(artifact, env, patience, failures)) as addresses:
            for url, transport in addresses:
                try:
                    fill(partial, url, transport)
                    if not partial.is_pinned and partial.is_mixed:
                        # The file changed between two parts: once more, in one part.
                        partial.restart()
                        fill(partial, url, transport)
                except Refused as exc:
                    failures.append((url, str(exc)))
                    continue
                if partial.is_pinned:
                    return partial.path
                mismatch = _mismatch(artifact, url, partial)
                failures.append((url, f"its sha256 is {partial.sha256}"))
                partial.restart()
    raise mismatch or _no_source(artifact, failures)


def _addresses(
    artifact: Artifact,
    env: Mapping[str, str],
    patience: Patience,
    failures: list[tuple[str, str]],
) -> Generator[tuple[str, Transport], None, None]:
    """Every address worth trying, each with the client to ask it with, found as late as can be."""
    with Transport(
        env, certificates=env.get("PIP_CERT"), proxy=env.get("PIP_PROXY"), patience=patience
    ) as transport:
        for base in index.mirrors(env):
            try:
                for url in index.on_mirror(artifact, base, transport):
                    yield url, transport
            except (Refused, OSError) as exc:
                failures.append((base, str(exc)))
        for url in artifact.urls:
            yield url, transport
    try:
        sources = index.configured(env)
    except StoreError as exc:
        if not failures:
            raise
        failures.append(("package index", exc.message))
        return
    looks: list[tuple[str, _Look]] = []
    looks += [(place, index.in_find_links) for place in sources.find_links]
    looks += [(base, index.on_index) for base in sources.indexes]
    with Transport(
        env, certificates=sources.certificates, proxy=sources.proxy, patience=patience
    ) as transport:
        for place, look in looks:
            try:
                for url in look(artifact, place, transport):
                    yield url, transport
            except (Refused, OSError) as exc:
                failures.append((place, str(exc)))


def _mismatch(artifact: Artifact, url: str, partial: Partial) -> DigestMismatchError:
    return DigestMismatchError(
        f"{artifact.package} {artifact.version} from {redacted(url)} is not the pinned file: "
        f"{partial.nbytes:,} bytes came with sha256 {partial.sha256}, "
        f"the pin of {artifact.file_name} says {artifact.size:,} bytes with sha256 "
        f"{artifact.sha256}; nothing was kept",
        expected=f"sha256:{artifact.sha256}",
        actual=f"sha256:{partial.sha256}",
        hint="a mirror or proxy may have altered the file: set PJRT_HUB_MIRRORS to a place that "
        "holds the original",
    )


def _no_source(artifact: Artifact, failures: list[tuple[str, str]]) -> DownloadError:
    tried = "".join(f"\n  {redacted(place)}: {reason}" for place, reason in failures)
    return DownloadError(
        f"no source gave {artifact.file_name} ({artifact.package} {artifact.version}, "
        f"{artifact.size:,} bytes){':' if tried else ': none is configured'}{tried}",
        url=redacted(failures[-1][0]) if failures else "",
        hint="check the network and the proxy, set PJRT_HUB_MIRRORS to a place that holds the "
        f"file, or install {artifact.package}=={artifact.version} yourself",
    )
