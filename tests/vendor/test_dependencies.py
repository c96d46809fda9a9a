"""Which ptxas and libdevice a real CUDA plugin takes, and which one the doctor names.

The plugin for CUDA 12 is an old one, which has no other compiler.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from pjrt_hub.base.host import HostTag
from pjrt_hub.door import dependencies
from pjrt_hub.door.dependencies import Opening
from pjrt_hub.finding.contract import manifest
from pjrt_hub.finding.discovery.installed import Installed
from pjrt_hub.finding.discovery.source import FIRST_PARTY, World

[CUDA12] = [
    each
    for each in manifest.read(FIRST_PARTY / "pjrt_plugins" / "cuda" / "pjrt_plugin.toml")
    if each.name == "cuda12"
]
#: Tells a version, and says its own name where it is to compile, which it does not.
PTXAS = """#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release {0}, V{0}.1"; exit {1}; fi
echo "called $0" >&2; exit 3
"""
COMPILE = """
import sys, pjrt_hub
program = '''func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.power %x, %x : tensor<8xf32>
  return %0 : tensor<8xf32>
}'''
try:
    pjrt_hub.topology(sys.argv[1], "H100").compile(program)
except pjrt_hub.errors.PjrtError as exc:
    print(exc)
"""


def ptxas(folder: Path, release: str = "12.9", status: int = 0) -> Path:
    """A ptxas of a CUDA below that folder, with which every compilation fails."""
    path = folder / "bin" / "ptxas"
    path.parent.mkdir(parents=True)
    path.write_text(PTXAS.format(release, status))
    path.chmod(0o755)
    return path


def on_path(*files: Path) -> dict[str, str]:
    return {"PATH": os.pathsep.join([*(str(each.parent) for each in files), "/usr/bin", "/bin"])}


def flag(folder: Path) -> dict[str, str]:
    return {"XLA_FLAGS": f"--xla_gpu_cuda_data_dir={folder}"}


def none(root: Path) -> dict[str, str]:
    return on_path()


def path(root: Path) -> dict[str, str]:
    return on_path(ptxas(root / "a"))


def first_of_path(root: Path) -> dict[str, str]:
    return on_path(ptxas(root / "a"), ptxas(root / "b"))


def of_another_cuda(root: Path) -> dict[str, str]:
    return on_path(ptxas(root / "a", "12.6"), ptxas(root / "b"))


def too_old(root: Path) -> dict[str, str]:
    return on_path(ptxas(root / "a", "11.7"), ptxas(root / "b"))


def oldest(root: Path) -> dict[str, str]:
    return on_path(ptxas(root / "a", "11.8"), ptxas(root / "b"))


def broken(root: Path) -> dict[str, str]:
    return on_path(ptxas(root / "a", status=1), ptxas(root / "b"))


def no_program(root: Path) -> dict[str, str]:
    ptxas(root / "a").chmod(0o644)
    return on_path(root / "a" / "bin" / "ptxas", ptxas(root / "b"))


def named_by_the_flag(root: Path) -> dict[str, str]:
    ptxas(root / "mine")
    return {**on_path(ptxas(root / "a")), **flag(root / "mine")}


def flag_without_it(root: Path) -> dict[str, str]:
    return {**on_path(ptxas(root / "a")), **flag(root / "nowhere")}


def in_the_working_directory(root: Path) -> dict[str, str]:
    ptxas(root / "cuda_sdk_lib")
    return on_path(ptxas(root / "a"))


def beside_the_plugin(root: Path) -> dict[str, str]:
    ptxas(root / "site" / "nvidia" / "cuda_nvcc")
    return on_path()


def path_before_the_wheel(root: Path) -> dict[str, str]:
    ptxas(root / "site" / "nvidia" / "cuda_nvcc")
    return on_path(ptxas(root / "a", "12.6"))


CASES: list[Callable[[Path], dict[str, str]]] = [
    none,
    path,
    first_of_path,
    of_another_cuda,
    too_old,
    oldest,
    broken,
    no_program,
    named_by_the_flag,
    flag_without_it,
    in_the_working_directory,
    beside_the_plugin,
    path_before_the_wheel,
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_compiler_is_the_plugins(case, tmp_path, monkeypatch, clean_env):
    """The plugin tells which ptxas failed; the one of the system may be real, and does not."""
    env = case(tmp_path)
    [folder] = find_spec("jax_plugins.xla_cuda12").submodule_search_locations
    plugin = tmp_path / "site" / "jax_plugins" / "xla_cuda12" / "xla_cuda_plugin.so"
    plugin.parent.mkdir(parents=True, exist_ok=True)
    plugin.symlink_to(Path(folder, plugin.name))
    ran = subprocess.run(
        [sys.executable, "-c", COMPILE, plugin],
        env={**clean_env, **env, "PJRT_HUB_COMPILE_CACHE": "0"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    monkeypatch.chdir(tmp_path)
    world = World(env, HostTag.current(), Installed(()), root=tmp_path)
    opening = Opening(CUDA12, plugin, (), {}, (), (), False, to_run=False)
    steps = list(dependencies.report(opening, world))
    chosen, libdevice = [step for step in steps if step.what == "compiler"]
    if called := re.search(r"called (\S+)", ran.stdout):
        assert chosen.detail.startswith(f"ptxas: {os.path.relpath(called[1])}, ") or (
            chosen.detail.startswith(f"ptxas: {os.path.realpath(called[1])}, ")
        )
        assert chosen.ok
    elif libdevice.ok:
        found = "No PTX compilation provider" not in ran.stdout
        winner = chosen.detail.partition(",")[0]
        assert (chosen.ok, str(tmp_path) in winner) == (found, False), ran.stdout
    assert libdevice.ok == ("libdevice not found" not in ran.stdout)
