"""Plugins for every host on a machine: a store beside each folder of manifests.

Owns what a manifest says of a fetched plugin. The store of a level is a cache that nothing prunes:
what is in it belongs to a manifest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pjrt_hub.base import log
from pjrt_hub.door.plugin import library_path
from pjrt_hub.door.process import cache, world
from pjrt_hub.errors import (
    CacheError,
    ManifestError,
    OfflineError,
    PluginNotFoundError,
    StoreError,
)
from pjrt_hub.finding.contract import table
from pjrt_hub.finding.contract.manifest import (
    PROBE_KINDS,
    SCHEMA,
    Manifest,
    parse_standalone,
    read_standalone,
)
from pjrt_hub.finding.contract.names import is_name
from pjrt_hub.finding.discovery import manifests, select
from pjrt_hub.finding.discovery.installed import Installed
from pjrt_hub.finding.discovery.library import preloads
from pjrt_hub.finding.discovery.survey import survey_rows
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.level import Level
from pjrt_hub.finding.store.lock import Wait, acquire

if TYPE_CHECKING:
    from pjrt_hub.finding.discovery.source import World
    from pjrt_hub.finding.store.catalog import Artifact
    from pjrt_hub.finding.store.transfer.partial import Progress

#: Seconds for which another process may copy what it installs.
_PATIENCE_SECONDS = 600
_OTHER_LEVEL = "mend that, or name another level by `--level`"


def install(
    name: str, *, level: str | None = None, offline: bool = False, progress: Progress | None = None
) -> Path:
    """Put a plugin, with what it requires, where every host that reads manifests finds it.

    The plugin comes from the registry, whatever packages are installed, and replaces the one of its
    name at this level.

    Args:
        name: a plugin, a platform or an alias, or "package:plugin".
        level: "env", the virtual or conda environment that is active; "user"; or "system", the
            whole machine. By default the environment, else the user's.
        offline: use no network; what was not fetched before is then an error.
        progress: as for `client`.

    Returns:
        The manifest's path.

    Raises:
        PluginNotFoundError: no row of the registry fits.
        StoreError: the plugin cannot be fetched, there is no such level here, or its folders
            cannot be written.
        ManifestError: others can write to the folder of manifests, so that no reader uses it.
    """
    if not name:
        raise PluginNotFoundError("no plugin is named ''", hint="`pjrt-hub search` lists them")
    here = world()
    place = _levels((level,) if level else ("env", "user"), here)[0]
    alone = here._replace(installed=Installed([]))  # What is in packages may go with them.
    request = select.Request.read(name, here.env)
    choice = select.choose(survey_rows(here), request, offline=offline)._replace(world=alone)
    try:
        library_path(choice, which="all", offline=offline, progress=progress)
    except OfflineError as exc:
        exc.hint = (
            f"run `pjrt-hub install {name}` while there is a network, or bring it in a bundle "
            "(docs/airgapped.md)"
        )
        raise
    candidate = choice.candidate
    assert candidate.artifact is not None  # Rows alone were surveyed.
    target = place.manifests / f"{candidate.name}.toml"
    with _changing(place):
        fetched, store = cache(), Cache(place.store)
        for archive in candidate.artifact.archives:
            entry = fetched.lookup(archive)
            if entry is not None:
                store.adopt(entry)
        there = alone._replace(cache=store)
        path = library_path(choice._replace(world=there), which="all", offline=True)
        told = _table_of(candidate.manifest, candidate.artifact, path, there)
        text = table.write(told).encode("utf-8", "surrogateescape")
        try:
            parse_standalone(text, target)
        except ManifestError as exc:
            raise StoreError(f"no reader would take {exc.message}", hint=_OTHER_LEVEL) from exc
        disk.replace(target, text, mode=0o644)
    return target


def uninstall(name: str, *, level: str | None = None) -> Path:
    """Remove a plugin that `install` installed, and what it alone required.

    Args:
        name: the plugin, or an alias of it.
        level: as for `install`; by default the first level that has it.

    Returns:
        The path of the manifest that is gone.

    Raises:
        PluginNotFoundError: no level has it.
        StoreError: it is not from `install`, or cannot be removed.
        ManifestError: its manifest is malformed.
    """
    here = world()
    places = _levels((level,) if level else ("env", "user", "system"), here)
    found = ((each, path) for each in places if (path := _find(name, each.manifests)))
    place, target = next(found, (None, None))
    if place is None or target is None:
        raise PluginNotFoundError(
            f"no {name}.toml is in {', '.join(str(each.manifests) for each in places)}",
            hint="`pjrt-hub list --wide` shows where a plugin is from",
        )
    if not _libraries(place, target):
        raise StoreError(
            f"{target} does not lead to {place.store}, so `pjrt-hub install` did not write it",
            hint="remove the file yourself",
        )
    with _changing(place):
        target.unlink(missing_ok=True)
    return target


def _levels(names: Collection[str], here: World) -> list[Level]:
    """Return the levels here that have one of the names, with the place where each store is."""
    there = [each for each in here.levels() if each.store.is_absolute()]
    there = [each for each in there if each.manifests.is_absolute()]
    found = [each._replace(store=each.store.resolve()) for each in there if each.name in names]
    if not found:
        raise StoreError(
            f"there is no level {' or '.join(map(repr, names))} here, "
            f"only {', '.join(each.name for each in there)}",
            hint="activate an environment, which sets VIRTUAL_ENV or CONDA_PREFIX, set HOME, or "
            "name another level; variables of folders hold absolute paths",
        )
    return found


def _find(name: str, folder: Path) -> Path | None:
    """Return the manifest of a plugin, or of one that has the name as an alias."""
    own = folder / f"{name}.toml"
    if is_name(name) and own.exists():
        return own
    for path in sorted(folder.glob("*.toml")):
        with suppress(ManifestError):
            if name in read_standalone(path).aliases:
                return path
    return None


@contextmanager
def _changing(place: Level) -> Iterator[None]:
    """Change a level, as the only process; remove afterwards what no manifest leads to."""
    try:
        # Everybody may read a level, whose users may be others than who installs.
        for folder in (place.manifests, place.store):
            with disk.cache_errors("cannot make", folder):
                disk.make(Path(folder.anchor), folder)
        manifests.require_trust(place.manifests, f"{place.manifests}: ")
        wait = Wait(_PATIENCE_SECONDS, doing="is installing or removing a plugin")
        with acquire(place.store / "lock", wait):
            try:
                with disk.cache_errors("cannot write to", place.manifests):
                    yield
            finally:
                _prune(place)
    except CacheError as exc:  # Its hint speaks of the cache.
        exc.hint = _OTHER_LEVEL
        raise


def _table_of(manifest: Manifest, row: Artifact, path: Path, here: World) -> dict[str, Any]:
    """Return what the plugin's own manifest says, with absolute places, as a table."""
    beside = preloads(here, manifest, path).paths
    member = next(each for each in row.members if each.path == row.library)
    told = {
        "schema": SCHEMA,
        "name": manifest.name,
        "platform": manifest.platform,
        "description": manifest.description,
        "aliases": list(manifest.aliases),
        "priority": manifest.priority,
        "library": [{"path": str(path), "target": str(row.host), "sha256": member.sha256}],
        "preload": [{"folder": str(each.parent), "libraries": [each.name]} for each in beside],
        "api": {"minimum": str(row.api_version), "maximum": str(row.api_version)}
        if row.api_version
        else {},
        "probe": manifest.probe.as_table() if manifest.probe.kind in PROBE_KINDS else {},
        "environment": {
            each.name: each.value
            if each.when == "always"
            else {"value": each.value, "when": each.when}
            for each in manifest.environment
        },
        "options": {each.name: each.as_table() for each in manifest.options},
    }
    return {key: each for key, each in told.items() if each not in ("", [], {})}


def _prune(place: Level) -> None:
    """Remove what no manifest of the level leads to; nothing if one of them cannot be read."""
    try:
        used = [path for each in place.manifests.glob("*.toml") for path in _libraries(place, each)]
    except ManifestError as exc:
        log.warn("pjrt_hub.store", "nothing in %s is removed: %s", place.store, exc.message)
        return
    store = Cache(place.store)
    roots = [each.root for each in store.entries()]
    keep = {
        root.name for root in roots if any(each.resolve().is_relative_to(root) for each in used)
    }
    store.prune(max_nbytes=0, keep=keep)


def _libraries(place: Level, path: Path) -> list[Path]:
    """Return a manifest's libraries that are in the level's store."""
    libraries = manifests.read_libraries(path)
    return [each for each in libraries if each.resolve().is_relative_to(place.store)]
