"""For those who make plugins: write and package them, check them, see their calls.

Nothing here is imported by `pjrt_hub.client`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from pjrt_hub.kit import authoring, conformance, tracing

__all__ = ["authoring", "conformance", "tracing"]


if not TYPE_CHECKING:  # Otherwise a type checker would believe that every name exists.

    def __getattr__(name: str) -> ModuleType:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")
