"""Plugins in Python under real hosts: JAX, and a program in C."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import finished
import pytest
from children import command

import pjrt_hub
from pjrt_hub.kit import authoring
from pjrt_hub.kit.authoring.reference import Reference

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


@pytest.fixture(scope="module")
def client() -> Iterator[pjrt_hub.Client]:
    """A client of the reference plugin with two devices."""
    with authoring.plugin(Reference()).client({"devices": 2}) as client:
        yield client


@pytest.fixture(scope="session")
def compiled(header_folder: Path) -> Callable[..., Path]:
    """`compiled("host", flag)` compiles the program in C to a file of this name."""

    def compiled(name: str, *more: str) -> Path:
        compiler = (sysconfig.get_config_var("CC") or "cc").split()
        flags = ["-std=gnu2x", "-Wall", "-Werror", f"-I{header_folder}", *more]
        command = [*compiler, *flags, "-o", header_folder / name, HERE / "host.c", "-ldl"]
        subprocess.run(command, check=True, timeout=60)
        return header_folder / name

    return compiled


@pytest.fixture
def host(compiled: Callable[..., Path]) -> Callable[[Path], Ended]:
    """`host(library)` runs the program in C; its status, output and errors."""

    def run(library: Path) -> Ended:
        done = finished.run(compiled("host"), library, env={}, seconds=60)
        return done.returncode, done.stdout, done.stderr

    return run
