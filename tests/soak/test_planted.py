"""Each planted mistake of a plugin in C is found by the conformance suite: an hour in all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import native_plugin
import pytest
from mistakes import MISTAKES, Mistake


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each.name)
def test_it_is_found(tmp_path: Path, mistake: Mistake) -> None:
    source = native_plugin.write(tmp_path)
    mistake.make(source)
    library = native_plugin.build(source, "gcc", *native_plugin.POSIX)
    report = tmp_path / "report.json"
    areas = [word for area in mistake.areas for word in ("--area", area)]
    command = [sys.executable, "-m", "pjrt_hub.cli", "check", library, *areas, "--output", report]
    subprocess.run(command, capture_output=True, timeout=500)
    results = json.loads(report.read_text())["results"]
    assert [each for each in results if each["verdict"] in ("fail", "crash", "timeout")]
