"""The element types of PJRT, each where the plugin that is tested has it."""

from __future__ import annotations

import pytest

from pjrt_hub.running.array import dtypes

#: All of them: a test of a newer one is skipped.
KNOWN = [
    pytest.param(each, id=each.name, marks=pytest.mark.api(f">=0.{each.since}", "has the type"))
    for each in dtypes.ELEMENT_TYPES
]
#: Those that a StableHLO program can name.
IN_PROGRAMS = [param for param in KNOWN if param.values[0].name not in ("s1", "u1")]
#: Those of fewer than eight bits.
SMALL = [param for param in KNOWN if param.values[0].bits < 8]
#: Those that no generation of the CPU plugin lacks.
OLD = [each for each in dtypes.ELEMENT_TYPES if each.since <= 81]
#: The others, each where the plugin lacks it.
UNKNOWN = [
    pytest.param(each, id=each.name, marks=pytest.mark.api(f"<0.{each.since}", "lacks the type"))
    for each in dtypes.ELEMENT_TYPES
    if each not in OLD
]
