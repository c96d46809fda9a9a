"""The conformance suite: what a PJRT plugin must do, checked call by call.

`run("cpu")` checks the plugin that is chosen by that name, `run("lib.so")` a library. Nothing of
the plugin enters this process. Each name is imported on first use only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pjrt_hub.kit.conformance.suite import Suite, run
    from pjrt_hub.kit.conformance.verdict import Identity, Report, Result, Verdict

__all__ = ["Identity", "Report", "Result", "Suite", "Verdict", "run"]


if not TYPE_CHECKING:  # Otherwise a type checker would believe that every name exists.

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "suite" if name in ("Suite", "run") else "verdict"
        value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
