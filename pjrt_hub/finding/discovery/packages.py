"""Plugins in installed packages: those with a manifest, and those that vendors made for frameworks.

Owns the way from an entry point or a folder of a namespace package to a `pjrt_plugin.toml`, else to
a library, by RECORD, the files' names and what they export; and to the rows of a package for the
registry. No package is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from os.path import isdir, isfile
from pathlib import Path

from pjrt_hub.errors import ManifestError
from pjrt_hub.finding.contract.headers import is_plugin
from pjrt_hub.finding.contract.manifest import FILE_NAME, Manifest, default_manifest, read
from pjrt_hub.finding.discovery import registration
from pjrt_hub.finding.discovery.installed import EntryPoint, Installed
from pjrt_hub.finding.discovery.library import is_library, is_plugin_library, plugin_name
from pjrt_hub.finding.discovery.source import Candidate, Described, Found, Rejection, World
from pjrt_hub.finding.store.catalog import RegistryPackage

#: The source of vendors' libraries that have no manifest.
VENDOR_WHEELS = "vendor_wheels"
#: Plugins with a manifest use the entry points, and the namespace package, of this name.
PACKAGE = "pjrt_plugins"
#: The folders of pjrt-hub's own plugins in that package; other distributions add theirs.
OURS = ("cpu", "cuda", "metal", "rocm", "tpu", "tt", "xpu")
_JAX = "jax_plugins"
NAMESPACES = (_JAX, "xla_plugins", PACKAGE)
#: pjrt-hub's own entry points are no plugins: they register the found plugins in frameworks.
_OURS = "pjrt_hub."


def describe(world: World) -> tuple[list[Described], list[Rejection]]:
    """Gather the manifests, ours first; one file found twice is one manifest."""
    joined: dict[tuple[str, Path | None], Described] = {}
    rejections = [
        Rejection(
            plugin_name(distribution.name),
            str(distribution),
            f"its entry_points.txt cannot be read: {reason}",
            f"install {distribution.name} again; if that does not help, tell its makers",
        )
        for distribution, reason in world.installed.damaged
    ]
    # An entry point tells the distribution of a manifest, so entry points come first.
    for item in (*_registered_manifests(world), *_namespace_manifests(world)):
        if isinstance(item, Rejection):
            rejections.append(item)
            continue
        path = item.manifest.path
        key = (item.manifest.name, path.resolve() if path else None)
        first = joined.setdefault(key, item)
        if first is not item:
            joined[key] = first._replace(origins=(*first.origins, *item.origins))
    described = sorted(joined.values(), key=lambda item: item.distribution != "pjrt-hub")
    return described, rejections


def find_registries(installed: Installed) -> Iterator[RegistryPackage]:
    """Yield the installed packages of registry rows, each with its files of rows."""
    for point in installed.registries:
        folders = (sorted(folder.glob("*.toml")) for folder in _folders(installed, point))
        rows = ([path for path in each if path.name != FILE_NAME] for each in folders)
        files = next(filter(None, rows), [])
        yield RegistryPackage(str(point.distribution), point.module, tuple(files))


def _registered_manifests(world: World) -> Iterator[Described | Rejection]:
    """Yield the manifests of entry points, and a rejection for each that cannot be read."""
    points = world.installed.entry_points
    frameworks = {point.module for point in points if point.group != PACKAGE}
    for point in points:
        if point.group != PACKAGE:
            continue
        path = _manifest_path(world, point)
        if path is None:
            # The package's library may still be recognised, like those of other vendors.
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
        # If the module is also made for JAX, its initialize() registers the plugin with JAX.
        module = "" if point.module in frameworks else point.module
        for manifest in manifests:
            yield Described(
                manifest._replace(module=module),
                "entry_points",
                (str(point),),
                point.distribution.name,
            )


def _manifest_path(world: World, point: EntryPoint) -> Path | None:
    """Return the manifest in the folder of an entry point's module, or None."""
    folders = _folders(world.installed, point)
    return next((path for folder in folders if isfile(path := folder / FILE_NAME)), None)


def _folders(installed: Installed, point: EntryPoint) -> tuple[Path, ...]:
    """Return where an entry point's module may lie, in the order to look there."""
    parts = point.module.split(".")
    if not all(part.isidentifier() for part in parts):
        return ()
    # The distribution's own folder comes first: another one may have a package of this name.
    own = point.distribution.folder.joinpath(*parts)
    return (own, *installed.package_folders(point.module))


def _namespace_manifests(world: World) -> Iterator[Described | Rejection]:
    """Yield the manifests in the namespace package, ours first, then in the order of `sys.path`."""
    packages: dict[str, Path] = {}
    own = world.first_party / PACKAGE
    for package in dict.fromkeys((own, *world.installed.package_folders(PACKAGE))):
        for path in sorted(package.glob(f"*/{FILE_NAME}")):
            origin, folder = str(path), path.parent.name
            # As for `import pjrt_plugins.x`, the first of several folders with one name counts.
            winner = packages.setdefault(folder, path.resolve())
            if winner != path.resolve():
                yield Rejection(folder, origin, f"shadowed by {winner}", shadowed=True)
                continue
            try:
                manifests = read(path)
            except ManifestError as exc:
                yield Rejection(folder, origin, exc.message, exc.hint)
                continue
            ours = package == own and folder in OURS
            owner = None if ours else world.installed.owner(path)
            for manifest in manifests:
                yield Described(
                    manifest._replace(module=f"{PACKAGE}.{folder}"),
                    "namespace",
                    (f"{PACKAGE}.{folder}" if ours else origin,),
                    "pjrt-hub" if ours else owner.name if owner else "",
                )


def find_vendor_libraries(world: World) -> Iterator[Found]:
    """Yield every vendor's library under its own name; `survey` joins it with its manifest."""
    registered = set()
    points = world.installed.entry_points
    manifested = {
        point: point.distribution
        for point in points
        if point.group == PACKAGE and _manifest_path(world, point) is not None
    }
    for point in points:
        if point in manifested or point.module.startswith(_OURS):
            continue
        found = _from_entry_point(world, point)
        if isinstance(found, Candidate):
            registered.add(found.library_path)
            yield found
        elif point.group != PACKAGE and point.distribution not in manifested.values():
            # Otherwise the source `entry_points` has described the package, or rejected it.
            yield found
    for namespace in NAMESPACES:
        for package in world.installed.package_folders(namespace):
            for folder in sorted(filter(isdir, package.glob("*"))):
                libraries = _in_folder(folder, world.host.os)
                described_there = isfile(folder / FILE_NAME)
                if len(libraries) == 1 and libraries[0] not in registered and not described_there:
                    yield Candidate.of_file(
                        default_manifest(plugin_name(folder.name)),
                        VENDOR_WHEELS,
                        f"namespace {namespace}.{folder.name}",
                        libraries[0],
                        world.installed.owner(libraries[0]),
                    )


def add_priority(candidate: Candidate, world: World) -> Manifest:
    """Return a vendor library's default manifest, with the priority that it registers in JAX."""
    here = (each for each in world.installed.entry_points if str(each) in candidate.origins)
    jax = (each for each in here if each.group == _JAX)
    folders = [folder for each in jax for folder in _folders(world.installed, each)]
    if candidate.library_path:
        # A namespace package has no entry point that names its folder.
        folders += candidate.library_path.parents[:2]
    found = (registration.read(each) for each in folders if isfile(each / "__init__.py"))
    told = next((each for each in found if each != registration.Registration()), None)
    return candidate.manifest._replace(priority=told.priority) if told else candidate.manifest


def _from_entry_point(world: World, point: EntryPoint) -> Found:
    libraries, called = _libraries(world, point), plugin_name(point.name)
    if len(libraries) == 1:
        manifest, path = default_manifest(called), libraries[0]
        return Candidate.of_file(manifest, VENDOR_WHEELS, str(point), path, point.distribution)
    if not libraries:
        # Some packages only add operations to a framework; macOS wheels hold no library for Linux.
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
    """Look for libraries in the registered package, where most are, then in its distribution."""
    home = point.distribution.folder
    inside = _in_folder(home.joinpath(*point.module.split(".")), world.host.os)
    if inside:
        return inside
    recorded = sorted(
        home / path
        for path in world.installed.files(point.distribution)
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
    # A library with another name is recognised by its symbol GetPjrtApi.
    return named or list(filter(is_plugin, files))
