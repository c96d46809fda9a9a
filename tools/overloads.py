"""Lets the reference show a function that a stub declares by its overloads alone."""

from __future__ import annotations

from typing import Any

import griffe


class Overloads(griffe.Extension):
    """Takes the last overload, which has the docstring, for the function."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Add what griffe leaves out, because a stub implements nothing."""
        for name, overloads in cls.overloads.items():
            if overloads and name not in cls.members:
                cls.set_member(name, overloads[-1])
