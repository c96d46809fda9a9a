"""Programs in C around `loader/`, compiled by the system's compiler."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LOADER = HERE.parents[1] / "loader"
#: What every file compiles without.
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
#: What finds mistakes as they happen.
SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def compiler(variable: str = "CC") -> list[str]:
    """Give the command of the C or the C++ compiler, or skip the test."""
    command = shlex.split(sysconfig.get_config_var(variable) or variable.lower().replace("x", "+"))
    if not shutil.which(command[0]):
        pytest.skip(f"there is no compiler {command[0]}, so loader/ is not tested")
    return command


def compile_program(folder: Path, source: str, *flags: str) -> Path:
    """Compile a program of this folder with the loader; it includes its source, or links it."""
    text = (HERE / source).read_text()
    linked = [] if '"pjrt_loader.c"' in text else [str(LOADER / "pjrt_loader.c")]
    program = folder / f"{source.removesuffix('.c')}{len(list(folder.iterdir()))}"
    command = [*compiler(), "-std=c11", *WARNINGS, *flags, f"-I{LOADER}", str(HERE / source)]
    command += [*linked, "-o", str(program), "-pthread", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return program


def api_folder() -> Path:
    """Give the folder of the C API's header."""
    from pjrt_hub.kit import authoring

    return Path(authoring.__path__[0]) / "c"
