"""Which ptxas and libdevice a real CUDA plugin takes, and which one the doctor names.

The plugin for CUDA 12 is an old one, which has no other compiler.
"""

import os
import re
import subprocess
import sys
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
#: A ptxas that tells a version; asked to compile, it prints its path and fails.
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


WHEEL = "site/nvidia/cuda_nvcc"
#: The place and kind of each ptxas, those on the PATH, and the place that XLA's flag names.
CASES: dict[str, tuple[dict[str, str], str, str]] = {
    "none": ({}, "", ""),
    "path": ({"a": "12.9"}, "a", ""),
    "first of path": ({"a": "12.9", "b": "12.9"}, "ab", ""),
    "of another CUDA": ({"a": "12.6", "b": "12.9"}, "ab", ""),
    "too old": ({"a": "11.7", "b": "12.9"}, "ab", ""),
    "oldest": ({"a": "11.8", "b": "12.9"}, "ab", ""),
    "broken": ({"a": "broken", "b": "12.9"}, "ab", ""),
    "no program": ({"a": "not executable", "b": "12.9"}, "ab", ""),
    "named by the flag": ({"a": "12.9", "mine": "12.9"}, "a", "mine"),
    "flag without it": ({"a": "12.9"}, "a", "nowhere"),
    "in the working directory": ({"a": "12.9", "cuda_sdk_lib": "12.9"}, "a", ""),
    "beside the plugin": ({WHEEL: "12.9"}, "", ""),
    "path before the wheel": ({WHEEL: "12.9", "a": "12.6"}, "a", ""),
}


def laid_out(root: Path, case: str) -> dict[str, str]:
    """Make a case's ptxas files, which fail at every compilation; give its environment."""
    files, on_path, flag = CASES[case]
    for folder, kind in files.items():
        path = root / folder / "bin" / "ptxas"
        path.parent.mkdir(parents=True)
        release = kind if kind[0].isdigit() else "12.9"
        path.write_text(PTXAS.format(release, int(kind == "broken")))
        path.chmod(0o644 if kind == "not executable" else 0o755)
    places = [*(str(root / folder / "bin") for folder in on_path), "/usr/bin", "/bin"]
    named = {"XLA_FLAGS": f"--xla_gpu_cuda_data_dir={root / flag}"} if flag else {}
    return {"PATH": os.pathsep.join(places), **named}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_compiler_is_the_plugins(case, tmp_path, monkeypatch, clean_env):
    """The plugin names a ptxas that fails; the system's own may be real, and then none is named."""
    env = laid_out(tmp_path, case)
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
        names = (os.path.relpath(called[1]), os.path.realpath(called[1]))
        assert chosen.detail.startswith(tuple(f"ptxas: {name}, " for name in names))
        assert chosen.ok
    elif libdevice.ok:
        found = "No PTX compilation provider" not in ran.stdout
        winner = chosen.detail.partition(",")[0]
        assert (chosen.ok, str(tmp_path) in winner) == (found, False), ran.stdout
    assert libdevice.ok == ("libdevice not found" not in ran.stdout)
