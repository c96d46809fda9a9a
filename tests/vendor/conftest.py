"""Real CUDA and TPU plugins, loaded in child processes on a machine without their hardware."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from children import command

DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/accel0")


@pytest.fixture(scope="session")
def without_hardware():
    if any(Path(device).exists() for device in DEVICES):
        pytest.skip("the hardware is here")


@pytest.fixture(scope="session")
def hub(clean_env):
    """Run `pjrt-hub` to its end; its status must be `status`."""

    def hub(*words, status=0):
        command = [sys.executable, "-m", "pjrt_hub.cli", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=clean_env)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return hub


@pytest.fixture(scope="session")
def start(clean_env):
    """Start a function of a test file, with these arguments, in a child."""

    def start(function, *arguments, **env):
        words = command(function, *arguments, prepared=False)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}  # plugins log to stderr
        return subprocess.Popen(words, text=True, env={**clean_env, **env}, **pipes)

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
    """Call a function in a child by `start` and `finish`; for `in_child`."""
    return lambda function, *given, prepared, **env: finish(start(function, *given, **env))
