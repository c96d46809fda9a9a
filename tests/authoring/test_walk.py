"""docs/authoring.md, from its top to its end: every command works and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "authoring.md").read_text("utf-8")
BLOCKS = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(1200)
def test_every_command_of_the_page_works(run):
    blocks = BLOCKS.findall(PAGE)
    script = "".join(text for kind, text in blocks if kind == "sh")
    printed = run("bash", "-exo", "pipefail", "-c", script)
    lines = printed.splitlines()
    for kind, text in blocks:
        if kind == "text":
            assert [line for line in text.splitlines() if line not in lines] == [], printed
