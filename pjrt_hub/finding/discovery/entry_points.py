"""Plugins that register in the entry-point group `pjrt_plugins`.

Owns the way from an entry point to the `pjrt_plugin.toml` in its module's folder; the module itself
is never imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from os.path import isfile
from pathlib import Path

from pjrt_hub.base.frozen import replace
from pjrt_hub.errors import ManifestError
from pjrt_hub.finding.contract.manifest import FILE_NAME, read
from pjrt_hub.finding.discovery.installed import EntryPoint
from pjrt_hub.finding.discovery.source import Described, Rejection, World
from pjrt_hub.finding.discovery.undescribed import plugin_name

name = "entry_points"
GROUP = "pjrt_plugins"


def describe(world: World) -> Iterator[Described | Rejection]:
    """Yield the manifests of the group, and a rejection for each that cannot be read."""
    points = world.installed.entry_points
    frameworks = {point.module for point in points if point.group != GROUP}
    for point in points:
        if point.group != GROUP:
            continue
        path = manifest_path(world, point)
        if path is None:
            # Its library may still be recognised as those of other vendors are.
            yield Rejection(
                plugin_name(point.name),
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
        # The initialize() of a module that is made for JAX too registers the plugin with JAX.
        module = "" if point.module in frameworks else point.module
        for manifest in manifests:
            yield Described(
                replace(manifest, module=module), name, (str(point),), point.distribution.name
            )


def manifest_path(world: World, point: EntryPoint) -> Path | None:
    """Return the manifest in the folder of an entry point's module, or None."""
    parts = point.module.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    # The distribution's own folder first: another one may bring a package of the same name.
    own = point.distribution.folder.joinpath(*parts)
    folders = (own, *world.installed.package_folders(point.module))
    return next((path for folder in folders if isfile(path := folder / FILE_NAME)), None)
