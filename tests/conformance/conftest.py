"""The command, as these tests call it."""

from __future__ import annotations

import os
from pathlib import Path

import finished
import pytest


@pytest.fixture
def check(tmp_path):
    """`check(*words, NAME=value)` runs the command with variables, in a folder of its own."""

    def run(*words, **env):
        words = ("-P", "-m", "pjrt_hub.cli", "check", *words)
        return finished.python(*words, seconds=120, cwd=tmp_path, env={**os.environ, **env})

    return run


@pytest.fixture(scope="session")
def answering(compiled, library):
    """`answering(function, answer)` is the plugin, but for a function: see answers.c."""
    source = Path(__file__).with_name("answers.c")

    def build(function: str, answer: str, seconds: int = 0) -> Path:
        given = {"REAL": f'"{library}"', "FUNCTION": function, "ANSWER": answer}
        words = [f"-D{name}={value}" for name, value in {**given, "SECONDS": seconds}.items()]
        return compiled(f"{function}_{answer}.so", source, "-w", "-shared", *words)

    return build
