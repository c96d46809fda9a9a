"""Writes and compiles the C and C++ plugins of `pjrt-hub new`, in which tests plant mistakes."""

import subprocess
from pathlib import Path
from typing import Literal

from pjrt_hub.kit import authoring

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
#: Flags that declare the functions which some mistakes call.
POSIX = ["-D_GNU_SOURCE", *(f"-include{name}.h" for name in ("signal", "unistd", "stdlib"))]
COMPILERS = {
    "gcc": ["gcc", "-std=c11"],
    "g++": ["g++", "-std=c++17"],
    "clang": ["clang", "-std=c11"],
    "clang++": ["clang++", "-std=c++17"],
}


def write(folder: Path, language: Literal["c", "c++"] = "c", *, example: bool = True) -> Path:
    """Write a project, and return the source file that describes its device."""
    project, package = authoring.new(
        "mychip", language=language, example=example, into=folder / "mychip-pjrt"
    )
    return project / "native" / package.source


def build(source: Path, compiler: str = "gcc", *flags: str) -> Path:
    """Compile a plugin beside its source, and return the library."""
    library = source.with_name("mychip.so")
    command = [*COMPILERS[compiler], "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden", *flags]
    subprocess.run([*command, "-o", library, source, "-lm", "-pthread"], check=True, timeout=300)
    return library
