"""The command, as these tests call it."""

from __future__ import annotations

import os
import subprocess
import sysconfig
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
def answering(header_folder, library):
    """`answering(function, answer)` is the plugin, but for a function: see answers.c."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()

    def build(function: str, answer: str, seconds: int = 0) -> Path:
        path = header_folder / f"{function}_{answer}.so"
        given = {"REAL": f'"{library}"', "FUNCTION": function, "ANSWER": answer}
        words = [f"-D{name}={value}" for name, value in {**given, "SECONDS": seconds}.items()]
        flags = ["-std=c11", "-w", "-fPIC", "-shared", f"-I{header_folder}", *words]
        source = str(Path(__file__).with_name("answers.c"))
        command = [*compiler, *flags, "-o", str(path), source, "-ldl"]
        subprocess.run(command, check=True, timeout=60)
        return path

    return build
