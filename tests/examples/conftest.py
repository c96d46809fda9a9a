"""The examples as a user runs them, and minijit, imported from where it lies."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import pjrt_hub

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def run(clean_env):
    """Run an example in the tests' interpreter, and give what it printed."""

    def run(name, *arguments, status=0, cwd=None, **env):
        command, own = [sys.executable, EXAMPLES / name, *arguments], {**clean_env, **env}
        how = {"capture_output": True, "text": True, "timeout": 280, "cwd": cwd, "env": own}
        done = subprocess.run(command, **how)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout if status == 0 else done.stderr

    return run


@pytest.fixture
def port():
    """A port that is bound, so that nobody else gets it; a server may still listen on it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture(scope="session")
def client():
    with pjrt_hub.client("cpu", offline=True) as client:
        yield client


@pytest.fixture(scope="session")
def minijit():
    sys.path.insert(0, str(EXAMPLES / "minijit"))
    import minijit

    sys.path.pop(0)
    return minijit
