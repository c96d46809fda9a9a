"""Whether a library belongs to a package that registers with a framework.

Reads what is installed; must not import any of it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path


def with_jax(library: Path) -> bool:
    """Whether the package in whose folder a library lies has an entry point `jax_plugins`."""
    from importlib.metadata import entry_points

    tops = {
        point.value.partition(":")[0].split(".")[0] for point in entry_points(group="jax_plugins")
    }
    return any(library.resolve().is_relative_to(folder) for top in tops for folder in _folders(top))


def _folders(package: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(each).resolve() for each in (spec and spec.submodule_search_locations) or ()]
