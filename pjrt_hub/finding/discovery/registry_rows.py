"""Registry rows: those that were fetched before, and those that can be fetched.

Owns which row stands for a plugin on this machine. Fetches and verifies nothing: a plugin from the
cache is loaded through `Cache.lookup`, which verifies it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import ManifestError
from pjrt_hub.finding.contract.manifest import Manifest, default_manifest
from pjrt_hub.finding.contract.names import canonical
from pjrt_hub.finding.discovery.source import Candidate, Described, Found, Rejection, World
from pjrt_hub.finding.store.catalog import Artifact, newest_builds, release

#: The sources of candidates from the cache and from the registry.
CACHED = "cached"
CATALOGUED = "catalogued"
#: The name of the rejection of a registry, or of its rows.
REGISTRY = "registry"


def find(world: World, described: Sequence[Described]) -> Iterator[Found]:
    """Yield each plugin's builds, in the cache and to be fetched, or why there is none."""
    try:
        plugins = list(_by_plugin(world))
    except ManifestError as exc:
        yield Rejection(REGISTRY, "the registry", exc.message, exc.hint)
        return
    for flaw in world.catalog.flaws:
        yield Rejection(REGISTRY, flaw.origin, flaw.reason, flaw.hint)
    yield from _reject_unlocked(world, described, {rows[0].plugin for rows in plugins})
    for rows in plugins:
        manifest = manifest_of(rows[0], described)
        fitting = [row for row in rows if not row.runs(world.host)]
        for row, root in _cached(world, fitting):
            place = (f"the cache, {row.package} {row.version}",)
            yield Candidate(
                *(manifest, CACHED, place, row.package, row.version),
                library_path=root / row.library,
                artifact=row,
            )
        for row in newest_builds(fitting):
            yield Candidate(
                *(manifest, CATALOGUED, (_origin(world, row),), row.package, row.version),
                artifact=row,
            )
        if not fitting:
            row = newest_builds(rows)[0]
            yield Rejection(manifest.name, _origin(world, row), row.runs(world.host), absent=True)


def _origin(world: World, row: Artifact) -> str:
    return f"{world.catalog.owner(row)}, {row.package} {row.version}"


def _cached(world: World, rows: Sequence[Artifact]) -> Iterator[tuple[Artifact, Path]]:
    """Yield the newest row of each package that lies in the cache, and where."""
    if world.cache is None:
        return
    places = [(row, world.cache.place(row)) for row in rows]
    here = {row: root for row, root in places if root is not None}
    for row in newest_builds(here):
        yield row, here[row]


def known_api(world: World, candidate: Candidate) -> ApiVersion | None:
    """Return the API version of an installed build, as far as the registry's rows tell.

    A release without a row has at least the API of the newest older release with one.
    """
    if candidate.artifact is not None:
        return candidate.artifact.api_version
    older = [
        row
        for row in _sound_rows(world)
        if canonical(row.package) == candidate.distribution
        and not row.runs(world.host)
        and release(row.version) <= release(candidate.version)
    ]
    return newest_builds(older)[0].api_version if older else None


def row_of(world: World, candidate: Candidate) -> Artifact | None:
    """Return the row of a candidate: its own, or that of the same release if it is installed."""
    path = candidate.library_path
    if candidate.artifact is not None or path is None:
        return candidate.artifact
    shipped = candidate.distribution, candidate.version
    for row in _sound_rows(world):
        is_same = (canonical(row.package), row.version) == shipped
        parts = PurePosixPath(row.library).parts
        if is_same and path.parts[-len(parts) :] == parts and not row.runs(world.host):
            return row
    return None


def _sound_rows(world: World) -> tuple[Artifact, ...]:
    """Return the registry's rows; none if it is malformed, which the list of plugins reports."""
    try:
        return world.catalog.rows()
    except ManifestError:
        return ()


def _reject_unlocked(
    world: World, described: Sequence[Described], locked: set[str]
) -> Iterator[Rejection]:
    """Reject plugins that the lock file lacks, or that it alone lists if the user did not name it.

    `locked` are the plugins that the file and the registry have in common.
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


def _by_plugin(world: World) -> Iterator[list[Artifact]]:
    """Yield the rows of each plugin, sorted by plugin."""
    grouped: dict[str, list[Artifact]] = {}
    for row in world.catalog.rows():
        grouped.setdefault(row.plugin, []).append(row)
    for _, rows in sorted(grouped.items()):
        yield rows


def manifest_of(row: Artifact, described: Sequence[Described]) -> Manifest:
    """Return the first manifest with the row's plugin in `registry`, ours before others'."""
    for each in described:
        if row.plugin in each.manifest.registry:
            return each.manifest
    return default_manifest(row.plugin, row.platform)
