"""Plugin packages without a manifest, such as vendors make for JAX or torch_xla.

Owns the way from their entry points and namespaces to a library, by RECORD, the files' names and
what they export; vendor code is never imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os.path import isdir, isfile
from pathlib import Path

from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract.headers import inspect
from pjrt_hub.finding.contract.manifest import FILE_NAME, undescribed
from pjrt_hub.finding.discovery.entry_points import GROUP, manifest_path
from pjrt_hub.finding.discovery.installed import EntryPoint
from pjrt_hub.finding.discovery.source import Candidate, Described, Found, Rejection, World
from pjrt_hub.finding.discovery.undescribed import is_library, is_plugin_library, plugin_name

name = "vendor_wheels"
NAMESPACES = ("jax_plugins", "xla_plugins", "pjrt_plugins")
#: pjrt-hub's own entry points register in frameworks what it finds: they are no plugins.
_OURS = "pjrt_hub."


def find(world: World, described: Sequence[Described]) -> Iterator[Found]:
    """Yield every vendor's library under its own name; `select` joins it with its manifest."""
    del described
    registered = set()
    points = world.installed.entry_points
    manifested = {
        point: point.distribution
        for point in points
        if point.group == GROUP and manifest_path(world, point) is not None
    }
    for point in points:
        if point in manifested or point.module.startswith(_OURS):
            continue
        found = _registered(world, point)
        if isinstance(found, Candidate):
            registered.add(found.library_path)
            yield found
        elif point.group != GROUP and point.distribution not in manifested.values():
            yield found  # else `entry_points` has said what it describes, or that it does not
    for namespace in NAMESPACES:
        for package in world.installed.package_folders(namespace):
            for folder in sorted(filter(isdir, package.glob("*"))):
                libraries = _in_folder(folder, world.host.os)
                described_there = isfile(folder / FILE_NAME)
                if len(libraries) == 1 and libraries[0] not in registered and not described_there:
                    shipped = world.installed.owner(libraries[0])
                    yield Candidate(
                        undescribed(plugin_name(folder.name)),
                        name,
                        (f"namespace {namespace}.{folder.name}",),
                        shipped.name if shipped else "",
                        shipped.version if shipped else "",
                        library_path=libraries[0],
                    )


def _registered(world: World, point: EntryPoint) -> Found:
    libraries = _libraries(world, point)
    if len(libraries) == 1:
        return Candidate(
            undescribed(plugin_name(point.name)),
            name,
            (str(point),),
            point.distribution.name,
            point.distribution.version,
            library_path=libraries[0],
        )
    called = plugin_name(point.name)
    if not libraries:
        # Some only add operations to a framework; macOS wheels hold no library for Linux.
        reason = f"{point.distribution} holds no PJRT library for {world.host.os}"
        return Rejection(called, str(point), reason)
    names = ", ".join(path.name for path in libraries)
    return Rejection(
        called,
        str(point),
        f"{point.distribution} holds several PJRT libraries: {names}",
        f"name one: PJRT_HUB_PLUGIN_PATH={called}={libraries[0]}",
    )


def _libraries(world: World, point: EntryPoint) -> list[Path]:
    """Look in the registered package, where most keep it, then in all that came with it."""
    home = point.distribution.folder
    inside = _in_folder(home.joinpath(*point.module.split(".")), world.host.os)
    if inside:
        return inside
    recorded = sorted(
        home / path
        for path in point.distribution.files()
        if is_plugin_library(path, world.host.os) and isfile(home / path)
    )
    if recorded:
        return recorded
    # An editable install records only its own link.
    for folder in world.installed.package_folders(point.module):
        found = _in_folder(folder, world.host.os)
        if found:
            return found
    return []


def _in_folder(folder: Path, os: str) -> list[Path]:
    files = sorted(
        path
        for pattern in ("*", "lib/*")
        for path in folder.glob(pattern)
        if is_library(path.name, os) and isfile(path)
    )
    named = [path for path in files if is_plugin_library(path.name, os)]
    # Of libraries with names of their own, the entry point tells.
    return named or [path for path in files if _is_plugin(path)]


def _is_plugin(path: Path) -> bool:
    try:
        return inspect(path).exported
    except PluginLoadError:
        return False
