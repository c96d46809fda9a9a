"""A plugin's library, found where its manifest says, or recognised by the name of its file.

Owns the walk over `[[library]]` and `[[preload]]` places, the patterns of vendors' file names, and
the plugin's name and builder that follow from them. Must not load what it finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from os.path import isfile
from pathlib import Path, PurePath
from typing import NamedTuple

from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract.headers import inspect
from pjrt_hub.finding.contract.manifest import Library, Manifest, default_manifest
from pjrt_hub.finding.contract.names import is_name
from pjrt_hub.finding.discovery.installed import Distribution
from pjrt_hub.finding.discovery.source import Candidate, Described, Found, Rejection, World

_SUFFIXES = {"linux": (".so",), "macos": (".dylib", ".so"), "windows": (".dll",)}
# This matches xla_cuda_plugin.so, pjrt_plugin_xpu.so, xla_cpu_pjrt.so, libpjrt_cpu.so, libtpu.so.
_PLUGIN = re.compile(r"pjrt|^xla_\w+_plugin|^libtpu$")
#: Plugins that are built from XLA's source have these names.
_XLA = re.compile(r"pjrt_c_api_(cpu|gpu|tpu)_plugin$")
_AFFIXES = re.compile(
    r"^(?:lib)?(?:pjrt_plugin_|pjrt_c_api_|pjrt_(?!plugin$)|xla_)?(\w+?)"
    r"(?:_pjrt_plugin|_plugin|_?pjrt)?$"
)


class Preloads(NamedTuple):
    """The libraries to load before a plugin."""

    paths: tuple[Path, ...]  # The files, in the manifest's order.
    missing: tuple[str, ...]  # Names not found; the plugin may find them or do without them.


def preloads(world: World, manifest: Manifest, library_path: Path) -> Preloads:
    """Find the libraries to load before a plugin; those laid out beside it come first."""
    paths, missing = [], []
    home = _home(library_path, manifest)
    for item in manifest.preloads:
        bases = [manifest.path.parent] if manifest.path else []
        if item.module:
            bases = [home.joinpath(*item.module.split("."))] if home else []
            bases += world.installed.package_folders(item.module)
        folders = [folder / item.folder for folder in bases]
        for name in item.libraries:
            found = next((folder / name for folder in folders if isfile(folder / name)), None)
            if found is None:
                missing.append(name)
            else:
                paths.append(found)
    return Preloads(tuple(paths), tuple(missing))


def _home(library_path: Path, manifest: Manifest) -> Path | None:
    """Return the folder into which an installer put a library and what it requires, if one did."""
    for path in (PurePath(each.path) for each in manifest.libraries):
        if path.parts == library_path.parts[-len(path.parts) :] and not path.is_absolute():
            return library_path.parents[len(path.parts) - 1]
    return None


def find_described(world: World, described: Sequence[Described]) -> Iterator[Found]:
    """Yield a candidate for each described plugin whose library is installed, else a rejection."""
    for each in described:
        yield from _find(world, each)


def _find(world: World, each: Described) -> Iterator[Found]:
    """Yield each build that is installed, in the manifest's order, else why there is none."""
    tried, found = [], []
    for library in each.manifest.libraries:
        distribution, paths, reason = _look(world, each.manifest, library)
        if library.variable and reason:
            yield Rejection(each.manifest.name, f"${library.variable}", reason)
        elif reason:
            tried.append(reason)
        if not paths:
            continue
        # Several matches are one build under several names; the last is the newest by name.
        # A library beside its manifest is from the same package; one that a variable names is not.
        own = None if library.variable else world.installed.get(each.distribution)
        found.append((distribution or own, paths[-1]))
        if library.variable:  # The user sets the variable to replace what is installed.
            break
    for shipped, path in found:
        yield Candidate(
            each.manifest,
            each.source,
            # Several builds are told apart by their origins.
            tuple(f"{origin}, {shipped}" for origin in each.origins)
            if shipped and len(found) > 1
            else each.origins,
            shipped.name if shipped else each.distribution,
            shipped.version if shipped else "",
            each.distribution,
            path,
        )
    if not found:
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


def is_library(file_name: str, os: str) -> bool:
    """Check whether a file's name is that of a shared library on `os`."""
    return PurePath(file_name).suffix in _SUFFIXES.get(os, ())


def is_plugin_library(file_name: str, os: str) -> bool:
    """Check whether a file's name is a PJRT plugin's on `os` ("linux", "macos", "windows")."""
    return is_library(file_name, os) and _PLUGIN.search(PurePath(file_name).stem) is not None


def plugin_name(text: str) -> str:
    """Derive a plugin's name from a file's stem or an entry point: "xla_cuda13" -> "cuda13"."""
    plain = re.sub(r"[^a-z0-9_]+", "_", text.lower())
    match = _AFFIXES.match(plain)
    name = (match[1] if match else plain)[:32].strip("_")
    return name if is_name(name) else "unnamed"


def manifest_for(name: str, path: Path, described: Sequence[Described]) -> Manifest:
    """Return the manifest for a library that the user named by its path.

    With a `name`, it is that plugin's manifest. Else it is that of the only plugin whose library
    has this file name, or whose packages are on the run path (both CUDA plugins have the same file
    name); else a default one, with the platform, hardware and targets that the similar ones share.
    """
    manifests = [each.manifest for each in described]
    if name:
        named = [each for each in manifests if each.name == name]
        return named[0] if named else default_manifest(name)
    kin = [
        each
        for each in manifests
        if any(PurePath(library.path).name == path.name for library in each.libraries)
    ]
    built = _XLA.match(path.stem)
    if not kin and built:
        kin = [each for each in manifests if built[1] in (each.platform, *each.aliases)]
        if len({each.platform for each in kin}) > 1:
            needs = " ".join(_needs(path))
            kin = [each for each in kin if each.platform in needs]
    elif len(kin) > 1:
        run_paths = _needs(path)
        found = [sum(_is_on(each.module, run_paths) for each in one.preloads) for one in kin]
        if found.count(max(found)) == 1:
            return kin[found.index(max(found))]
    elif kin:
        return kin[0]
    return _like(kin, plugin_name(path.stem))


def _like(kin: Sequence[Manifest], name: str) -> Manifest:
    """Make a default manifest, with the hardware and targets that all of these manifests share."""
    # The oldest driver that works differs between builds.
    probes = {each.probe._replace(driver_file="", driver_minimum=0) for each in kin}
    if len({each.platform for each in kin}) != 1 or len(probes) != 1:
        return default_manifest(name)
    [probe] = probes
    plain = default_manifest(name, kin[0].platform)._replace(probe=probe)
    targets = [each.targets._replace(refused=()) for each in kin]
    return plain._replace(targets=targets[0]) if targets.count(targets[0]) == len(kin) else plain


def _needs(path: Path) -> tuple[str, ...]:
    """Return the libraries that a library names, and where it looks for them."""
    try:
        headers = inspect(path)
    except PluginLoadError:  # The error is reported when the library is loaded.
        return ()
    return (*headers.needed, *headers.run_paths)


def _is_on(module: str, run_paths: Sequence[str]) -> bool:
    """Check whether a package's folder is on a run path."""
    folder = f"/{module.replace('.', '/')}/"
    return any(folder in f"/{each}/" for each in run_paths)
