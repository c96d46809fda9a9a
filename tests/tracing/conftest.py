"""Programs that know nothing of pjrt-hub, over the real XLA CPU plugin, seen through layers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import finished
import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(library: Path, environment: dict[str, str]) -> Run:
    """Run a program of Python with the plugin as JAX's and torch_xla's only one."""
    own = {
        "JAX_PLATFORMS": "traced",
        "PJRT_NAMES_AND_LIBRARY_PATHS": f"traced:{library}",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }

    def python(*args: object, **env: str) -> subprocess.CompletedProcess[str]:
        return finished.python(*args, seconds=280, env={**environment, **own, **env})

    return python


@pytest.fixture
def trace(run: Run) -> Run:
    """Run `pjrt-hub trace` with arguments."""
    return lambda *args, **env: run("-m", "pjrt_hub.cli", "trace", *args, **env)
