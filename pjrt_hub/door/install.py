"""Plugins for every host on a machine: a store beside each folder of manifests.

Owns what a manifest says of a fetched plugin. The store of a level is a cache that nothing prunes:
what is in it belongs to a manifest.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pjrt_hub.door.plugin import library_path
from pjrt_hub.door.process import cache, world
from pjrt_hub.errors import PluginNotFoundError, StoreError
from pjrt_hub.finding.contract import table
from pjrt_hub.finding.contract.manifest import PROBE_KINDS, SCHEMA, Manifest
from pjrt_hub.finding.contract.names import is_name
from pjrt_hub.finding.discovery import manifests, select
from pjrt_hub.finding.discovery.installed import Installed
from pjrt_hub.finding.discovery.library import preloads
from pjrt_hub.finding.discovery.survey import survey_rows
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.level import Level

if TYPE_CHECKING:
    from pjrt_hub.finding.discovery.source import World
    from pjrt_hub.finding.store.catalog import Artifact
    from pjrt_hub.finding.store.transfer.partial import Progress


def install(
    name: str,
    *,
    level: str | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Put a plugin, with what it requires, where every host that reads manifests finds it.

    The plugin comes from the registry, whatever packages are installed, and replaces the one of its
    name at this level.

    Args:
        name: a plugin, a platform or an alias, or "package:plugin".
        level: "env", the virtual or conda environment that is active; "user"; or "system", the
            whole machine. By default the first that there is.
        offline: use no network; what was not fetched before is then an error.
        progress: as for `client`.

    Returns:
        The manifest's path.

    Raises:
        PluginNotFoundError: no row of the registry fits.
        StoreError: the plugin cannot be fetched, or there is no such level here.
    """
    here = world()
    place = _levels(level, here)[0]
    alone = here._replace(installed=Installed([]))  # What is in packages may go with them.
    request = select.Request.read(name, here.env)
    choice = select.choose(survey_rows(here), request, offline=offline)._replace(world=alone)
    library_path(choice, which="all", offline=offline, progress=progress)
    candidate = choice.candidate
    assert candidate.artifact is not None  # Rows alone were surveyed.
    fetched, store = cache(), Cache(place.store)
    for archive in candidate.artifact.archives:
        entry = fetched.lookup(archive)
        if entry is not None:
            store.adopt(entry)
    there = alone._replace(cache=store)
    path = library_path(choice._replace(world=there), which="all", offline=True)
    told = _table_of(candidate.manifest, candidate.artifact, path, there)
    try:
        text = table.write(told).encode()
    except UnicodeEncodeError as exc:
        raise StoreError(
            f"{path} cannot stand in a manifest, which is UTF-8", hint="name another level"
        ) from exc
    target = place.manifests / f"{candidate.name}.toml"
    with disk.cache_errors("cannot write", target):
        place.manifests.mkdir(parents=True, exist_ok=True)
        disk.replace(target, text)
    _prune(place)
    return target


def uninstall(name: str, *, level: str | None = None) -> Path:
    """Remove a plugin that `install` installed, and what it alone required.

    Args:
        name: the plugin.
        level: as for `install`; by default the first level that has it.

    Returns:
        The path of the manifest that is gone.

    Raises:
        PluginNotFoundError: no level has it.
        StoreError: it is not from `install`, or cannot be removed.
    """
    here = world()
    places = _levels(level, here)
    place = next((each for each in places if (each.manifests / f"{name}.toml").exists()), None)
    if place is None or not is_name(name):
        raise PluginNotFoundError(
            f"no {name}.toml is in {', '.join(str(each.manifests) for each in places)}",
            hint="`pjrt-hub list --wide` shows where a plugin is from",
        )
    target = place.manifests / f"{name}.toml"
    if not _libraries(place, target):
        raise StoreError(
            f"{target} does not lead to {place.store}, so `pjrt-hub install` did not write it",
            hint="remove the file yourself",
        )
    with disk.cache_errors("cannot remove", target):
        target.unlink()
    _prune(place)
    return target


def _levels(name: str | None, here: World) -> list[Level]:
    """Return the levels here that have a name; all of them if it is None."""
    there = [each for each in here.levels() if each.store.is_absolute()]
    found = [each for each in there if name in (None, each.name)]
    if not found:
        raise StoreError(
            f"there is no level {name!r} here, only {', '.join(each.name for each in there)}",
            hint="activate an environment, which sets VIRTUAL_ENV or CONDA_PREFIX, or name "
            "another level",
        )
    return found


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
    """Remove what no manifest of the level leads to."""
    used = [path for each in place.manifests.glob("*.toml") for path in _libraries(place, each)]
    store = Cache(place.store)
    roots = [each.root for each in store.entries()]
    keep = {
        root.name for root in roots if any(each.resolve().is_relative_to(root) for each in used)
    }
    store.prune(max_nbytes=0, keep=keep)


def _libraries(place: Level, path: Path) -> list[Path]:
    """Return a manifest's libraries that are in the level's store."""
    libraries = manifests.read_libraries(path)
    return [each for each in libraries if each.is_relative_to(place.store)]
