"""Bundles of plugins, to and from machines without a network.

Owns what goes into one: rows of the lock file that holds here, else of the registry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pjrt_hub.base.host import HostTag
from pjrt_hub.door.process import (
    cache,
    catalog,
    environment,
    follows_registry,
    pins,
    refresh_registry,
)
from pjrt_hub.errors import PjrtHubError, PluginNotFoundError
from pjrt_hub.finding.contract.names import canonical, did_you_mean
from pjrt_hub.finding.store.pins import kind, serves

if TYPE_CHECKING:
    from pjrt_hub.finding.store.catalog import Artifact


def export_bundle(
    path: Path, *platforms: str, hosts: Sequence[str] = (), quiet: bool = False
) -> tuple[str, ...]:
    """Fetch archives and write them into one file.

    Args:
        path: the file.
        platforms: platforms, plugins or packages; by default everything that there is.
        hosts: machines such as "linux-aarch64"; by default this one.
        quiet: draw no progress.

    Returns:
        What it holds, a line for each archive.

    Raises:
        PluginNotFoundError: there is no such row.
        StoreError: an archive cannot be fetched.
        OSError: `path` cannot be written.
    """
    from pjrt_hub.base.progress import choose_progress
    from pjrt_hub.finding.store.transfer import bundle, download
    from pjrt_hub.finding.store.transfer.partial import enter, report_to
    from pjrt_hub.finding.store.transfer.transport import Patience

    env = environment()

    @contextmanager
    def bring(row: Artifact, folder: Path) -> Iterator[Path]:
        patience = Patience.from_env(env)
        with report_to(None if quiet else choose_progress(row.package)) as progress:
            yield download.download(row, folder, env=env, progress=progress, patience=patience)
            enter(progress, "done")

    rows = _newest_rows(platforms, hosts)
    try:
        bundle.write(path.absolute(), rows, bring)
    except KeyboardInterrupt as exc:
        exc.add_note(f"interrupted: {path} was not written; run it again to start over")
        raise
    return tuple(map(_summary, rows))


def import_bundle(path: Path) -> tuple[str, ...]:
    """Put the plugins of a bundle into the cache, if the lock file or the registry knows them.

    Args:
        path: of the file that `export_bundle` wrote.

    Returns:
        What is in the cache now, a line for each archive.

    Raises:
        ArchiveError: the bundle is malformed, incomplete, or holds unpinned archives.
        DigestMismatchError: an archive is not what its row says.
        CacheError: the cache cannot be written.
        OSError: `path` cannot be read.
    """
    from pjrt_hub.base.progress import choose_progress
    from pjrt_hub.finding.store.transfer import bundle

    known = catalog(environment(), pins()).rows()
    return tuple(map(_summary, bundle.read(path.absolute(), known, cache(), choose_progress)))


def _newest_rows(platforms: Sequence[str], hosts: Sequence[str]) -> list[Artifact]:
    """Return the newest row of each plugin for each kind of machine."""
    from packaging.version import Version

    env, locked = environment(), pins()
    if follows_registry(locked):
        refresh_registry(env)  # what it pins is about to be fetched
    rows = catalog(env, locked).rows()
    words = {word for row in rows for word in _words(row)}
    for unknown in (each for each in platforms if each not in words):
        raise PluginNotFoundError(
            f"neither the lock file nor the registry has a row called {unknown!a}",
            hint=did_you_mean(unknown, words) or "`pjrt-hub list` shows the plugins",
        )
    machines = tuple(map(_host, hosts)) or (HostTag.current(),)
    best: dict[tuple[str, ...], Artifact] = {}
    for row in sorted(rows, key=lambda row: Version(row.version), reverse=True):
        wanted = not platforms or set(_words(row)) & set(platforms)
        if wanted and serves(row, machines) and not row.runs(row.host):
            best.setdefault((row.plugin, *kind(row)), row)
    if not best:
        raise PluginNotFoundError(
            f"nothing of {', '.join(platforms) or 'what is known'} runs on "
            f"{', '.join(map(str, machines))}",
            hint="name the machines with --host, such as linux-x86_64",
        )
    return list(best.values())


def _words(row: Artifact) -> tuple[str, ...]:
    return row.plugin, row.platform, canonical(row.package)


def _host(text: str) -> HostTag:
    try:
        return HostTag.parse(text)
    except ValueError as exc:
        raise PjrtHubError(str(exc), hint="such as linux-x86_64 or linux-aarch64") from exc


def _summary(row: Artifact) -> str:
    return f"{row.package} {row.version} for {row.host}, {row.size / 1e6:.0f} MB"
