"""Plugins in Python under real hosts: JAX, and a program in C."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from children import command

import pjrt_hub

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGE = Path(pjrt_hub.__file__).parents[1]

Ended = tuple[int, str, str]


@pytest.fixture
def environment(clean_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """A process's environment with a cache of its own and none of the user's choices."""
    python_path = os.pathsep.join(filter(None, [str(PACKAGE), clean_env.get("PYTHONPATH", "")]))
    return {**clean_env, "PYTHONPATH": python_path, "PJRT_HUB_CACHE": str(tmp_path / "cache")}


@pytest.fixture
def python(environment: dict[str, str]) -> Callable[..., Ended]:
    """`python(words, NAME=value)` runs a Python; its status, output and errors."""

    def run(*words: str, cwd: Path | None = None, seconds: float = 200, **env: str) -> Ended:
        done = subprocess.run(
            [sys.executable, *words],
            env={**environment, **env},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def child(python: Callable[..., Ended]) -> Callable[..., str]:
    """Calls a function of a file of tests in a child that JAX runs in; for `in_child`."""

    def child(
        function: Callable[..., object], *arguments: object, prepared: bool = False, **env: str
    ) -> str:
        words = command(function, *arguments, prepared=prepared)[1:]
        status, printed, errors = python(*words, **{"JAX_PLATFORMS": "stablehlo", **env})
        assert status == 0, printed + errors
        assert "Traceback" not in errors, errors
        return printed

    return child


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in C."""
    folder = tmp_path_factory.mktemp("host")
    sys.path.insert(0, str(ROOT / "tools"))
    import capi

    sys.path.remove(str(ROOT / "tools"))
    (folder / "pjrt_api.h").write_text(capi.header(capi.read()))
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    flags = ["-std=gnu2x", "-Wall", "-Werror", f"-I{folder}", "-o", str(folder / "host")]
    subprocess.run([*compiler, *flags, str(HERE / "host.c"), "-ldl"], check=True, timeout=60)
    return folder / "host"
