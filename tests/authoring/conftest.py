"""Clean environments, and the command line in them, away from the checkout."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import finished
import pytest
from children import command

from pjrt_hub.finding.store.catalog import Artifact

ROOT = Path(__file__).parents[2]
Run = Callable[..., str]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel that TESTED_WHEEL names, else with one that is built now."""
    folder = tmp_path_factory.mktemp("wheels")
    if named := os.environ.get("TESTED_WHEEL"):
        shutil.copy(named, folder)
    else:
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", f"--wheel-dir={folder}"]
        subprocess.run([*pip, str(ROOT)], check=True, timeout=600)
    return folder


@pytest.fixture
def extensions(row: Artifact) -> list[str]:
    """The extensions of XLA's CPU plugin; both that came later are at the front of the chain."""
    first = ["PhaseCompile", "FFI", "MemoryDescriptions", "Layouts"]
    came = {"0.81": [], "0.106": ["Shardings"], "0.115": ["XlaTransform", "Shardings"]}
    return came[str(row.api_version)] + first


@pytest.fixture(scope="session")
def child(clean_env: dict[str, str]) -> Run:
    """Call a function in a process of its own; for `in_child`."""

    def child(function: Callable[..., object], *given: object, prepared: bool, **env: str) -> str:
        words, own = command(function, *given, prepared=prepared), {**clean_env, **env}
        ended = finished.run(*words, env=own)
        assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    return child


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, of which nothing is kept: an environment with JAX has 400 MB."""
    path = tmp_path / "empty"
    path.mkdir()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def environment(wheels: Path, tmp_path: Path) -> Mapping[str, str]:
    """As a user has it who never used a plugin; pip finds our wheel beside its index."""
    own = ("PJRT_", "JAX_", "PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    links = " ".join(filter(None, [str(wheels), kept.get("PIP_FIND_LINKS", "")]))
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("jax==0.10.2\njaxlib==0.10.2\n")
    return {
        **kept,
        "PIP_FIND_LINKS": links,
        "PIP_CONSTRAINT": str(constraints),
        "PIP_QUIET": "1",
        "PJRT_HUB_CACHE": str(tmp_path / "cache"),
    }


@pytest.fixture
def run(folder: Path, environment: Mapping[str, str]) -> Run:
    """`run("pjrt-hub", ...)` runs a program in the empty folder and gives what it prints."""

    def to_end(*command: object, status: int = 0, cwd: Path = folder, **env: str) -> str:
        program, *words = command
        if program in ("pjrt-hub", "python"):
            program = Path(sys.executable).with_name(program)
        how = {"cwd": cwd, "env": {**environment, **env}, "stdin": subprocess.DEVNULL}
        ended = finished.run(program, *words, seconds=900, **how)
        assert ended.returncode == status, f"{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    return to_end
