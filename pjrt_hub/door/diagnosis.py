"""The result of `diagnose`: steps, each with what was found and the next command."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a diagnosis.

    Attributes:
        what: the step.
        ok: whether it would succeed.
        detail: what was found.
        hint: the next command, if the step would not succeed or something is missing.
    """

    __module__ = "pjrt_hub"
    what: str
    ok: bool
    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The steps in order, whether they succeeded or not."""

    __module__ = "pjrt_hub"
    steps: tuple[Step, ...]

    @property
    def ok(self) -> bool:
        """Whether every step would succeed."""
        return all(step.ok for step in self.steps)
