"""For those who make plugins: package a library, lint a package, write a plugin in Python.

Importing this package costs nothing: each name is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pjrt_hub.kit.authoring.backend import Backend as Backend
    from pjrt_hub.kit.authoring.backend import Device as Device
    from pjrt_hub.kit.authoring.backend import Executable as Executable
    from pjrt_hub.kit.authoring.backend import Program as Program
    from pjrt_hub.kit.authoring.backend import Signature as Signature
    from pjrt_hub.kit.authoring.backend import Slot as Slot
    from pjrt_hub.kit.authoring.bridge import capsule as capsule
    from pjrt_hub.kit.authoring.bridge import plugin as plugin
    from pjrt_hub.kit.authoring.building import build as build
    from pjrt_hub.kit.authoring.linting import lint as lint
    from pjrt_hub.kit.authoring.packing import pack as pack
    from pjrt_hub.kit.authoring.project import new as new
    from pjrt_hub.kit.authoring.recorder import Recorder as Recorder

#: The public names of each module.
_NAMES = {
    "backend": ("Backend", "Device", "Executable", "Program", "Signature", "Slot"),
    "bridge": ("capsule", "plugin"),
    "building": ("build",),
    "linting": ("lint",),
    "packing": ("pack",),
    "project": ("new",),
    "recorder": ("Recorder",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
__all__ = sorted(_HOMES)


if not TYPE_CHECKING:  # Otherwise a type checker would believe that every name exists.

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
