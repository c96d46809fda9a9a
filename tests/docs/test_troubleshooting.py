"""docs/troubleshooting.md: every error that pjrt-hub words, with the step that it hints at."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import pjrt_hub
from pjrt_hub import errors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
TOOL = runpy.run_path(str(ROOT / "tools" / "troubleshooting.py"))


def messages(name: str) -> list[tuple[str, str]]:
    """The messages and next steps below a class's heading."""
    [section] = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^### (.*)\n\n(.*)$", section, re.MULTILINE)


def test_the_page_is_up_to_date():
    assert TOOL["page"]() == PAGE, "python tools/troubleshooting.py"


def test_an_error_is_found_by_its_words(tmp_path):
    """One heading has the words of a real error in their order, and below it is its hint."""
    with pytest.raises(errors.PjrtHubError) as caught:
        pjrt_hub.load(tmp_path / "nothing.so")
    message, hint = str(caught.value.message), caught.value.hint
    found = [
        step
        for text, step in messages(type(caught.value).__name__)
        if re.fullmatch(".*".join(map(re.escape, text.split("…"))), message, re.DOTALL)
    ]
    assert len(found) == 1
    assert re.fullmatch(".*".join(map(re.escape, found[0].split("…"))), hint, re.DOTALL)


def test_every_message_has_a_next_step():
    classes = re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)
    assert len(classes) > 12
    assert [each for name in classes for each in messages(name) if not each[1]] == []
