"""Two devices in random use, beside a model: every value right, every misuse refused, no crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.devices(2)
def test_two_thousand_steps(clean_env):
    done = subprocess.run(
        [sys.executable, "-m", "usage", "2000"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=200,
        env=clean_env,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert int(done.stdout) >= 2000
