"""Plugins in Python under real hosts: JAX, and a program in C."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import finished
import pytest
from children import command

HERE = Path(__file__).parent

Ended = tuple[int, str, str]


@pytest.fixture
def python(environment: dict[str, str]) -> Callable[..., Ended]:
    """`python(words, NAME=value)` runs a Python; its status, output and errors."""

    def run(*words: str, cwd: Path | None = None, seconds: float = 200, **env: str) -> Ended:
        done = finished.python(*words, seconds=seconds, env={**environment, **env}, cwd=cwd)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def child(python: Callable[..., Ended]) -> Callable[..., str]:
    """Call a function of a file of tests in a child that JAX runs in; for `in_child`."""

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
def host(header_folder: Path) -> Path:
    """The program in C."""
    program = header_folder / "host"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    flags = ["-std=gnu2x", "-Wall", "-Werror", f"-I{header_folder}", "-o", str(program)]
    subprocess.run([*compiler, *flags, str(HERE / "host.c"), "-ldl"], check=True, timeout=60)
    return program
