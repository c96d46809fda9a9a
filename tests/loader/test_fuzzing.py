"""The parsers of the loader in C under inputs that nobody wrote, and without memory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cases import CASES
from manifest_trees import HEAD, File
from programs import SANITIZERS, compile_program

#: The length of the run; the session `loader` takes longer.
SECONDS = os.environ.get("TESTED_SECONDS", "2")
MORE = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n",
    "cuda*,*pu, cpu , ,a_long*32*",
    "linux-x86_64-glibc2.17",
    "/a/./b//../c/",
)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every manifest of the cases, and what the other parsers read."""
    texts = {text.encode() for text in MORE}
    for case in CASES:
        for name, given in case.files.items():
            content = given.content if isinstance(given, File) else given
            if name.endswith(".toml"):
                texts.add(content if isinstance(content, bytes) else content.encode())
    folder = tmp_path_factory.mktemp("seeds")
    for number, text in enumerate(sorted(texts)):
        (folder / str(number)).write_bytes(text[:65536].replace(b"{root}", b"/r"))
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("fuzz"), "fuzz.c", "-O1", *SANITIZERS)


def told(*words: object) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


def test_no_input_breaks_the_loader(fuzz: Path, seeds: list[Path]):
    assert len(seeds) > 900
    start = os.getpid()
    print(f"TESTED_SECONDS={SECONDS}, start {start}")
    found = told(fuzz, SECONDS, start, *seeds)
    print(found)
    runs, taken = map(int, re.findall(r"\d+", found))
    assert runs > 1000
    assert taken > 10


def test_no_allocation_that_fails_breaks_it(fuzz: Path, seeds: list[Path]):
    assert told(fuzz, "memory", 0, *seeds).startswith(f"{len(seeds)} seeds")


@pytest.mark.slow
def test_valgrind_finds_nothing(seeds: list[Path], stub, tmp_path: Path):
    if not shutil.which("valgrind"):
        pytest.skip("there is no valgrind")
    program = compile_program(tmp_path, "open.c", "-g", "-O1")
    folder = tmp_path / "m"
    folder.mkdir()
    for number, path in enumerate(seeds[:200]):
        shutil.copy(path, folder / f"p{number}.toml")
    option = "[options.a]\ntype = 'string'\ndefault = 'b'\n"
    (folder / "toy.toml").write_text(f"{HEAD}{option}[[library]]\npath = '{stub()}'\n")
    command = ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", str(program)]
    words = ["list", "nothing", "verify", "toy", "toy", str(stub()), "api=1.0", "toy"]
    words += ["merge", "a=string:c"]
    env = {"PJRT_PLUGIN_MANIFESTS": str(folder), "PATH": os.environ["PATH"]}
    done = subprocess.run([*command, *words], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert 'a (1) = "c"' in done.stdout
