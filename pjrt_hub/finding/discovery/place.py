"""The search for a described plugin's library.

Owns the walk over a manifest's `[[library]]` and `[[preload]]` places; must not load what it finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os.path import isfile
from pathlib import Path

from pjrt_hub.base.frozen import frozen
from pjrt_hub.finding.contract.manifest import Library, Manifest
from pjrt_hub.finding.discovery.installed import Distribution
from pjrt_hub.finding.discovery.source import Candidate, Described, Found, Rejection, World


@frozen
class Preloads:
    """The libraries to load before a plugin.

    Attributes:
        paths: the libraries found, in the manifest's order.
        missing: the names of those not found; the plugin may find them elsewhere, or do without.
    """

    paths: tuple[Path, ...]
    missing: tuple[str, ...]


def preloads(world: World, manifest: Manifest) -> Preloads:
    """Find the libraries that a manifest wants loaded before the plugin."""
    paths, missing = [], []
    for item in manifest.preloads:
        folders = [folder / item.folder for folder in world.installed.package_folders(item.module)]
        for name in item.libraries:
            found = next((folder / name for folder in folders if isfile(folder / name)), None)
            if found is None:
                missing.append(name)
            else:
                paths.append(found)
    return Preloads(tuple(paths), tuple(missing))


def find(world: World, described: Sequence[Described]) -> Iterator[Found]:
    """Yield a candidate for each described plugin whose library is installed, else a rejection."""
    for each in described:
        yield from _find(world, each)


def _find(world: World, each: Described) -> Iterator[Found]:
    tried = []
    for library in each.manifest.libraries:
        distribution, paths, reason = _look(world, each.manifest, library)
        if paths:
            # Several matches are one build under several names; the last is the newest by name.
            # A library beside its manifest came with it; one that a variable names did not.
            own = None if library.variable else world.installed.get(each.distribution)
            shipped = distribution or own
            yield Candidate(
                each.manifest,
                each.source,
                each.origins,
                shipped.name if shipped else each.distribution,
                shipped.version if shipped else "",
                each.distribution,
                paths[-1],
            )
            return
        if library.variable and reason:
            yield Rejection(each.manifest.name, f"${library.variable}", reason)
        elif reason:
            tried.append(reason)
    yield Rejection(
        each.manifest.name,
        "; ".join(each.origins),
        "; ".join(tried) or "the manifest names no installed library",
        absent=True,
    )


def _look(
    world: World, manifest: Manifest, library: Library
) -> tuple[Distribution | None, list[Path], str]:
    if library.variable:
        named = world.env.get(library.variable, "")
        if not named:
            return None, [], ""
        path = Path(named)
        if not path.is_absolute() or not isfile(path):
            return None, [], f"{library.variable} is set to {named}, which is not a file"
        return None, [path], ""
    if library.distribution:
        distribution = world.installed.get(library.distribution)
        if distribution is None:
            return None, [], f"the distribution {library.distribution} is not installed"
        found = _matches([distribution.folder], library.path)
        return distribution, found, f"{distribution} is installed without {library.path}"
    if library.module:
        folders = list(world.installed.package_folders(library.module))
        if not folders:
            return None, [], f"the package {library.module} is not installed"
        found = _matches(folders, library.path)
        return None, found, f"{library.path} is not in {', '.join(map(str, folders))}"
    folder = manifest.path.parent if manifest.path else Path("/nonexistent")
    return None, _matches([folder], library.path), f"{library.path} is not in {folder}"


def _matches(folders: Iterable[Path], pattern: str) -> list[Path]:
    for folder in folders:
        if not any(char in pattern for char in "*?["):
            found = [folder / pattern]
        else:
            found = sorted(folder.glob(pattern))
        files = [path for path in found if isfile(path)]
        if files:
            return files
    return []
