"""Registry rows: those that were fetched before, and those that can be fetched.

Owns which row stands for a plugin on this machine. Fetches and verifies nothing: whoever loads one
from the cache asks `Cache.lookup`, which does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from pjrt_hub.errors import ManifestError
from pjrt_hub.finding.contract.manifest import Manifest, default_manifest
from pjrt_hub.finding.contract.names import canonical
from pjrt_hub.finding.discovery.source import Candidate, Described, Found, Rejection, World
from pjrt_hub.finding.store.catalog import Artifact

#: The sources of these candidates.
CACHED = "cached"
CATALOGUED = "catalogued"
#: What the rejection of a whole registry is called.
REGISTRY = "registry"


def find(world: World, described: Sequence[Described]) -> Iterator[Found]:
    """Yield, for each plugin, the newest row here, then the newest that fits, or why none does."""
    try:
        plugins = list(by_plugin(world))
    except ManifestError as exc:
        yield Rejection(REGISTRY, "the registry", exc.message, exc.hint)
        return
    yield from _find_cached(world, described, plugins)
    yield from _reject_unlocked(world, described, {rows[0].plugin for rows in plugins})
    for rows in plugins:
        chosen = next((row for row in rows if not row.runs(world.host)), None)
        row = chosen or rows[0]
        origin = f"the registry, {row.package} {row.version}"
        manifest = manifest_of(row, described)
        if chosen is None:
            yield Rejection(manifest.name, origin, row.runs(world.host), absent=True)
        else:
            yield Candidate(manifest, CATALOGUED, (origin,), row.package, row.version, artifact=row)


def _find_cached(
    world: World, described: Sequence[Described], plugins: Sequence[Sequence[Artifact]]
) -> Iterator[Candidate]:
    """Yield, for each plugin, the newest row that runs here and lies in the cache."""
    if world.cache is None:
        return
    for rows in plugins:
        for row in rows:
            root = world.cache.place(row)
            if root is not None and not row.runs(world.host):
                yield Candidate(
                    manifest_of(row, described),
                    CACHED,
                    (f"the cache, {row.package} {row.version}",),
                    row.package,
                    row.version,
                    library_path=root / row.library,
                    artifact=row,
                )
                break


def row_of(world: World, candidate: Candidate) -> Artifact | None:
    """Return the row of a candidate: its own, or that of the same release where it is installed."""
    path = candidate.library_path
    if candidate.artifact is not None or path is None:
        return candidate.artifact
    try:
        rows = world.catalog.rows() if world.catalog else ()
    except ManifestError:  # which is told of where plugins are listed
        return None
    for row in rows:
        is_same = (canonical(row.package), row.version) == (
            candidate.distribution,
            candidate.version,
        )
        parts = PurePosixPath(row.library).parts
        if is_same and path.parts[-len(parts) :] == parts and not row.runs(world.host):
            return row
    return None


def _reject_unlocked(
    world: World, described: Sequence[Described], locked: set[str]
) -> Iterator[Rejection]:
    """Reject what could be fetched only if the lock file listed it, or the user named the file.

    Args:
        world: with its lock file.
        described: the manifests.
        locked: the plugins that the file and the registry have in common.
    """
    if world.pins is None:
        return
    beyond = {row.plugin: row for row in world.pins.rows if row.plugin not in locked}
    for row in beyond.values():
        reason = (
            f"the registry does not pin what {world.pins.path} has of it, {row.package} "
            f"{row.version}, and a lock file that was found adds nothing"
        )
        hint = f"if you trust who wrote that file, name it: PJRT_HUB_LOCK={world.pins.path}"
        yield Rejection(row.plugin, "the lock file", reason, hint, absent=True)
    locked = locked | beyond.keys()
    for manifest in (each.manifest for each in described):
        if manifest.registry and not locked & set(manifest.registry):
            reason = f"the lock file {world.pins.path} does not hold it"
            hint = f"add it with `pjrt-hub lock {' '.join((*world.pins.requests, manifest.name))}`"
            yield Rejection(manifest.name, "the registry", reason, hint, absent=True)


def by_plugin(world: World) -> Iterator[list[Artifact]]:
    """Yield the rows of each plugin, sorted by plugin, the newest build first.

    That is the one of the newest PJRT API, whose package's version says nothing beside another's.
    """
    grouped: dict[str, list[Artifact]] = {}
    for row in world.catalog.rows() if world.catalog else ():
        grouped.setdefault(row.plugin, []).append(row)
    for _, rows in sorted(grouped.items()):
        yield sorted(rows, key=_newness, reverse=True)


def _newness(row: Artifact) -> tuple[object, ...]:
    api = row.api_version
    return (api.major, api.minor) if api else (0, 0), _release(row.version), str(row.host)


def manifest_of(row: Artifact, described: Sequence[Described]) -> Manifest:
    """Return the first manifest with the row's plugin in `registry`, ours before others'."""
    for each in described:
        if row.plugin in each.manifest.registry:
            return each.manifest
    return default_manifest(row.plugin, row.platform)


def _release(version: str) -> tuple[int, ...]:
    # Rows are final releases, so numbers are enough; importing packaging takes 13 ms.
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
