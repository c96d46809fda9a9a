"""TorchTPU on the plugin that is tested, in this process, which has no other."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: The plugin that is PyTorch's device in these tests.
PLATFORM = os.environ.get("TESTED_PLATFORM", "cpu")


def pytest_configure(config):
    """Leave warnings alone: torch and its parts warn of themselves."""
    config.addinivalue_line("filterwarnings", "ignore")


@pytest.fixture(scope="session", autouse=True)
def device(clean_env):
    import pjrt_hub.torch

    os.environ["PJRT_HUB_CACHE"] = clean_env["PJRT_HUB_CACHE"]
    return pjrt_hub.torch.register(PLATFORM)


@pytest.fixture
def python(clean_env, tmp_path):
    """Run Python code in a process of its own, with these variables."""

    def run(code: str, *args: object, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, *map(str, args)],
            env={**clean_env, "TF_CPP_MIN_LOG_LEVEL": "3", **env},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
        )

    return run
