"""pjrt-hub: finds, explains, checks, fetches and runs PJRT plugins.

Importing it costs nothing: each public name is imported on first use. `__init__.pyi` lists them.
"""

from __future__ import annotations

import sys

#: As type checkers read it; `typing` would be the most of the import.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

#: Public name -> the module that holds it, and its name there; read on first use.
_homes: dict[str, tuple[str, str]] = {}


if hasattr(sys, "frozen") or "__compiled__" in globals():
    from pjrt_hub.base import safe_path

    safe_path.run_if_asked()  # else this is the program itself


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _read_version()
    if not _homes:
        _homes.update(_read_homes())
    if name == "__all__":
        return sorted([*_homes, "__version__"])
    if name not in _homes:
        what = f"module {__name__!r} has no attribute {name!r}"
        # Of these Python makes "Did you mean".
        raise AttributeError(what, name=name, obj=sys.modules[__name__])
    from importlib import import_module

    home, there = _homes[name]
    value = vars(import_module(home)).get(there) or import_module(f"{home}.{there}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__getattr__("__all__"))


def _read_version() -> str:
    """Read the version from the installed metadata, which is made from pyproject.toml."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("pjrt-hub")
    except PackageNotFoundError:  # This is a checkout that nothing installed.
        raise AttributeError("pjrt-hub is not installed, so it has no version") from None
    globals()["__version__"] = found
    return found


def _read_homes() -> dict[str, tuple[str, str]]:
    """Read the public names from `__init__.pyi`, by this file's loader: it may be in an archive."""
    stub = __file__.removesuffix("c") + "i"
    words = [line.split() for line in __loader__.get_data(stub).decode().splitlines()]  # type: ignore[name-defined]
    return {line[5]: (line[1], line[3]) for line in words if line[:1] == ["from"]}
