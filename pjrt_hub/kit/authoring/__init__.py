"""For those who make plugins: package a library, lint a package, write one in Python.

Importing it costs nothing: each name is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pjrt_hub.kit.authoring.backend import (
        Backend,
        Device,
        Executable,
        Program,
        Signature,
        Slot,
    )
    from pjrt_hub.kit.authoring.bridge import capsule, plugin
    from pjrt_hub.kit.authoring.building import build
    from pjrt_hub.kit.authoring.linting import lint
    from pjrt_hub.kit.authoring.packing import pack
    from pjrt_hub.kit.authoring.project import new
    from pjrt_hub.kit.authoring.recorder import Recorder

#: Public name -> the module that holds it.
_HOMES = {
    "Backend": "backend",
    "Device": "backend",
    "Executable": "backend",
    "Program": "backend",
    "Recorder": "recorder",
    "Signature": "backend",
    "Slot": "backend",
    "build": "building",
    "capsule": "bridge",
    "lint": "linting",
    "new": "project",
    "pack": "packing",
    "plugin": "bridge",
}

__all__ = [
    "Backend",
    "Device",
    "Executable",
    "Program",
    "Recorder",
    "Signature",
    "Slot",
    "build",
    "capsule",
    "lint",
    "new",
    "pack",
    "plugin",
]


if not TYPE_CHECKING:  # else a checker would believe that every name exists

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
