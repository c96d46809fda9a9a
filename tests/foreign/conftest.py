"""Plugins of others: libraries that TESTED_PLUGINS names, or those of installed wheels.

TESTED_PLUGINS=mlx=/path/lib.so,opencl=/path/lib.so names libraries by what they will be called;
the variables that such a plugin reads stay in the environment.
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

#: Name of a plugin on the package index that needs no hardware -> its name in our list.
FROM_WHEELS = {"xlacpu": "cpu"}


class Plugin(NamedTuple):
    """A library, and the name that it gets in its package."""

    name: str
    library: Path


def named() -> dict[str, str]:
    """The plugins of TESTED_PLUGINS: name -> path."""
    pairs = filter(None, os.environ.get("TESTED_PLUGINS", "").split(","))
    return dict(pair.split("=", 1) for pair in pairs)


@pytest.fixture(scope="session", params=[*FROM_WHEELS, *(named() or ["none named"])])
def plugin(request: pytest.FixtureRequest) -> Plugin:
    """Each plugin that is tested."""
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
    """The environment of a user who never used a plugin, with the variables that plugins read."""
    ours = ("PJRT_HUB_", "PJRT_NAMES", "JAX_", "PYTHON", "VIRTUAL_ENV", "TESTED_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    cache = tmp_path_factory.mktemp("cache")
    return {**kept, "PJRT_HUB_CACHE": str(cache), "PJRT_HUB_OFFLINE": "1", "PIP_QUIET": "1"}


@pytest.fixture(scope="session")
def run(environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`run(program, ...)` runs a program away from the checkout; it must end with `status`."""
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
    """The sum of two f32[2,3] in the form that JAX sends, which every plugin reads."""
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
    """The wheel that `pjrt-hub pack` makes of the library."""
    folder = tmp_path_factory.mktemp("packed")
    words = ("--name", plugin.name, "--version", "1.0", "--license", "MIT", "--output", folder)
    run("pjrt-hub", "pack", plugin.library, *words)
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def installed(wheel: Path, run: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The programs' folder of an environment with pjrt-hub and that wheel; it is removed later."""
    root = tmp_path_factory.mktemp("environment")
    ours = os.environ.get("TESTED_WHEEL", str(ROOT))
    run(sys.executable, "-m", "venv", root)
    run(root / "bin" / "pip", "install", ours, wheel)
    yield root / "bin"
    shutil.rmtree(root)
