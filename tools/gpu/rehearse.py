"""Rehearses tools/gpu/run.py where no GPU is, in an environment that is laid out like its machine.

`python tools/gpu/rehearse.py`, after tools/gpu/pack.py: all that needs no device must pass without
a network, and all else fail because none is here. `--stand-in` gives it a device: the CPU plugin as
the layer `discrete` shows it under the name of CUDA; nothing may fail then.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parents[1]
FOLDER = ROOT / ".nox" / "gpu_rehearsal"
CPU = "lammps-jax-pjrt-cpu==0.11.2"
MANIFEST = """schema = 1
name = "cuda"
platform = "cuda"
priority = 1000
[[library]]
path = "plugin.so"
[probe]
kind = "always"
[options.cpu_device_count]
type = "int64"
default = 1
[environment]
TF_CPP_MIN_LOG_LEVEL = "3"
"""
#: Words of errors on a machine without a device; the last one means that the CPU was chosen.
WANTING = (
    "No visible GPU devices",
    "none of /dev/nvidia0",
    "failed call to cuInit",
    "lammps-jax-pjrt-cpu 0.11.2 is not in the cache",
)


def main() -> None:
    """Run the stages, and give 1 where something failed that should not have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="python3.12", help="for a new environment")
    parser.add_argument("--environment", type=Path, help="one that is there")
    parser.add_argument("--stage", type=int, choices=(1, 2, 3), action="append")
    parser.add_argument("--stand-in", action="store_true", help="with a device in software")
    given = parser.parse_args()
    environment = given.environment or FOLDER / "environment"
    if not environment.exists():
        install(environment, given.python)
    env = stand_in(environment) if given.stand_in else dict(os.environ)
    python, wrong = environment / "bin" / "python", check_needs(environment)
    for stage in given.stage or (1, 2, 3):
        output = FOLDER / f"stage{stage}"
        command = [python, TOOLS / "run.py", "--output", output, "--stage", str(stage)]
        subprocess.run(["unshare", "--net", "--map-root-user", *command], env=env)
        wrong += judge(output, () if given.stand_in else WANTING)
    print("\n".join(wrong) or "nothing failed that should not have")
    sys.exit(1 if wrong else 0)


def install(environment: Path, python: str) -> None:
    """Make an environment of what such a machine has: 6 GB."""
    subprocess.run([python, "-m", "venv", str(environment)], check=True)
    listed = ["--requirement", str(TOOLS / "machine.txt")]
    pip = [environment / "bin" / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *listed], check=True)


def stand_in(environment: Path) -> dict[str, str]:
    """Put the CPU plugin where it is found as CUDA's, and give the variables for that."""
    folder = FOLDER / "stand_in"
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "lammps_jax_pjrt_cpu" / "pjrt_c_api_cpu_plugin.so"
    if not library.exists():
        pip = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, f"--target={folder}", CPU], check=True)
        (folder / "plugin.so").symlink_to(library)
    (folder / "pjrt_plugin.toml").write_text(MANIFEST, encoding="utf-8")
    return os.environ | {
        "PJRT_HUB_PLUGIN_PATH": str(folder),
        "PJRT_HUB_LAYERS": "discrete",
        "PJRT_HUB_DISCRETE": "platform=cuda,capacity=1GiB",
        "JAX_PLATFORMS": "cpu",
        "PJRT_HUB_PLATFORMS": "cuda",  # Without this, JAX's choice would count.
    }


def check_needs(environment: Path) -> list[str]:
    """Give a line for each package that a packed one needs, and that neither place has."""
    wheels = sorted((ROOT / ".nox" / "gpu" / "wheels").glob("*.whl"))
    with TemporaryDirectory() as site:
        pip = [environment / "bin" / "python", "-m", "pip"]
        alone = ["install", "--quiet", "--no-index", "--no-deps", f"--target={site}"]
        subprocess.run([*pip, *alone, *map(str, wheels)], check=True)
        env = os.environ | {"PYTHONPATH": site}
        check = subprocess.run([*pip, "check"], capture_output=True, text=True, env=env)
    names = {path.name.partition("-")[0].replace("_", "-") for path in wheels}
    return [line for line in check.stdout.splitlines() if line.partition(" ")[0] in names]


def judge(output: Path, wanting: tuple[str, ...]) -> list[str]:
    """Give a line for each failure that has another reason than those."""
    report = json.loads((output / "report.json").read_text("utf-8"))
    wrong = []
    for step in report["steps"]:
        name, failed = step["name"], step["failed"]
        other = [each for each, text in failed.items() if not any(why in text for why in wanting)]
        wrong += [f"{name}: {each}: {failed[each]}" for each in other]
        said = (output / f"{name}.txt").read_text("utf-8", "replace")
        explained = failed or any(why in said for why in wanting)
        if step["status"] is None or (step["status"] and not explained):
            wrong.append(f"{name}: status {step['status']}: {said[-300:]}")
    return wrong


if __name__ == "__main__":
    main()
