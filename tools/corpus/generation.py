"""The corpus from its parts: every draft, settled."""

from __future__ import annotations

from collections.abc import Collection

import control
import conversions
import elementwise
import linear
import reductions
import shapes
from draft import Disagreement
from interpreter import Interpreter, Refusal

from pjrt_hub.kit.conformance.corpus import Program

PARTS = (control, conversions, elementwise, linear, reductions, shapes)


def generate(only: Collection[str] | None = None) -> tuple[list[Program], list[str]]:
    """Every program, and what oracles disagree about.

    Args:
        only: the ops to make programs of; None for all.
    """
    drafts = [each for part in PARTS for each in part.drafts() if not only or each.op in only]
    drafts.sort(key=lambda each: (each.op, each.kind))  # It is stable: variants keep their order.
    programs, quarrels = [], []
    with Interpreter() as interpreter:
        for each in drafts:
            try:
                programs.append(each.settle(interpreter))
            except (Disagreement, Refusal) as exc:
                quarrels.append(f"{each.op}.{each.kind} {each.variant}: {exc}")
    return programs, quarrels
