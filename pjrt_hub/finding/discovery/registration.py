"""What the module of a package registers in JAX, read from its source.

Owns how such modules call JAX and prepare the process; imports none of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pjrt_hub.base import digest
from pjrt_hub.finding.contract.manifest import DEFAULT_PRIORITY

if TYPE_CHECKING:
    import ast


class Registration(NamedTuple):
    """The plugin that a module registers in JAX."""

    platform: str = ""  # The platform's name; empty if the source says none.
    priority: int = DEFAULT_PRIORITY
    preloads: tuple[tuple[str, str], ...] = ()  # (package, file) of what it loads first, in order.


def read(folder: Path) -> Registration:
    """Return what the package in a folder registers; JAX's defaults if its source is unclear."""
    import ast  # Few packages lack a manifest, so most starts do not need this import.

    try:
        tree = ast.parse(digest.content(folder / "__init__.py"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return Registration()
    platform, priority = "", DEFAULT_PRIORITY
    loads: list[tuple[str, str]] = []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    # Such modules run their calls in the order of the source.
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        called = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        called = call.func.id if isinstance(call.func, ast.Name) else called
        given = {each.arg: _constant(each.value) for each in call.keywords}
        first, second, *_ = [*map(_constant, call.args), None, None]
        if called == "register_plugin":
            platform = str(first or given.get("plugin_name") or "")
            number = given.get("priority", DEFAULT_PRIORITY)
            priority = number if isinstance(number, int) else DEFAULT_PRIORITY
        elif called == "_load" and isinstance(second, list):
            loads += [(f"nvidia.{first}", str(file)) for file in second]
    return Registration(platform, priority, tuple(loads))


def _constant(node: ast.expr) -> object:
    import ast

    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
