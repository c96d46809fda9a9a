"""The main function of a program: its types and attributes, whatever form the program has.

Owns the classes that the readers of text and of bytecode share; must not know what a plugin makes
of them, as `entry` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

#: Nested tuples and aliases can grow exponentially; no real program exceeds these limits.
MOST_TYPES = 1 << 17
DEEPEST = 32

#: What is declared for a parameter besides its type. MLIR's strings are bytes; numbers, truth
#: values and dictionaries are Python's; everything else is its assembly as text.
Attributes = Mapping[str, Any]
#: The sizes of a mesh's axes, by the axes' names.
Mesh = Mapping[str, int]


class Unreadable(ValueError):
    """The program is malformed, or has a type that no buffer holds."""


class TensorType(NamedTuple):
    """The type of an array."""

    element: str  # The element type as MLIR writes it.
    sizes: tuple[int | None, ...]  # None is a size that only a running program knows.
    bounds: tuple[int | None, ...] = ()  # The greatest sizes, each perhaps None; empty if unknown.


#: The one type of an array, the types of a tuple in their order, or none for a token.
TensorTypes = tuple[TensorType, ...]


class Declared(NamedTuple):
    """The tensors of a parameter's or a result's type, and its attributes."""

    tensors: TensorTypes
    attributes: Attributes


class MainFunction(NamedTuple):
    """The parameters and results of a program, as its main function declares them."""

    parameters: list[Declared]
    results: list[Declared]


def declare(types: list[TensorTypes], attributes: list[Attributes]) -> list[Declared]:
    """Join types and their attributes; without any attributes, each type gets none."""
    if attributes and len(attributes) != len(types):
        raise Unreadable(f"{len(types)} types and {len(attributes)} dictionaries of attributes")
    return [Declared(*each) for each in zip(types, attributes or [{}] * len(types), strict=True)]
