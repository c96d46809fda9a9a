"""The loader's source: short, without warnings, of no other header, on more than one compiler."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from programs import LOADER, SANITIZERS, WARNINGS, compile_program, compiler

SOURCE, HEADER = LOADER / "pjrt_loader.c", LOADER / "pjrt_loader.h"
#: clang for Linux, also with musl, and for other systems; nothing of theirs is run.
TARGETS = ("x86_64-linux-gnu.2.28", "x86_64-linux-musl", "aarch64-linux-gnu.2.28", "aarch64-macos")


def build(command: list[str], *words: object) -> str:
    done = subprocess.run([*command, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_one_file_of_at_most_1500_lines():
    assert len(SOURCE.read_text().splitlines()) <= 1500


def test_the_header_includes_only_two_of_the_language():
    assert re.findall("#include (.+)", HEADER.read_text()) == ["<stddef.h>", "<stdint.h>"]


@pytest.mark.parametrize("optimization", ["-O0", "-O2"])
@pytest.mark.parametrize("name", ["", "clang", "tcc", "musl-gcc"])
def test_it_compiles_without_warnings(name: str, optimization: str, tmp_path: Path):
    command = [name] if name else compiler()
    if not shutil.which(command[0]):
        pytest.skip(f"there is no {command[0]}")
    flags = ("-std=c11", *WARNINGS, optimization, "-c", SOURCE, "-o", tmp_path / "loader.o")
    build(command, *flags)
    build(command, "-D_GNU_SOURCE", *flags)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_clang_compiles_it_for_other_systems(target: str, tmp_path: Path):
    if not find_spec("ziglang"):
        pytest.skip("there is no ziglang, which brings clang and the headers of other systems")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-std=c11"]
    build([*command, *WARNINGS, "-O2"], "-c", SOURCE, "-o", tmp_path / "loader.o")


def test_the_header_is_one_of_cpp(tmp_path: Path):
    (tmp_path / "a.cc").write_text(
        '#include "pjrt_loader.h"\n#include "pjrt_loader.h"\n'
        "int main() { pjrt_loader_close(pjrt_loader_open(nullptr, nullptr, nullptr)); }\n"
    )
    build(compiler(), "-std=c11", "-O2", "-c", SOURCE, "-o", tmp_path / "loader.o")
    command = [*compiler("CXX"), "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    build(
        command,
        f"-I{LOADER}",
        tmp_path / "a.cc",
        tmp_path / "loader.o",
        "-o",
        tmp_path / "a",
        "-pthread",
        "-ldl",
    )
    build([str(tmp_path / "a")])


def test_it_exports_its_public_functions_alone(tmp_path: Path):
    build(compiler(), "-std=c11", "-c", SOURCE, "-o", tmp_path / "loader.o")
    listed = build(["nm", "-g", "--defined-only"], tmp_path / "loader.o")
    declared = set(re.findall(r"\b(pjrt_loader_\w+)\(", HEADER.read_text()))
    assert {line.split()[-1] for line in listed.splitlines()} == declared
    assert len(declared) == 9


def test_the_page_has_a_program_that_runs(tmp_path: Path):
    page = (LOADER / "README.md").read_text()
    [example] = re.findall("```c\n(.*?)```", page, re.DOTALL)
    [line] = re.findall("```console\n(.*?)```", page, re.DOTALL)
    for path in (SOURCE, HEADER):
        shutil.copy(path, tmp_path)
    (tmp_path / "program.c").write_text(example)
    subprocess.run(line, shell=True, check=True, cwd=tmp_path, timeout=120)
    done = subprocess.run(
        [tmp_path / "program"], env={}, capture_output=True, text=True, timeout=60
    )
    assert done.stderr.startswith("no plugin can be opened on this machine")
    assert done.returncode == 1
    functions = set(re.findall(r"`(pjrt_loader_\w+)\(\)`", page))
    assert functions == set(re.findall(r"\b(pjrt_loader_\w+)\(", HEADER.read_text()))


def test_the_digest_is_sha256(tmp_path: Path):
    program = compile_program(tmp_path, "digest.c", *SANITIZERS)
    sizes = [*range(135), 1000, 4095, 4096, 4097, 100_000]
    for size in sizes:
        (tmp_path / f"{size}.bin").write_bytes(bytes(each % 251 for each in range(size)))
    told = build([str(program)], *(tmp_path / f"{size}.bin" for size in sizes)).split()
    files = [(tmp_path / f"{size}.bin").read_bytes() for size in sizes]
    assert told == [hashlib.sha256(content).hexdigest() for content in files]
