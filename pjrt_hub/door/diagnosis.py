"""What a doctor tells: steps, each with what was found and the next command."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the walk.

    Attributes:
        what: the step.
        ok: whether it would succeed.
        detail: what was found.
        hint: the next command, where it would not, or where something lacks.
    """

    __module__ = "pjrt_hub"
    what: str
    ok: bool
    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The steps, in order; those that failed among them."""

    __module__ = "pjrt_hub"
    steps: tuple[Step, ...]

    @property
    def ok(self) -> bool:
        """Whether every step would succeed."""
        return all(step.ok for step in self.steps)
