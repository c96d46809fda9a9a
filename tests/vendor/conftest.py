"""Real CUDA and TPU plugins, loaded in child processes on a machine without their hardware."""

from __future__ import annotations

import json
import subprocess

import pytest
from children import command


@pytest.fixture(scope="session")
def start(clean_env):
    """Start a function of a file of tests, with these arguments, in a child."""

    def start(function, *arguments, **env):
        return subprocess.Popen(
            command(function, *arguments, prepared=False),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # plugins log to it
            text=True,
            env={**clean_env, **env},
        )

    return start


@pytest.fixture(scope="session")
def finish():
    """Wait for a child, and give the last line that it printed, which is JSON, if any."""

    def finish(process):
        try:
            stdout, stderr = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        assert process.returncode == 0, stdout + stderr
        return json.loads(stdout.splitlines()[-1]) if stdout else None

    return finish


@pytest.fixture(scope="session")
def child(start, finish):
    """Call a function in a child, as the two above; for `in_child`."""
    return lambda function, *given, prepared, **env: finish(start(function, *given, **env))
