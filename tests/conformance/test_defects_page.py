"""docs/cpu_defects.md: what it says of the plugin is still found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pjrt_hub.kit import conformance

PAGE = (Path(__file__).parents[2] / "docs" / "cpu_defects.md").read_text("utf-8")
CAUSES = dict(re.findall(r"^`(\w+\.\S+)`, (fail|crash|timeout): ", PAGE, re.MULTILINE))
#: Depends on what lies in the memory that the plugin reads.
BY_CHANCE = "buffers.type_invalid"


@pytest.mark.slow
def test_each_cause_is_found():
    assert len(CAUSES) == int(re.search(r"the (\d+) causes", PAGE)[1]) <= 20
    report = conformance.run("cpu", names=CAUSES, offline=True)
    if f"`{report.plugin.sha256}`" not in PAGE:
        pytest.skip("the page is about another build")
    found = {each.name: str(each.verdict) for each in report.results}
    assert {**found, BY_CHANCE: CAUSES[BY_CHANCE]} == CAUSES
