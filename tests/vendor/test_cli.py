"""The command line over real CUDA and TPU plugins on a machine without their hardware."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSIONS = {"cuda12": "0.58", "cuda13": "0.116", "tpu": "0.117"}
ABSENT = {
    "cuda12": "No visible GPU devices",
    "cuda13": "No visible GPU devices",
    "tpu": "No jellyfish device found",
}

pytestmark = pytest.mark.skipif(
    any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg", "/dev/accel0")),
    reason="the hardware is here",
)


@pytest.fixture
def hub(tmp_path):
    """Run `pjrt-hub` with a cache of its own and without the user's choices."""
    ours = ("PJRT_", "JAX_", "TPU_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    clean["PJRT_HUB_CACHE"] = str(tmp_path)

    def call(*args, status=0):
        done = subprocess.run(
            [sys.executable, "-m", "pjrt_hub.cli", *map(str, args)],
            capture_output=True,
            text=True,
            timeout=300,
            env=clean,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return call


def test_list_finds_each_without_its_hardware(hub):
    listed = {found["name"]: found for found in json.loads(hub("list", "--json").stdout)[::-1]}
    for name in VERSIONS:
        assert listed[name]["library_path"].endswith(".so")
        assert listed[name]["hardware"]["ok"] is False
        assert listed[name]["chosen"] is False


@pytest.mark.parametrize("name", VERSIONS)
def test_doctor_loads_each_in_a_child(hub, name):
    told = json.loads(hub("doctor", name, "--json", status=1).stdout)
    steps = {step["what"]: step for step in told if not step["ok"]}
    assert f"pjrt-hub doctor {name} --for compile" in steps["hardware"]["hint"]
    assert ABSENT[name] in steps["client"]["detail"]
    told = json.loads(hub("doctor", name, "--for", "compile", "--json").stdout)
    steps = {step["what"]: step for step in told}
    assert f"PJRT API {VERSIONS[name]}," in steps["load"]["detail"]


@pytest.mark.parametrize("name", ABSENT)
def test_run_says_that_the_hardware_is_not_here(hub, name):
    done = hub("run", ROOT / "examples" / "hello.mlir", "--platform", name, status=1)
    assert ABSENT[name] in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("target", ["cuda12:H100", "cuda13:H100"])
def test_compile_for_several_gpus(hub, tmp_path, target):
    program, out = ROOT / "examples" / "hello.mlir", tmp_path / "out"
    several = ("--topology-option", "topology=1x1x4", "--num-replicas", 4)
    told = hub("compile", program, "--target", target, "-o", out, *several, "--json")
    assert json.loads(told.stdout)["devices"] == 4
    assert out.stat().st_size == json.loads(told.stdout)["nbytes"]
    done = hub("compile", program, "--target", target, "-o", out, "--num-replicas", 2, status=2)
    assert "need 2 devices" in done.stderr
    wrong = ("--topology-option", "topology=4")
    done = hub("compile", program, "--target", target, "-o", out, *wrong, status=2)
    assert "option 'topology' is of type string, found 4" in done.stderr
