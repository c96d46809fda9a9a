"""The generated page of the checks."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_the_checks_is_current(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    monkeypatch.delitem(sys.modules, "conformance", raising=False)
    import conformance

    page = conformance.PAGE.read_text(encoding="utf-8")
    assert page == conformance.page(), "python tools/conformance.py writes it"
