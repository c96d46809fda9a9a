"""What a rule of `lint` is, and the list of them all.

A rule is a generator of findings over a shipment; its docstring's first line is what must hold,
the rest says why and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pjrt_hub.kit.authoring.shipment import Shipment

    #: Yields where something is, and what.
    Look = Callable[[Shipment], Iterator[tuple[str, str]]]

ERROR, WARNING = "error", "warning"
#: The hundreds of a rule's number -> the module of rules/ that holds it.
AREAS = {1: "library", 2: "wheel", 3: "manifest", 4: "entry_points"}

_RULES: dict[int, Rule] = {}


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that must hold of what is shipped.

    Attributes:
        number: its first digit is that of its area.
        severity: an "error" fails the lint, a "warning" does not.
        title: what must hold.
        why: the reason, and what to do about it.
        look: finds where it does not hold.
    """

    number: int
    severity: str
    title: str
    why: str
    look: Look

    @property
    def code(self) -> str:
        """As findings name it: "PLG101"."""
        return f"PLG{self.number}"


def rule(number: int, severity: str) -> Callable[[Look], Look]:
    """Makes a generator function a rule."""

    def register(look: Look) -> Look:
        title, _, why = (look.__doc__ or "").partition("\n")
        lines = [line.strip() for line in why.strip().splitlines()]
        assert number not in _RULES, number
        _RULES[number] = Rule(number, severity, title.rstrip("."), " ".join(lines), look)
        return look

    return register


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, by number."""
    from importlib import import_module

    for area in AREAS.values():
        import_module(f"{__package__}.rules.{area}")
    return tuple(_RULES[number] for number in sorted(_RULES))
