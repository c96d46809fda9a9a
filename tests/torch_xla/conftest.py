"""Programs of torch_xla on the real XLA CPU plugin, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def python(environment: dict[str, str], tmp_path: Path) -> Run:
    """Run Python code, with no setting of this process that has to do with plugins."""
    own = {
        "PJRT_HUB_CACHE": os.environ.get("PJRT_HUB_CACHE", environment["PJRT_HUB_CACHE"]),
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }

    def run(code: str, *args: object, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *map(str, args)],
            env={**environment, **own, **env},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=280,
        )

    return run
