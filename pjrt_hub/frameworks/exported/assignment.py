"""Arguments by the names of their places: "args[0]['w']", "x", or a whole dict.

Owns putting values that a command line names where they belong; must not parse them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pjrt_hub.frameworks.exported.function import ExportedFunction
from pjrt_hub.frameworks.exported.tree import LEAF, Tree


def assign(
    function: ExportedFunction, values: Sequence[tuple[str | None, Any]]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Make the arguments of a call: the positional ones, and those by name.

    Each value comes with a name: a place as in `ExportedFunction.input_paths`, with or without
    quotes, or the beginning of several. None takes the next positional argument that was not named.
    The keys of a dict are places in the argument, or whole places: "l1/w", "args[0]/l1/w",
    "args[0]['l1']['w']". A value that is missing, given twice, or belongs nowhere raises TypeError.
    """
    positional, named = function.in_tree.children
    places = {_bare(each.path): each.tree for each in function.input_nodes()}
    leaves: dict[str, Any] = {}
    given = [_bare(name) for name, _ in values if name is not None]
    free = [
        path
        for path in (f"args[{index}]" for index in range(len(positional.children)))
        if not any(name == path or name.startswith((path + "[", path + ".")) for name in given)
    ]
    for name, value in values:
        if name is None:
            if not free:
                takes = len(positional.children)
                raise TypeError(f"{function.function_name} takes {takes} argument(s) by place")
            place = free.pop(0)
        else:
            place = _bare(name)
        tree = places.get(place)
        if tree is None:
            close = get_close_matches(place, places, n=3) or list(places)[:3]
            raise TypeError(
                f"{function.function_name} has no argument {name}; there are {', '.join(close)}"
            )
        for leaf, each in _leaves(tree, value, place):
            if leaf in leaves:
                raise TypeError(f"{leaf} was given twice")
            leaves[leaf] = each
    bare = [_bare(path) for path in function.input_paths]
    missing = [
        path for path, each in zip(function.input_paths, bare, strict=True) if each not in leaves
    ]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise TypeError(f"{', '.join(missing[:5])}{more}: no value was given")
    ordered = iter([leaves[each] for each in bare])
    args = tuple(child.maker({})(ordered) for child in positional.children)
    return args, {
        key: child.maker({})(ordered) for key, child in zip(named.keys, named.children, strict=True)
    }


def _bare(name: str) -> str:
    """Return a place without the quotes that a shell removes."""
    return re.sub(r"""\[(?:'([^']*+)'|"([^"]*+)")\]""", r"[\1\2]", name)


def _leaves(tree: Tree, value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a value with their places; of a dict, only those that the tree names."""
    if tree.kind == LEAF:
        if isinstance(value, Mapping):
            raise TypeError(f"{path} is one array, and {len(value)} were given")
        yield path, value
        return
    if not isinstance(value, Mapping):
        raise TypeError(f"{path} is {tree}; give each part: {_bare(next(tree.paths(path), path))}=")
    base, named = len(_steps(path)), {_steps(key): each for key, each in value.items()}
    if len(named) < len(value):
        raise TypeError(f"of the {len(value)} values for {path}, two have names of one place")
    for leaf in map(_bare, tree.paths(path)):
        steps = _steps(leaf)
        found = next((name for name in (steps[base:], steps) if name in named), None)
        if found is None:
            raise TypeError(f"{leaf} is not among the {len(value)} values for {path}")
        yield leaf, named[found]


def _steps(name: str) -> tuple[str, ...]:
    """Split "args[0]['l1'].w", "args[0]/l1/w" and "args.0.l1.w" alike."""
    return tuple(re.findall(r"[^\[\]'\"./]+", name))
