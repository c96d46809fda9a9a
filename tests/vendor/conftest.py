"""Real CUDA and TPU plugins, loaded in child processes on a machine without their hardware."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

PREAMBLE = """
import json, os, sys
import numpy as np
import pjrt_hub
from pjrt_hub.errors import PjrtHubError

def refusal(call):
    try:
        call()
    except Exception as exc:
        return {"error": type(exc).__name__, "text": str(exc)}
    return None
"""


@pytest.fixture(scope="session")
def start(clean_env):
    """Starts Python code in a child."""

    def start(code, **env):
        return subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + textwrap.dedent(code)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # plugins log to it
            text=True,
            env={**clean_env, **env},
        )

    return start


@pytest.fixture(scope="session")
def finish():
    """Waits for a child, and gives what it printed as JSON."""

    def finish(process):
        try:
            stdout, stderr = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        assert process.returncode == 0, stdout + stderr
        return json.loads(stdout.splitlines()[-1])

    return finish


@pytest.fixture(scope="session")
def child(start, finish):
    """Runs Python code in a child and gives what it printed as JSON."""
    return lambda code, **env: finish(start(code, **env))
