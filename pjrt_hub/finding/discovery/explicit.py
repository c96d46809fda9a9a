"""A library named by its path."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import isfile
from pathlib import Path

from pjrt_hub.base.frozen import replace
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.discovery import place
from pjrt_hub.finding.discovery.source import Candidate, Described, World
from pjrt_hub.finding.discovery.undescribed import manifest_for

name = "explicit"


def candidate(path: Path, world: World, described: Sequence[Described]) -> Candidate:
    """Return the candidate for a path: an installed package's plugin if it is its library.

    Raises:
        PluginLoadError: there is no such file.
    """
    path = path.absolute()
    if not isfile(path):
        raise PluginLoadError(
            f"{path} is not a file",
            path=path,
            hint="give the path of a plugin's shared library, or a name that `pjrt-hub list` shows",
        )
    real = path.resolve()
    for each in place.find(world, described):
        if (
            isinstance(each, Candidate)
            and each.library_path
            and each.library_path.resolve() == real
        ):
            origins = ("the path given", *each.origins)
            return replace(each, source=name, origins=origins, library_path=path)
    shipped = world.installed.owner(path)
    return Candidate(
        manifest_for("", path, described),
        name,
        ("the path given",),
        shipped.name if shipped else "",
        shipped.version if shipped else "",
        library_path=path,
    )
