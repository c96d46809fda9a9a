"""Compact types: Python's classes over the call path's types, made as C makes types.

An instance of what a `class` statement makes has a slower end, and before Python 3.12 a slower
call: a quarter of what a call costs beside the plugin's own work.
"""

from __future__ import annotations

from typing import TypeVar

from pjrt_hub.base.frozen import hand_over
from pjrt_hub.running.capi import hotpath

T = TypeVar("T")

#: What the class of the statement has only for itself.
OWN = frozenset({"__dict__", "__weakref__", "__slots__", "__module__"})


def compact(statement: type[T], /) -> type[T]:
    """Makes the same class again, as C would.

    Raises:
        TypeError: its base is none of the call path's that may be called or made often.
    """
    name = f"{statement.__module__}.{statement.__qualname__}"
    made = hotpath.compact_type(statement.__bases__[0], name)
    for name, value in statement.__dict__.items():
        if name not in OWN:
            setattr(made, name, value)
    hand_over(statement, made)
    return made
