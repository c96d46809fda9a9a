"""Libraries that no manifest names: how they are recognised and called (layer 3; pure).

Owns the patterns of vendors' file names and the name that follows from one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from pjrt_hub.contract.manifest import Manifest, undescribed
from pjrt_hub.contract.names import is_name
from pjrt_hub.discovery.source import Described

_SUFFIXES = {"linux": (".so",), "macos": (".dylib", ".so"), "windows": (".dll",)}
# xla_cuda_plugin.so, pjrt_plugin_xpu.so, xla_cpu_pjrt.so, pjrt_c_api_cpu_plugin.so, libtpu.so
_PLUGIN = re.compile(r"pjrt|^xla_\w+_plugin|^libtpu$")
_AFFIXES = re.compile(
    r"^(?:lib)?(?:pjrt_plugin_|pjrt_c_api_|xla_)?(\w+?)(?:_pjrt_plugin|_plugin|_?pjrt)?$"
)


def is_library(file_name: str, os: str) -> bool:
    """Says whether a file's name is that of a shared library on `os`."""
    return PurePath(file_name).suffix in _SUFFIXES.get(os, ())


def is_plugin_library(file_name: str, os: str) -> bool:
    """Says whether a file's name is that of a PJRT plugin on `os` ("linux", "macos", "windows")."""
    return is_library(file_name, os) and _PLUGIN.search(PurePath(file_name).stem) is not None


def plugin_name(text: str) -> str:
    """Gives the name of a plugin from a file's stem or an entry point: "xla_cuda13" -> "cuda13"."""
    plain = re.sub(r"[^a-z0-9_]+", "_", text.lower())
    match = _AFFIXES.match(plain)
    name = (match[1] if match else plain)[:32].strip("_")
    return name if is_name(name) else "unnamed"


def manifest_for(name: str, file_name: str, described: Sequence[Described]) -> Manifest:
    """Gives the manifest for a library that the user named by its path.

    That of the plugin called `name`; where `name` is empty, that of the one plugin whose library
    has this file name (both CUDA plugins have the same: then neither); else an undescribed one.
    """
    if name:
        named = [each.manifest for each in described if each.manifest.name == name]
        return named[0] if named else undescribed(name)
    same_file = [
        each.manifest
        for each in described
        if any(PurePath(library.path).name == file_name for library in each.manifest.libraries)
    ]
    if len(same_file) == 1:
        return same_file[0]
    return undescribed(plugin_name(PurePath(file_name).stem))
