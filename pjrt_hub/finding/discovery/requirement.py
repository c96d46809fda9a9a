"""The packages that a plugin requires at run time, and where they are installed.

Owns which installed distribution serves for a pinned requirement, and which versions an installed
plugin takes. Packages that are not installed come from the cache.
"""

from __future__ import annotations

from os.path import isfile
from pathlib import Path, PurePosixPath

from pjrt_hub.finding.contract.names import canonical
from pjrt_hub.finding.discovery.source import World
from pjrt_hub.finding.store.catalog import Requirement

#: A file's name may omit the end of a version: libcudnn.so.9.12.0 belongs to 9.12.0.46.
_REST = "99999"


def find_required(
    world: World, plugin: str, distribution: str, version: str
) -> tuple[Requirement, ...]:
    """Return what a plugin requires, with the versions that it takes as far as they are known."""
    rows = [
        row
        for row in world.catalog.rows()
        if row.plugin == plugin and row.requires and not row.runs(world.host)
    ]
    # Builds of other packages may require something else.
    rows = [row for row in rows if canonical(row.package) == canonical(distribution)] or rows
    for row in rows:
        if (canonical(row.package), row.version) == (canonical(distribution), version):
            return row.requires
    if not rows:
        return ()
    # All releases of a plugin require the same packages, but different versions of them.
    bounds = _bounds(world, distribution, version)
    return tuple(
        each._replace(specifier=bounds.get(canonical(each.package), ""))
        for each in rows[0].requires
    )


def _bounds(world: World, distribution: str, version: str) -> dict[str, str]:
    """Return the specifiers in the vendor's package around a plugin, if that is installed."""
    around = world.installed.get(f"{distribution.removesuffix('-pjrt')}-plugin")
    if around is None or around.version != version:
        return {}
    return {canonical(each.name): str(each.specifier) for each in around.requires()}


def find_installed(world: World, requirement: Requirement) -> dict[str, Path]:
    """Return the files of the installed distribution that serves for a requirement, by their paths.

    They are its files in the pinned files' folders, because another version has files of other
    names. There are none if the distribution is incomplete, or the plugin refuses its version.
    """
    found = world.installed.get(canonical(requirement.package))
    if found is None or not admits(requirement.specifier, found.version):
        return {}
    folders = {PurePosixPath(member.path).parent for member in requirement.members}
    files = {
        path: found.folder / path
        for path in world.installed.files(found)
        if PurePosixPath(path).parent in folders
    }
    is_whole = {PurePosixPath(path).parent for path in files} == folders
    return files if is_whole and all(map(isfile, files.values())) else {}


def admits(specifier: str, version: str, *, is_whole: bool = True) -> bool:
    """Check whether a specifier such as ">=9.12,<10" allows a version; an empty one allows any.

    If `is_whole` is False, the version may lack its end, as one in a file's name does.
    """
    if not is_whole and admits(specifier, f"{version}.{_REST}"):
        return True
    if not specifier:
        return True
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidVersion:  # Nothing is known about an invalid version.
        return False
