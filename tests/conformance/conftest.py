"""The command, as these tests call it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.fixture
def check(tmp_path):
    """`check(*words, NAME=value)` runs the command with variables, in a folder of its own."""

    def run(*words, **env):
        return subprocess.run(
            [sys.executable, "-P", "-m", "pjrt_hub.cli", "check", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **env},
        )

    return run
