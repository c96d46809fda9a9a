"""Plugins that nobody here made: built elsewhere and named in TESTED_PLUGINS, or from wheels.

TESTED_PLUGINS=mlx=/path/lib.so,opencl=/path/lib.so names libraries by what they will be called;
what such a plugin reads from the environment is left in it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

import pjrt_hub

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]

#: name of a plugin of the package index that needs no hardware -> what it is listed as
FROM_WHEELS = {"xlacpu": "cpu"}


class Plugin(NamedTuple):
    """A library, and what it will be called in its package."""

    name: str
    library: Path


def named() -> dict[str, str]:
    """The plugins of TESTED_PLUGINS: name -> path."""
    pairs = filter(None, os.environ.get("TESTED_PLUGINS", "").split(","))
    return dict(pair.split("=", 1) for pair in pairs)


@pytest.fixture(scope="session", params=[*FROM_WHEELS, *(named() or ["none named"])])
def plugin(request: pytest.FixtureRequest) -> Plugin:
    """Each plugin."""
    name = request.param
    if name in FROM_WHEELS:
        wanted = FROM_WHEELS[name]
        [found] = [each for each in pjrt_hub.plugins(wanted, offline=True) if each.chosen]
        if found.library_path is None:
            pytest.skip(f"the wheel of {wanted} is not installed")
        return Plugin(name, found.library_path)
    if name not in named():
        pytest.skip("TESTED_PLUGINS names no plugin: TESTED_PLUGINS=name=/path/lib.so,...")
    library = Path(named()[name])
    if not library.exists():
        pytest.skip(f"{library}, which TESTED_PLUGINS names for {name}, is not there")
    return Plugin(name, library)


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """As a user has it who never used a plugin, with what the plugins themselves read."""
    ours = ("PJRT_HUB_", "PJRT_NAMES", "JAX_", "PYTHON", "VIRTUAL_ENV", "TESTED_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    cache = tmp_path_factory.mktemp("cache")
    return {**kept, "PJRT_HUB_CACHE": str(cache), "PJRT_HUB_OFFLINE": "1", "PIP_QUIET": "1"}


@pytest.fixture(scope="session")
def run(environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`run(program, ...)` runs a program away from the checkout; it must end with that status."""
    folder = tmp_path_factory.mktemp("work")

    def to_end(
        *command: object, status: int | None = 0, seconds: float = 600, **env: str
    ) -> object:
        words = [str(word) for word in command]
        if words[0] in ("pjrt-hub", "python"):
            words[0] = str(Path(sys.executable).parent / words[0])
        ended = subprocess.run(
            words,
            cwd=folder,
            env={**environment, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",  # plugins write what they like
            timeout=seconds,
        )
        said = f"{words}\n{ended.stdout}\n{ended.stderr}"
        assert status in (None, ended.returncode), said
        assert "Traceback" not in ended.stderr, said
        return ended

    return to_end  # type: ignore[return-value]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sum of two f32[2,3] as JAX sends it, which is what every plugin reads."""
    import jax
    import numpy as np
    from jaxlib.mlir.dialects import stablehlo

    matrix = jax.ShapeDtypeStruct((2, 3), np.float32)
    module = jax.jit(lambda a, b: a + b).lower(matrix, matrix).compiler_ir("stablehlo")
    path = tmp_path_factory.mktemp("program") / "add.mlirbc"
    path.write_bytes(stablehlo.serialize_portable_artifact(module, "1.8.0"))
    return path


@pytest.fixture(scope="session")
def wheel(plugin: Plugin, run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pjrt-hub pack` makes of the library."""
    folder = tmp_path_factory.mktemp("packed")
    words = ("--name", plugin.name, "--version", "1.0", "--license", "MIT", "--output", folder)
    run("pjrt-hub", "pack", plugin.library, *words)
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def installed(wheel: Path, run: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The programs of an environment with pjrt-hub and that wheel, of which nothing is kept."""
    root = tmp_path_factory.mktemp("environment")
    ours = os.environ.get("TESTED_WHEEL", str(ROOT))
    run(sys.executable, "-m", "venv", root)
    run(root / "bin" / "pip", "install", ours, wheel)
    yield root / "bin"
    shutil.rmtree(root)
