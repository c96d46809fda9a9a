"""PJRT's element types as pytest parameters, limited to those that the tested plugin has."""

from __future__ import annotations

import pytest

from pjrt_hub.running.array import dtypes

#: All element types; pytest skips those that are newer than the plugin's PJRT API.
KNOWN = [
    pytest.param(each, id=each.name, marks=pytest.mark.api(f">=0.{each.since}", "has the type"))
    for each in dtypes.ELEMENT_TYPES
]
#: The types that a StableHLO program can name.
IN_PROGRAMS = [param for param in KNOWN if param.values[0].name not in ("s1", "u1")]
#: The types of fewer than eight bits.
SMALL = [param for param in KNOWN if param.values[0].bits < 8]
#: The types that every generation of the CPU plugin has.
OLD = [each for each in dtypes.ELEMENT_TYPES if each.since <= 81]
#: The newer types, each only for plugins that lack it.
UNKNOWN = [
    pytest.param(each, id=each.name, marks=pytest.mark.api(f"<0.{each.since}", "lacks the type"))
    for each in dtypes.ELEMENT_TYPES
    if each not in OLD
]
