"""The built wheel, installed by itself in a clean environment of every Python that is here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")
ADD = """func.func @main(%a: tensor<2xf32>, %b: tensor<2xf32>) -> tensor<2xf32> {
  %sum = stablehlo.add %a, %b : tensor<2xf32>
  return %sum : tensor<2xf32>
}
"""


def call(*command, **env):
    """Runs a command outside of the checkout and gives what it printed."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, cwd="/", env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel that PJRT_HUB_WHEEL names, else one that is built now."""
    if named := os.environ.get("PJRT_HUB_WHEEL"):
        return Path(named)
    folder = tmp_path_factory.mktemp("wheel")
    call(
        sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", f"--wheel-dir={folder}", str(ROOT)
    )
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session", params=PYTHONS)
def environment(request, wheel, tmp_path_factory):
    """The programs' folder of a clean environment that holds the wheel and what it requires."""
    interpreter = shutil.which(f"python{request.param}")
    version = "import sys; print('%d.%d' % sys.version_info[:2])"
    found = interpreter and subprocess.run([interpreter, "-c", version], capture_output=True)
    if not found or found.stdout.decode().strip() != request.param:
        pytest.skip(f"Python {request.param} is not here")
    root = tmp_path_factory.mktemp(f"python{request.param}")
    call(interpreter, "-m", "venv", str(root))
    call(str(root / "bin" / "pip"), "install", "-q", str(wheel))
    return root / "bin"


def test_one_wheel_serves_every_python(wheel):
    python, abi, platform = wheel.stem.split("-")[-3:]
    assert (python, abi) == ("cp311", "abi3")
    assert platform.startswith(("linux_", "manylinux"))


def test_the_wheel_holds_what_is_used_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pjrt_hub", "pjrt_plugins"}
    wanted = ["pjrt_hub/py.typed", "pjrt_hub/registry/cpu.toml"]
    wanted += [f"pjrt_plugins/{name}/pjrt_plugin.toml" for name in ("cpu", "cuda", "rocm", "tpu")]
    assert [name for name in wanted if name not in names] == []
    assert [name for name in names if name.endswith((".c", ".h", ".o", ".pjrt"))] == []
    assert "pjrt_plugins/__init__.py" not in names


def test_every_module_imports(environment):
    code = (
        "import importlib, pkgutil, pjrt_hub\n"
        "for module in pkgutil.walk_packages(pjrt_hub.__path__, 'pjrt_hub.'):\n"
        "    importlib.import_module(module.name)\n"
        "print(pjrt_hub.__file__)"
    )
    where = call(str(environment / "python"), "-W", "error", "-c", code)
    assert Path(where.strip()).is_relative_to(environment.parent)


def test_the_command_lists_the_plugins(environment, tmp_path):
    command = str(environment / "pjrt-hub")
    assert call(command, "--version").startswith("pjrt-hub 0.")
    listed = json.loads(call(command, "list", "--json", PJRT_HUB_CACHE=str(tmp_path)))
    assert {"cpu", "cuda", "rocm", "tpu"} <= {found["platform"] for found in listed}


def test_the_requirements_of_each_extra_are_known(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    extras = {
        line.split()[1] for line in metadata.splitlines() if line.startswith("Provides-Extra")
    }
    assert {"cpu", "cuda", "cuda12", "cuda13", "jax", "oneapi", "rocm", "torch", "tpu"} <= extras


def test_an_installed_plugin_runs_without_the_network(environment, tmp_path):
    call(str(environment / "pip"), "install", "-q", "xla-cpu-pjrt==0.0.1")
    (tmp_path / "add.mlir").write_text(ADD)
    printed = call(
        *(str(environment / "pjrt-hub"), "run", str(tmp_path / "add.mlir"), "--platform", "cpu"),
        *("--arg", "f32[2]:1,2", "--arg", "f32[2]:10", "--offline", "--json"),
        PJRT_HUB_CACHE=str(tmp_path / "cache"),
    )
    assert json.loads(printed)["results"] == [
        {"dtype": "float32", "shape": [2], "data": [11.0, 12.0]}
    ]
