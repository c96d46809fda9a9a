"""Plugins that register in the entry-point group `pjrt_plugins` (layer 3).

Owns the way from an entry point to the `pjrt_plugin.toml` in its module's folder; the module itself
is never imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pjrt_hub.contract.manifest import FILE_NAME, read
from pjrt_hub.discovery.installed import EntryPoint
from pjrt_hub.discovery.source import Described, Rejection, World
from pjrt_hub.errors import ManifestError

name = "entry_points"
GROUP = "pjrt_plugins"


def describe(world: World) -> Iterator[Described | Rejection]:
    """Yields the manifests of the group, and a rejection for each that cannot be read."""
    for point in world.installed.entry_points:
        if point.group != GROUP:
            continue
        path = _manifest_path(world, point)
        if path is None:
            yield Rejection(
                point.name,
                str(point),
                f"the package {point.module} has no {FILE_NAME}",
                f"put {FILE_NAME} into the folder of {point.module}; the package is not imported",
            )
            continue
        try:
            manifests = read(path)
        except ManifestError as exc:
            yield Rejection(point.name, str(point), exc.message, exc.hint)
            continue
        for manifest in manifests:
            yield Described(manifest, name, (str(point),), point.distribution.name)


def _manifest_path(world: World, point: EntryPoint) -> Path | None:
    parts = point.module.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    # The distribution's own folder first: another one may bring a package of the same name.
    own = point.distribution.folder.joinpath(*parts)
    folders = (own, *world.installed.package_folders(point.module))
    return next((path for folder in folders if (path := folder / FILE_NAME).is_file()), None)
