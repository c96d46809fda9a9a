"""The loader in C finds what every reader of manifests must, word for word."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cases import CASES
from manifest_trees import Case
from programs import SANITIZERS, compile_program

from pjrt_hub.base.host import HostTag

Ask = Callable[[Path, dict[str, str]], list[str]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """`ask(root, env)` gives the lines of the loader, from one process that answers all cases."""
    program = compile_program(tmp_path_factory.mktemp("list"), "list.c", *SANITIZERS)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout

        def ask(root: Path, env: dict[str, str]) -> list[str]:
            lines = [str(root), *(f"{name}={value}" for name, value in env.items()), "", ""]
            process.stdin.write("\n".join(lines).encode())
            process.stdin.flush()
            answer = iter(process.stdout.readline, b"")
            found = []
            for line in answer:
                if line == b"\n":
                    return found
                found.append(line.decode("utf-8", "replace").removesuffix("\n"))
            raise AssertionError(f"the program ended after {found}")

        yield ask
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_loader_says_what_every_reader_must(case: Case, tmp_path: Path, ask: Ask):
    if case.only and (case.only == "root") != (os.geteuid() == 0):
        pytest.skip(f"needs the rights of {case.only}")
    env = case.write(tmp_path)
    found = ask(tmp_path / "system", env)
    assert found == case.expected(tmp_path, str(HostTag.current()))
