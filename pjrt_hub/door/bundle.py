"""Bundles of plugins, to and from machines without a network.

Owns what goes into a bundle: rows of the lock file that applies here, else of the registry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pjrt_hub.base import progress as displays
from pjrt_hub.base.host import HostTag
from pjrt_hub.base.listing import count_text, size_text
from pjrt_hub.door.process import (
    cache,
    catalog,
    environment,
    installed,
    known_rows,
    pins,
    registry,
    say,
)
from pjrt_hub.errors import PjrtHubError, PluginNotFoundError, StoreError
from pjrt_hub.finding.contract.names import did_you_mean
from pjrt_hub.finding.store.catalog import Artifact, newest_for_each_kind, rows_called
from pjrt_hub.finding.store.pins import serves
from pjrt_hub.finding.store.transfer import bundle, download
from pjrt_hub.finding.store.transfer.partial import enter, report_to
from pjrt_hub.finding.store.transfer.transport import Patience

#: A licence with one of these phrases does not allow anybody to pass copies on.
_RESTRICTED = re.compile("terms of service|all rights reserved", re.IGNORECASE)

if TYPE_CHECKING:
    from pjrt_hub.finding.store.catalog import Archive


def export_bundle(
    path: Path,
    *platforms: str,
    hosts: Sequence[str] = (),
    plugin_only: bool = False,
    allow_restricted: bool = False,
    quiet: bool = False,
) -> tuple[str, ...]:
    """Fetch archives and write them into one file.

    Args:
        path: the file.
        platforms: platforms, plugins, packages, or "package:plugin"; if several packages build a
            plugin, the newest build is taken, unless a package is named. By default everything
            that is known.
        hosts: machines such as "linux-aarch64"; by default this one.
        plugin_only: leave out what the plugins require at run time, such as CUDA's libraries.
        allow_restricted: include archives whose licence does not let you pass them on.
        quiet: draw no progress.

    Returns:
        A line for each archive in the bundle, with its licence.

    Raises:
        PluginNotFoundError: no row has one of the names, or none is for the machines.
        StoreError: an archive cannot be fetched, or may not be passed on.
        OSError: `path` cannot be written.
    """
    env = environment()

    @contextmanager
    def bring(row: Archive, folder: Path) -> Iterator[Path]:
        patience = Patience.from_env(env)
        with report_to(None if quiet else displays.choose_progress(row.package)) as progress:
            yield download.download(row, folder, env=env, progress=progress, patience=patience)
            enter(progress, "done")

    rows = _newest_rows(platforms, hosts)
    if plugin_only:
        rows = [row._replace(requires=()) for row in rows]
    archives = list({each.sha256: each for row in rows for each in row.archives}.values())
    if not allow_restricted:
        _require_licenses(archives)
    total = sum(each.size for each in archives)
    if not quiet:
        say(f"{path} will hold {count_text(len(archives), 'archive')}, {size_text(total)}")
    try:
        bundle.write(path.absolute(), archives, bring)
    except KeyboardInterrupt as exc:
        exc.add_note(f"interrupted: {path} was not written; run it again to start over")
        raise
    return tuple(map(_summary, archives))


def import_bundle(path: Path) -> tuple[str, ...]:
    """Put the plugins of a bundle into the cache, if the lock file or the registry knows them.

    Args:
        path: the file that `export_bundle` wrote.

    Returns:
        A line for each archive that is in the cache now.

    Raises:
        ArchiveError: the bundle is malformed, incomplete, or holds unpinned archives.
        DigestMismatchError: an archive is not what its row says.
        CacheError: the cache cannot be written.
        OSError: `path` cannot be read.
    """
    known = known_rows(catalog(installed(), pins()))
    brought = bundle.read(path.absolute(), known, cache(), displays.choose_progress)
    return tuple(map(_summary, brought))


def _newest_rows(platforms: Sequence[str], hosts: Sequence[str]) -> list[Artifact]:
    """Return the newest row of each plugin, and of each named package, for each kind of machine."""
    locked = pins()
    rows = known_rows(catalog(installed(), locked))
    machines = tuple(map(_host, hosts)) or (HostTag.current(),)
    chosen: list[Artifact] = []
    # A lock file may hold several builds of a plugin, each because somebody asked for it.
    everything = dict.fromkeys(row.package for row in rows) if locked else ("",)
    for word in platforms or everything:
        called = rows_called(word, rows) if word else rows
        if not called:
            if locked and rows_called(word, known_rows(registry(installed()))):
                asked = " ".join([*locked.requests, word]) if locked.requests else "--upgrade"
                raise PluginNotFoundError(
                    f"{locked.path} locks nothing called {word!a}, which the registry has",
                    hint=f"`pjrt-hub lock {asked}` locks it too, and PJRT_HUB_LOCK=0 goes without "
                    "a lock",
                )
            words = {name for row in rows for name in (row.plugin, row.platform, row.package)}
            raise PluginNotFoundError(
                f"neither the lock file nor the registry has a row called {word!a}",
                hint=did_you_mean(word, words) or "`pjrt-hub list` shows the plugins",
            )
        chosen += newest_for_each_kind(row for row in called if serves(row, machines))
    if not chosen:
        raise PluginNotFoundError(
            f"nothing of {', '.join(platforms) or 'what is known'} runs on "
            f"{', '.join(map(str, machines))}",
            hint="name the machines with --host, such as linux-x86_64",
        )
    return list(dict.fromkeys(chosen))


def _require_licenses(archives: Sequence[Archive]) -> None:
    """Refuse archives whose licences are known to forbid passing on copies."""
    held = [each for each in archives if _RESTRICTED.search(each.license)]
    if held:
        names = ", ".join(f"{each.package} {each.version} ({each.license})" for each in held)
        raise StoreError(
            f"the bundle would hold what its licence does not let you pass on: {names}",
            hint="name the platforms to export, without it; or read its terms and, if the bundle "
            "stays with whoever accepted them, add --allow-restricted",
        )


def _host(text: str) -> HostTag:
    try:
        return HostTag.parse(text)
    except ValueError as exc:
        raise PjrtHubError(str(exc), hint="such as linux-x86_64 or linux-aarch64") from None


def _summary(row: Archive) -> str:
    to = f" for {row.host}" if isinstance(row, Artifact) else f", for {row.plugin}"
    return f"{row.package} {row.version}{to}, {size_text(row.size)}, {row.license}"
