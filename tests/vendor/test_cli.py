"""The command line over real CUDA and TPU plugins on a machine without their hardware."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NO_GPU = "No visible GPU devices"
#: name -> the PJRT API, and what its client says
PLUGINS = {
    "cuda12": ("0.58", NO_GPU),
    "cuda13": ("0.116", NO_GPU),
    "tpu": ("0.117", "No jellyfish device found"),
}

pytestmark = pytest.mark.usefixtures("without_hardware")


def test_list_finds_each_without_its_hardware(hub):
    listed = {found["name"]: found for found in json.loads(hub("list", "--json").stdout)[::-1]}
    for name in PLUGINS:
        assert listed[name]["library_path"].endswith(".so")
        assert (listed[name]["hardware"]["ok"], listed[name]["chosen"]) == (False, False)


@pytest.mark.parametrize("name", PLUGINS)
def test_doctor_and_run_load_each_in_a_child_and_say_that_its_hardware_is_not_here(hub, name):
    version, absent = PLUGINS[name]
    told = json.loads(hub("doctor", name, "--json", status=1).stdout)
    steps = {step["what"]: step for step in told if not step["ok"]}
    assert f"pjrt-hub doctor {name} --for compile" in steps["hardware"]["hint"]
    assert absent in steps["client"]["detail"]
    told = json.loads(hub("doctor", name, "--for", "compile", "--json").stdout)
    steps = {step["what"]: step for step in told}
    assert f"PJRT API {version}," in steps["load"]["detail"]
    done = hub("run", ROOT / "examples" / "hello.mlir", "--platform", name, status=1)
    assert absent in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("target", ["cuda12:H100", "cuda13:H100"])
def test_compile_for_several_gpus(hub, tmp_path, target):
    out = tmp_path / "out"
    command = ("compile", ROOT / "examples" / "hello.mlir", "--target", target, "-o", out)
    several = ("--topology-option", "topology=1x1x4", "--num-replicas", 4)
    told = json.loads(hub(*command, *several, "--json").stdout)
    assert (told["devices"], told["nbytes"]) == (4, out.stat().st_size)
    assert "need 2 devices" in hub(*command, "--num-replicas", 2, status=2).stderr
    done = hub(*command, "--topology-option", "topology=4", status=2)
    assert "option 'topology' is of type string, found 4" in done.stderr
