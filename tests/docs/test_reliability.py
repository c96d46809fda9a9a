"""The page of faults names tests that are there, and a test for every row."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
ROWS = {"D": 11, "K": 9, "C": 5, "A": 6, "S": 9, "P": 11}


def test_every_row_has_a_test_that_is_there() -> None:
    rows = re.findall(r"^\| ([A-Z]\d+) \|.*\| (`tests/.*`) \|$", PAGE, re.MULTILINE)
    assert [name for name, _ in rows] == [
        f"{letter}{number}" for letter, count in ROWS.items() for number in range(1, count + 1)
    ]
    named = {path for _, cell in rows for path in re.findall(r"`([^`]+)`", cell)}
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []
