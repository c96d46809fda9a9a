"""docs/python_plugins.md: its plugin works as it says, and what it shows is what is printed."""

import os
import re
from pathlib import Path

import pytest

from .conftest import page, printed

PAGE = page("python_plugins.md")
FENCED = r"```\w*\n(.*?)```"


def marked(mark: str) -> list[str]:
    """The blocks of code behind a mark."""
    return re.findall(rf"<!-- {re.escape(mark)} -->\n{FENCED}", PAGE, re.DOTALL)


def shown(mark: str) -> list[tuple[str, str]]:
    both = rf"<!-- {re.escape(mark)} -->\n{FENCED}\s*<!-- prints -->\n{FENCED}"
    return re.findall(both, PAGE, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    [code] = marked("file: calculator.py")
    (tmp_path / "calculator.py").write_text(code)
    return tmp_path


def run(folder: Path, *words: str, status: int = 0, **env: str) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PJRT_", "JAX_"))}
    env = {**kept, "PJRT_HUB_CACHE": str(folder / "cache"), **env}
    return printed(*words, status=status, cwd=folder, env=env)


@pytest.mark.parametrize("number", range(2))
def test_the_code_prints_what_is_shown(folder, number):
    code, told = shown("run")[number]
    assert run(folder, "-c", code) == told


def test_jax_shows_the_devices(folder):
    pytest.importorskip("jax")
    [(code, told)] = shown("run in jax")
    assert run(folder, "-c", code, JAX_PLATFORMS="calculator") == told


def test_the_command_makes_a_library_that_runs(folder):
    [command] = marked("command")
    program, *words = command.split()
    assert program == "pjrt-hub"
    run(folder, "-m", "pjrt_hub.cli", *words)
    [(code, _), _] = shown("run")
    (folder / "square.mlir").write_text(re.search(r'PROGRAM = """(.*?)"""', code, re.DOTALL)[1])
    command = "run square.mlir --platform ./libcalculator.so --arg f32[4]:3 --arg f32[4]:3"
    assert f"pjrt-hub {command}" in PAGE
    assert run(folder, "-m", "pjrt_hub.cli", *command.split()).startswith("[9. 9. 9. 9.]")
    areas = ("--area=client", "--area=compile")
    checked = run(folder, "-m", "pjrt_hub.cli", "check", "./libcalculator.so", *areas, status=1)
    assert "\nfail     basics.artifact " in checked
    assert ", 1 cause of 1 defect, " in checked
