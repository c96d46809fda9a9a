"""JAX in children, on the real XLA CPU plugin as pjrt-hub registers it."""

from __future__ import annotations

import importlib.metadata
import os
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import finished
import pytest
from children import IS_CPU, command

import pjrt_hub
from pjrt_hub.finding.store.catalog import Artifact

PACKAGE = Path(pjrt_hub.__file__).parents[1]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that are about the CPU plugin if another plugin is tested."""
    for mark in item.iter_markers("cpu"):
        if not IS_CPU:
            pytest.skip(f"about the CPU plugin: {mark.args[0]}")


class Ended(NamedTuple):
    """How a child ended."""

    status: int
    printed: str
    errors: str


@pytest.fixture(scope="session")
def entry_points(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Folders for PYTHONPATH where JAX finds the entry point; none where the wheel is installed."""
    try:
        importlib.metadata.distribution("pjrt-hub")
        return []
    except importlib.metadata.PackageNotFoundError:
        project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    folder = tmp_path_factory.mktemp("installed")
    info = folder / "pjrt_hub-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pjrt-hub\nVersion: 0\n")
    points = project["entry-points"]["jax_plugins"].items()
    lines = [f"{name} = {value}\n" for name, value in points]
    (info / "entry_points.txt").write_text("[jax_plugins]\n" + "".join(lines))
    return [str(folder)]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cache of the session's own, so that the first contact is made once."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def environment(entry_points: list[str], cache: str) -> dict[str, str]:
    """A child's environment with none of the user's choices."""
    ours = ("PJRT_", "JAX_", "XLA_", "TF_")
    if "TESTED_PLATFORM" in os.environ:  # whoever sets it may set layers, too
        ours = ("PJRT_HUB_CACHE", "JAX_", "XLA_", "TF_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    if layers := kept.get("PJRT_HUB_LAYERS"):  # without `pad` they refuse a plugin newer than JAX
        kept["PJRT_HUB_LAYERS"] = f"{layers},pad"
    folders = [*entry_points, str(PACKAGE), str(Path(__file__).parent), kept.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, folders))
    return {**kept, "PJRT_HUB_CACHE": cache, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"}


@pytest.fixture
def counts_costs(row: Artifact) -> bool:
    """Whether the plugin counts what a program costs; XLA's later builds for CPUs do not."""
    return str(row.api_version) == "0.81"


@pytest.fixture
def python(environment: dict[str, str], tmp_path: Path) -> Callable[..., Ended]:
    """`python(script, *words, NAME=value)` runs a script in a child."""

    def run(script: str, *words: str, **env: str) -> Ended:
        given, own = ("-c", textwrap.dedent(script), *words), {**environment, **env}
        done = finished.python(*given, seconds=200, env=own, cwd=tmp_path)
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def child(environment: dict[str, str], tmp_path: Path) -> Callable[..., str]:
    """Call a function where JAX's default device is one of the plugin's four; for `in_child`."""

    def child(function: Callable[..., object], *arguments: object, prepared: bool = False) -> str:
        own = {"PJRT_HUB_JAX": "cpu", "JAX_PJRT_CLIENT_CREATE_OPTIONS": "cpu_device_count:4"}
        words = command(function, *arguments, prepared=prepared)
        done = finished.run(*words, seconds=200, env={**environment, **own}, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    return child
