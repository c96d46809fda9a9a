"""A library that the caller names by its path (layer 3)."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import isfile
from pathlib import Path

from pjrt_hub.discovery.source import Candidate, Described
from pjrt_hub.discovery.undescribed import manifest_for
from pjrt_hub.errors import PluginLoadError

name = "explicit"


def candidate(path: Path, described: Sequence[Described]) -> Candidate:
    """Gives the candidate for a path.

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
    return Candidate(
        manifest_for("", path.name, described), name, ("the path given",), library_path=path
    )
