"""How long growth is looked at, before it is called a leak."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import pytest

from pjrt_hub.kit.conformance.checks import leaks
from pjrt_hub.kit.conformance.finding import Failed

SUBJECT = SimpleNamespace()


@pytest.fixture
def kept(monkeypatch):
    """What a use opens each time and does not close; it takes no time of this processor."""
    monkeypatch.setattr(leaks, "_LATEST", 0.3)
    files = []
    yield lambda: (files.append(os.open(os.devnull, os.O_RDONLY)), time.sleep(0.01))
    for file in files:
        os.close(file)


@pytest.mark.timeout(120)
def test_what_is_done_in_another_process_leaks_too(kept):
    kind = leaks._Kind(lambda _: kept, "Open a file", 3)
    with pytest.raises(Failed, match=r"found .*1 open files"):
        leaks._leaks(kind, SUBJECT)


def test_what_closes_again_is_no_leak(monkeypatch):
    monkeypatch.setattr(leaks, "_LATEST", 0.3)
    kind = leaks._Kind(lambda _: lambda: os.close(os.open(os.devnull, os.O_RDONLY)), "Open", 3)
    leaks._leaks(kind, SUBJECT)


def test_the_last_file_was_left_behind(monkeypatch):
    monkeypatch.setattr(leaks.ambient, "holdings", lambda: os.open("/dev/null/none", os.O_RDONLY))
    with pytest.raises(Failed, match="found in the end Not a directory"):
        leaks._leaks(leaks._Kind(lambda _: lambda: None, "Do nothing"), SUBJECT)
