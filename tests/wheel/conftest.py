"""The wheel, and clean environments that hold it and what it requires."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")


@pytest.fixture(scope="session")
def call(clean_env):
    """Runs a command away from the checkout, without the user's choices of a plugin."""

    def call(*command, status=0, cwd="/", **env):
        done = subprocess.run(
            [*map(str, command)],
            capture_output=True,
            text=True,
            timeout=600,
            cwd=cwd,
            env={**clean_env, **{name: str(value) for name, value in env.items()}},
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return call


@pytest.fixture(scope="session")
def wheel(call, tmp_path_factory):
    """The wheel that TESTED_WHEEL names, else one that is built now."""
    if named := os.environ.get("TESTED_WHEEL"):
        return Path(named)
    folder = tmp_path_factory.mktemp("wheel")
    call(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", f"--wheel-dir={folder}", ROOT)
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def install(call, wheel, tmp_path_factory):
    """Installs the wheel for an interpreter and gives the folder of the environment's programs."""

    def install(interpreter):
        root = tmp_path_factory.mktemp("environment")
        call(interpreter, "-m", "venv", root)
        call(root / "bin" / "pip", "install", "-q", wheel)
        return root / "bin"

    return install


def find_python(version):
    """Gives a working interpreter of that version, or None; pyenv's may be hidden by a shim."""
    for folder in ("", *Path.home().glob(f".pyenv/versions/{version}*/bin")):
        path = shutil.which(f"python{version}", path=folder or None)
        if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    return None


@pytest.fixture(scope="session", params=PYTHONS)
def each_python(request, install):
    """An environment of each Python that is here."""
    interpreter = find_python(request.param)
    if interpreter is None:
        pytest.skip(f"Python {request.param} is not here")
    return install(interpreter)


@pytest.fixture(scope="session")
def old_python():
    """The interpreter of the newest Python that is too old."""
    interpreter = find_python("3.10")
    if interpreter is None:
        pytest.skip("Python 3.10 is not here")
    return interpreter


@pytest.fixture(scope="session")
def environment(install):
    """An environment of the tests' own Python, without any plugin."""
    return install(sys.executable)
