"""What a plugin requires at run time, where it is installed.

Owns which installed distribution serves for a pinned requirement. The others come from the cache.
"""

from __future__ import annotations

from os.path import isfile
from pathlib import Path, PurePosixPath

from pjrt_hub.finding.contract.names import canonical
from pjrt_hub.finding.discovery.source import World
from pjrt_hub.finding.store.catalog import Requirement


def find_installed(world: World, requirement: Requirement) -> dict[str, Path]:
    """Return the files of the installed distribution that serves for a requirement.

    They are those that lie where the pinned ones do, because another version has files of other
    names.

    Returns:
        Each by its path below the distribution's folder; nothing if none is installed, if its
        version is another than the plugin takes, or if it is incomplete.
    """
    found = world.installed.get(canonical(requirement.package))
    if found is None or not _admits(requirement.specifier, found.version):
        return {}
    folders = {PurePosixPath(member.path).parent for member in requirement.members}
    files = {
        path: found.folder / path
        for path in world.installed.files(found)
        if PurePosixPath(path).parent in folders
    }
    is_whole = {PurePosixPath(path).parent for path in files} == folders
    return files if is_whole and all(map(isfile, files.values())) else {}


def _admits(specifier: str, version: str) -> bool:
    if not specifier:
        return True
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidVersion:  # nothing is known of it
        return False
