"""Trees of values: what a function takes and gives, nested in its exporter's containers.

Owns taking nested Python values apart and putting them together; must not look at the leaves.
"""

from __future__ import annotations

import json
import keyword
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pjrt_hub.base.fork import cached_property

KINDS = ("leaf", "none", "tuple", "list", "dict", "custom", "constant")
LEAF, NONE, TUPLE, LIST, DICT, CUSTOM, CONSTANT = KINDS

#: The function that makes a container from its children, for each one that a user registered.
Types = Mapping[str, Callable[..., Any]]


class Node(NamedTuple):
    """A tree among those that hold it."""

    path: str  # Where it is, as Python writes it.
    leaves: range  # The numbers of its leaves.
    tree: Tree


@dataclass(frozen=True)
class Tree:
    """A leaf, or a container of trees."""

    kind: str  # One of `KINDS`.
    children: tuple[Tree, ...] = ()  # They have the order in which leaves are passed.
    keys: tuple[str, ...] = ()  # The keys of a dict.
    name: str = ""  # The name of a custom container, as its exporter registered it.
    data: bytes = b""  # What the exporter kept beside a custom container; a constant as JSON.

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the tree without the functions that it keeps."""
        return Tree, (self.kind, self.children, self.keys, self.name, self.data)

    @cached_property
    def count(self) -> int:
        """How many leaves it has."""
        return 1 if self.kind == LEAF else sum(child.count for child in self.children)

    @property
    def is_arguments(self) -> bool:
        """Whether it is a tuple of positional arguments beside a dict of those by name."""
        kinds = [child.kind for child in self.children]
        return self.kind == TUPLE and kinds == [TUPLE, DICT]

    @property
    def constant(self) -> Any:
        """The value that stands at a place without an array; None where there is nothing."""
        return json.loads(self.data) if self.kind == CONSTANT else None

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The names of a custom container's children, as of a namedtuple; empty if it has none."""
        try:
            names = json.loads(self.data) if self.kind == CUSTOM else None
        except (ValueError, RecursionError):
            return ()
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return ()
        return tuple(names) if len(set(names)) == len(self.children) else ()

    def nodes(self, path: str = "", first: int = 0) -> Iterator[Node]:
        """Yield the tree and all that it holds; its own place is `path`, its first leaf `first`."""
        yield Node(path, range(first, first + self.count), self)
        for step, child in self.steps():
            yield from child.nodes(path + step, first)
            first += child.count

    def paths(self, path: str = "") -> Iterator[str]:
        """Yield where each leaf is, as Python would write it after `path`."""
        return (each.path for each in self.nodes(path) if each.tree.kind == LEAF)

    def steps(self) -> Iterator[tuple[str, Tree]]:
        """Return the children of a container, each with its place as Python writes it."""
        return zip(self._steps(), self.children, strict=True)

    def flatten(self, value: Any, leaves: list[Any], path: str = "") -> None:
        """Append the leaves of a value of this form; a list may stand for a tuple.

        Another form raises TypeError; the message names the place.
        """
        kind = self.kind
        if kind == LEAF:
            leaves.append(value)
        elif kind == DICT:
            if not isinstance(value, Mapping) or set(value) != set(self.keys):
                raise self._differs(value, path)
            for key, child in zip(self.keys, self.children, strict=True):
                child.flatten(value[key], leaves, f"{path}[{key!r}]")
        elif kind in (NONE, CONSTANT):
            if value != self.constant:
                raise self._differs(value, path)
        else:
            elements = self._elements(value, path)
            for (step, child), each in zip(self.steps(), elements, strict=True):
                child.flatten(each, leaves, path + step)

    @cached_property
    def collect(self) -> Callable[[Any, Callable[[Any], None]], None]:
        """A faster `flatten`, for calls: a function that appends leaves without their places.

        On a value of another form it raises LookupError, TypeError or ValueError, maybe after it
        appended leaves; `flatten` can then say what is wrong.
        """
        parts = [child.collect for child in self.children]
        if self.kind == LEAF:
            return lambda value, append: append(value)
        if self.kind == DICT and all(child.kind == LEAF for child in self.children):
            return self._collect_plain_dict
        if self.kind == DICT:
            return self._collect_dict
        if self.kind in (TUPLE, LIST):

            def collect(value: Any, append: Callable[[Any], None]) -> None:
                if not isinstance(value, tuple | list):
                    raise TypeError
                for part, each in zip(parts, value, strict=True):
                    part(each, append)

            return collect

        def slowly(value: Any, append: Callable[[Any], None]) -> None:
            leaves: list[Any] = []
            self.flatten(value, leaves)
            for leaf in leaves:
                append(leaf)

        return slowly

    def _collect_plain_dict(self, value: Any, append: Callable[[Any], None]) -> None:
        if len(value) != len(self.keys):
            raise TypeError
        for key in self.keys:
            append(value[key])

    def _collect_dict(self, value: Any, append: Callable[[Any], None]) -> None:
        if len(value) != len(self.keys):
            raise TypeError
        for key, child in zip(self.keys, self.children, strict=True):
            child.collect(value[key], append)

    def maker(self, types: Types) -> Callable[[Iterator[Any]], Any]:
        """Return a function that builds a value from leaves; unknown containers become tuples."""
        if self.kind == LEAF:
            return next
        if self.kind in (NONE, CONSTANT):
            constant = self.constant
            return lambda leaves: constant
        keys, parts = self.keys, [child.maker(types) for child in self.children]
        if self.kind == DICT:
            return lambda leaves: dict(zip(keys, [part(leaves) for part in parts], strict=True))
        if self.kind == LIST:
            return lambda leaves: [part(leaves) for part in parts]
        make = tuple if self.kind == TUPLE else self._maker(types)
        return lambda leaves: make(tuple([part(leaves) for part in parts]))

    @cached_property
    def _tuple_type(self) -> Callable[[Sequence[Any]], Any] | None:
        """The maker of a namedtuple like the exporter's, whose own class is not here; or None."""
        name = self.name.rpartition(".")[2]
        if not all(f.isidentifier() and not keyword.iskeyword(f) for f in (name, *self.fields)):
            return None
        if any(field.startswith("_") for field in self.fields):
            return None
        made: Any = namedtuple(name, self.fields)  # type: ignore[misc]
        maker: Callable[[Sequence[Any]], Any] = made._make
        return maker

    def _maker(self, types: Types) -> Callable[[tuple[Any, ...]], Any]:
        if self.name in types:
            return lambda values: types[self.name](*values)
        if self.name == "collections.OrderedDict" and self.fields:
            return lambda values: OrderedDict(zip(self.fields, values, strict=True))
        return (self._tuple_type if self.fields else None) or tuple

    def _steps(self) -> Iterator[str]:
        if self.kind == DICT:
            return (f"[{key!r}]" for key in self.keys)
        if self.fields and self.name != "collections.OrderedDict":
            return (f".{field}" for field in self.fields)
        return (f"[{index}]" for index in range(len(self.children)))

    def _elements(self, value: Any, path: str) -> Sequence[Any]:
        if self.fields and isinstance(value, Mapping):
            if set(value) != set(self.fields):
                raise self._differs(value, path)
            return [value[field] for field in self.fields]
        if not isinstance(value, tuple | list) or len(value) != len(self.children):
            raise self._differs(value, path)
        return value

    def _differs(self, value: Any, path: str) -> TypeError:
        return TypeError(f"{path or 'the value'}: expected {self}, found {_describe(value)}")

    def __str__(self) -> str:
        match self.kind:
            case "leaf":
                return "*"
            case "none" | "constant":
                return repr(self.constant)
            case "dict":
                pairs = zip(self.keys, self.children, strict=True)
                return "{" + ", ".join(f"{key!r}: {child}" for key, child in pairs) + "}"
            case "list":
                return f"[{', '.join(map(str, self.children))}]"
            case "custom":
                names = self.fields or [""] * len(self.children)
                pairs = zip(names, self.children, strict=True)
                inner = (f"{name}={child}" if name else str(child) for name, child in pairs)
                return f"{self.name}({', '.join(inner)})"
        comma = "," if len(self.children) == 1 else ""
        return f"({', '.join(map(str, self.children))}{comma})"


def _describe(value: Any) -> str:
    """Describe a value by its form, for messages."""
    if isinstance(value, Mapping):
        keys = ", ".join(map(repr, list(value)[:8]))
        return f"a dict of {len(value)}: {keys}" if value else "an empty dict"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else type(value).__name__
