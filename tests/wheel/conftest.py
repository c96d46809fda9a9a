"""The wheel, and clean environments that hold it and what it requires."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")


@pytest.fixture(scope="session")
def call(clean_env):
    """Run a command away from the checkout, without the user's choices of a plugin."""

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
def build(call, tmp_path_factory):
    """Build the wheel by an interpreter."""

    def build(interpreter):
        folder = tmp_path_factory.mktemp("wheel")
        call(interpreter, "-m", "pip", "wheel", "-q", "--no-deps", f"--wheel-dir={folder}", ROOT)
        [path] = folder.glob("*.whl")
        return path

    return build


@pytest.fixture(scope="session")
def wheel(build):
    """The wheel that TESTED_WHEEL names, else one that is built now."""
    named = os.environ.get("TESTED_WHEEL")
    return Path(named) if named else build(sys.executable)


@pytest.fixture(scope="session")
def uv():
    """The program uv, of the tests' own environment."""
    return Path(sys.executable).with_name("uv")


@pytest.fixture(scope="session")
def install(call, uv, wheel, tmp_path_factory):
    """Installs a wheel for an interpreter and gives the folder of the environment's programs."""

    def install(interpreter, wheel=wheel):
        programs = tmp_path_factory.mktemp("environment") / "bin"
        call(uv, "venv", "-q", "--seed", "--python", interpreter, programs.parent)
        call(uv, "pip", "install", "-q", "--python", programs / "python", wheel)
        return programs

    return install


def find_python(version):
    """Give a working interpreter of that version, or None; pyenv's may be hidden by a shim."""
    for folder in ("", *Path.home().glob(f".pyenv/versions/{version}*/bin")):
        path = shutil.which(f"python{version}", path=folder or None)
        if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    return None


@pytest.fixture(scope="session", params=PYTHONS)
def each_python(request, install, build):
    """An environment of each Python that is here; one without a GIL has a wheel of its own."""
    interpreter = find_python(request.param)
    if interpreter is None:
        pytest.skip(f"Python {request.param} is not here")
    return install(interpreter, *[build(interpreter)] * request.param.endswith("t"))


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
