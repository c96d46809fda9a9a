"""Packs what a borrowed GPU machine lacks into a folder: wheels, and programs compiled for its GPU.

`python tools/gpu/pack.py`, where there is a network; then carry the checkout with `.nox/gpu` to the
machine and call tools/gpu/run.py there. The machine has Python, JAX with its CUDA plugin, NVIDIA's
libraries, torch and pytest.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".nox" / "gpu"
#: What pjrt-hub and its tests need, and such a machine lacks.
LACKING = ("cffi", "click", "importlib-metadata", "isal", "platformdirs", "pycparser", "rich")
#: The systems of manylinux whose wheels it takes, the newest first.
SYSTEMS = [f"manylinux_2_{minor}_x86_64" for minor in (34, 31, 28, 27, 24, 17, 12, 5)]
NBYTES = 60 << 20


def main() -> None:
    """Fills the folder, and says how much is in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="3.12", help="of the machine (default: 3.12)")
    parser.add_argument("--jax", default="0.11.2", help="of the machine (default: 0.11.2)")
    parser.add_argument("--gpu", default="H200", help="of the machine (default: H200)")
    given = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    wheels, executables = FOLDER / "wheels", FOLDER / "executables"
    for folder in (wheels, executables):
        folder.mkdir(parents=True)
    pack_wheels(wheels, given.python)
    compile_ahead(executables, wheels, given.jax, given.gpu)
    nbytes = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    print(f"{FOLDER}: {nbytes / 2**20:.1f} MiB")
    if nbytes > NBYTES:
        sys.exit(f"error: more than {NBYTES >> 20} MiB")


def pack_wheels(folder: Path, python: str) -> None:
    """Builds the project's wheel, and fetches those of what the machine lacks."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", f"--wheel-dir={folder}", str(ROOT)], check=True)
    platforms = [f"--platform={each}" for each in (*SYSTEMS, "any")]
    version = [f"--python-version={python}", "--implementation=cp"]
    options = ["--no-deps", "--only-binary=:all:", *version, *platforms, f"--dest={folder}"]
    subprocess.run([*pip, "download", *options, *LACKING], check=True)


def compile_ahead(folder: Path, wheels: Path, jax: str, gpu: str) -> None:
    """Compiles programs for the GPU, which is not here, by the plugin that the machine has."""
    environment = FOLDER / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    [own] = wheels.glob("pjrt_hub-*.whl")
    packages = [str(own), f"jax-cuda13-pjrt=={jax}"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    subprocess.run([python, ROOT / "tools" / "gpu" / "ahead.py", folder, gpu], check=True)
    shutil.rmtree(environment)


if __name__ == "__main__":
    main()
