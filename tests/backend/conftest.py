"""Plugins in Python under real hosts: JAX, and a program in C."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import finished
import pytest
from children import command

import pjrt_hub
from pjrt_hub.kit import authoring
from pjrt_hub.kit.authoring.reference import Reference

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


@pytest.fixture
def host(compiled: Callable[..., Path]) -> Callable[[Path], Ended]:
    """`host(library)` runs the program in C; its status, output and errors."""
    program = compiled("host", Path(__file__).with_name("host.c"), "-std=gnu2x")

    def run(library: Path) -> Ended:
        done = finished.run(program, library, env={}, seconds=60)
        return done.returncode, done.stdout, done.stderr

    return run
