"""What JAX would register when it starts, read from the files of what is installed.

Owns how JAX finds the modules of plugins; imports neither JAX nor these modules.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pjrt_hub.finding.contract.manifest import DEFAULT_PRIORITY
from pjrt_hub.finding.discovery import registration
from pjrt_hub.finding.discovery.source import World

_GROUP = "jax_plugins"
#: JAX looks for NVIDIA's compilers in the folders of these packages, in this order.
_COMPILERS = ("nvidia.cu13", "nvidia.cuda_nvcc")
#: Without any of these devices, JAX leaves out the platform "cuda".
NVIDIA_DEVICES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg")
#: These platforms are built into JAX, with these priorities; "tpu" may fail silently.
BUILT_IN = {"tpu": 300, "cpu": 0}
ALIASES = {"gpu": ("cuda", "rocm", "oneapi")}


class Module(NamedTuple):
    """A module that JAX would import for its plugin."""

    name: str
    folder: Path | None  # Its package's folder, if it is found.
    platform: str = ""  # The platform that it registers; empty if its source says no name.
    priority: int = DEFAULT_PRIORITY  # The priority that it registers with.
    preloads: tuple[tuple[str, str], ...] = ()  # (package, file) of what it loads first, in order.


def modules(world: World) -> list[Module]:
    """Return the modules that JAX would import, sorted by name; JAX's order depends on hashes."""
    names = {each.module for each in world.installed.entry_points if each.group == _GROUP}
    for folder in package_path(_GROUP, world.installed.sys_path):
        found = (path for path in folder.glob("*/__init__.py"))
        names |= {f"{_GROUP}.{path.parent.name}" for path in found}
    return [_read(name, world) for name in sorted(names)]


def preloads(module: Module, world: World) -> tuple[Path, ...]:
    """Return the files that a module loads before its plugin, as far as they exist.

    The module looks only in the first folder of a package, and skips files that are not there.
    """
    files = []
    for package, name in module.preloads:
        [folder, *_] = [*package_path(package, world.installed.sys_path), None]
        if folder is not None and (folder / "lib" / name).is_file():
            files.append(folder / "lib" / name)
    return tuple(files)


def compiler_root(world: World) -> str:
    """Return the folder of CUDA that JAX names to XLA in every compilation; empty if none."""
    if named := world.env.get("CUDA_ROOT"):
        return named
    for package in _COMPILERS:
        if folders := package_path(package, world.installed.sys_path):
            if (folders[0] / "__init__.py").is_file():
                return str(folders[0])
            with_it = (folder for folder in folders if (folder / "bin" / "ptxas").exists())
            return str(next(with_it, None))  # Without such a folder, JAX names "None".
    return ""


def package_path(name: str, sys_path: Sequence[str]) -> list[Path]:
    """Return the folders of a package as an import would find them; import nothing.

    A folder with an `__init__.py` is the only one; else all folders of the name are a namespace.
    """
    folders = [Path(each) for each in sys_path if each]
    for part in name.split("."):
        here = [folder / part for folder in folders if os.path.isdir(folder / part)]
        regular = [folder for folder in here if os.path.isfile(folder / "__init__.py")]
        folders = regular[:1] or here
    return folders


def _read(name: str, world: World) -> Module:
    folders = package_path(name, world.installed.sys_path)
    if not folders or not (folders[0] / "__init__.py").is_file():
        return Module(name, folders[0] if folders else None)
    return Module(name, folders[0], *registration.read(folders[0]))
