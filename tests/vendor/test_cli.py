"""The command line over real CUDA and TPU plugins on a machine without their hardware."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NO_GPU = "No visible GPU devices"
#: Name -> the distribution's version, the PJRT API's version, and the words of its client.
PLUGINS = {
    "cuda12": ("0.4.38", "0.58", NO_GPU),
    "cuda13": ("0.12.0.1", "0.116", NO_GPU),
    "tpu": ("0.0.52", "0.117", "No jellyfish device found"),
}

pytestmark = pytest.mark.usefixtures("without_hardware")


def test_list_finds_each_in_its_distribution_without_its_hardware(hub):
    found = json.loads(hub("list", "--json").stdout)
    listed = {each["name"]: each for each in found if each["library_path"]}
    for name, (version, *_) in PLUGINS.items():
        row = listed[name]
        assert (row["platform"], row["version"]) == (name.rstrip("123"), version)
        assert row["library_path"].endswith(".so")
        assert (row["hardware"]["ok"], row["chosen"]) == (False, False)
        assert row["verdict"]["reason"].startswith("its hardware is absent")
    assert found[0]["name"] == "cpu" or not found[0]["chosen"]


@pytest.mark.parametrize("name", PLUGINS)
def test_doctor_and_run_load_each_in_a_child_and_say_that_its_hardware_is_not_here(hub, name):
    _, version, absent = PLUGINS[name]
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
