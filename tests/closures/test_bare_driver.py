"""CUDA plugins with all that they need, carried in a bundle to a place without CUDA."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

#: Libraries that a closure cannot hold: those of the driver, of MPI and of network cards, which
#: NVSHMEM opens where they are installed.
NOT_OURS = ("libcuda.so", "libnvidia-", "libmpi", "libpmix", "liboshmem", "libmlx5", "libfabric")
NOT_OURS += ("libibverbs", "libucs", "libucp", "libdoca", "libgdrapi")
VENDORS = ("libcud", "libcublas", "libcufft", "libcurand", "libcus", "libcupti", "libnccl", "libnv")
PROGRAM = """
func.func @main(%a: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]
    : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = stablehlo.tanh %0 : tensor<64x64xf32>
  return %1 : tensor<64x64xf32>
}
"""


def open_all(folder: str) -> None:
    """Open every library in a folder, and print which are mapped then, and what was missing."""
    missing = {}
    for path in sorted(Path(folder).rglob("*.so*")):
        try:
            ctypes.CDLL(str(path), mode=os.RTLD_LAZY)
        except OSError as exc:
            missing[path.name] = str(exc).partition(":")[0]
    lines = Path("/proc/self/maps").read_text().splitlines()
    mapped = {line.split(None, 5)[5] for line in lines if ".so" in line}
    print(json.dumps([sorted(mapped), missing]))


def call(*words: str, env: dict[str, str]) -> str:
    """Run a command, and return what it printed."""
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pjrt_hub(*words: str, env: dict[str, str]) -> str:
    """Run pjrt-hub, if possible in a mount namespace that hides the machine's CUDA."""
    hidden = []
    found = [path for path in (Path("/usr/local/cuda"), Path("/opt/cuda")) if path.is_dir()]
    if found and os.geteuid() == 0:
        mounts = "".join(f"mount -t tmpfs none {path.resolve()} && " for path in found)
        hidden = ["unshare", "-m", "sh", "-c", f'{mounts} exec "$@"', "sh"]
    return call(*hidden, sys.executable, "-P", "-m", "pjrt_hub", *words, env=env)


@pytest.mark.parametrize("plugin", ["cuda13", "cuda12"])
def test_a_bundle_is_all_that_a_driver_needs(
    plugin: str, environment: dict[str, str], tmp_path: Path
) -> None:
    bundle, program = tmp_path / "cuda.bundle", tmp_path / "program.mlir"
    program.write_text(PROGRAM)
    told = pjrt_hub("bundle", "export", str(bundle), plugin, env=environment)
    assert told.count("\n") > 12
    assert bundle.stat().st_size > 2e9

    # The import goes into an empty cache, without a network and without any CUDA program.
    cache = tmp_path / "elsewhere"
    bare = {
        **environment,
        "PJRT_HUB_CACHE": str(cache),
        "PJRT_HUB_OFFLINE": "1",
        "PATH": "/usr/bin:/bin",
    }
    bare.pop("LD_LIBRARY_PATH", None)
    assert shutil.which("ptxas", path=bare["PATH"]) is None
    pjrt_hub("bundle", "import", str(bundle), env=bare)
    bundle.unlink()
    library = Path(pjrt_hub("fetch", plugin, env=bare).strip())
    assert library.is_relative_to(cache)

    output = tmp_path / "program.bin"
    pjrt_hub("compile", str(program), "--target", f"{plugin}:H100", "-o", str(output), env=bare)
    assert output.stat().st_size > 1000

    # Every library opens, and finds what it needs in the closure or in the system.
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); "
    code += f"import {Path(__file__).stem} as test; test.open_all(sys.argv[1])"
    told = call(sys.executable, "-c", code, str(library.parents[2]), env=bare)
    mapped, missing = json.loads(told.splitlines()[-1])
    assert {name: what for name, what in missing.items() if not what.startswith(NOT_OURS)} == {}
    foreign = {Path(path).name for path in mapped if not Path(path).is_relative_to(cache)}
    assert [name for name in foreign if name.startswith(VENDORS)] == []
    assert any(Path(path).name.startswith("libcudnn_engines_precompiled") for path in mapped)

    audits = pjrt_hub("cache", "verify", env=bare)
    assert "corrupt" not in audits
