"""What still works with a plugin in which one function is NULL or returns UNIMPLEMENTED."""

from pathlib import Path

import measurement
import pytest

from pjrt_hub.kit.conformance.host import parse
from pjrt_hub.running.capi import library as loading

# The walk is some 240 processes, which a machine with other work may take minutes for.
pytestmark = [
    *(pytest.mark.cpu("asked without the functions, by the layers of a walk"), pytest.mark.slow),
    *(pytest.mark.night, pytest.mark.timeout(900)),
]

ROOT = Path(__file__).parents[2]
PROFILE = ROOT / "pjrt_hub" / "kit" / "conformance" / "hosts" / "pjrt_hub.toml"

#: Functions whose absence can make a compilation fail; any other is first missed in a call.
COMPILING = {"PJRT_Client_Compile", "PJRT_Client_Devices", "PJRT_Client_AddressableDevices"}
COMPILING |= {"PJRT_DeviceDescription_Id", "PJRT_Device_GetDescription"}

#: The steps that wait for a value and read it.
TAKEN_TO_THE_HOST = ("get", "result", "wait", "call_with_arrays", "donate", "call_on_two", "copy")
TAKEN_TO_THE_HOST += ("load_serialized",)


@pytest.fixture(scope="module")
def names(plugin, library):
    """The functions of the plugin's table."""
    _, found = measurement.functions(library)
    assert len(found) == {"0.81": 118, "0.106": 136, "0.115": 138}[str(plugin.api_version)]
    return found


@pytest.fixture(scope="module")
def walked(library, names):
    """A walk without each function, in both forms; takes half a minute on two processors."""
    asked = [named.format(name) for named in measurement.FORMS.values() for name in names]
    return measurement.walk("pjrt_hub_walk", library, asked)


def test_every_step_is_right_on_the_whole_plugin(walked):
    assert measurement.without(walked.runs[""], walked.needs) == ""
    assert walked.left_out == []


def test_no_walk_ends_the_process(walked):
    assert {run.without: run.status for run in walked.runs.values() if run.status} == {}


def test_every_refusal_is_ours_and_names_the_function(walked):
    for run in walked.runs.values():
        name = run.without.partition(":")[0]
        for step, said in run.steps.items():
            if said not in ("right", ""):
                assert said.startswith("pjrt_hub.errors."), f"{run.without} at {step}: {said}"
                assert name in said, f"{run.without} at {step}: {said}"


def test_loading_refuses_what_is_required_and_nothing_else(walked, names):
    refused = {name for name in names if walked.runs[f"{name}:null"].steps["load"] != "right"}
    assert refused == set(loading.REQUIRED)
    assert len(refused) == 3


#: Functions that replace each other -> the steps that fail if all of them are absent. With only
#: `PJRT_Event_Await`, a wait cannot have a time limit, which the step "wait" has.
TOGETHER = {
    "PJRT_Event_OnReady PJRT_Event_IsReady": ("wait",),
    "PJRT_Event_OnReady PJRT_Event_IsReady PJRT_Event_Error": ("wait",),
    "PJRT_Event_OnReady PJRT_Event_Error": (),
    "PJRT_Event_Error PJRT_Event_Await": TAKEN_TO_THE_HOST,
    "PJRT_Buffer_Delete PJRT_Buffer_Destroy": (),
    "PJRT_Buffer_ReadyEvent PJRT_Buffer_IsDeleted": ("wait", "donate"),
}


def test_of_functions_that_stand_in_for_each_other_one_suffices(library):
    forms = [":null", ""]
    asked = {
        ",".join(f"{name}{form}" for name in names.split()): names
        for names in TOGETHER
        for form in forms
    }
    walked = measurement.walk("pjrt_hub_walk", library, list(asked))
    for without, names in asked.items():
        run = walked.runs[without]
        assert run.status == 0, without
        failed = {step: said for step, said in run.steps.items() if said not in ("right", "")}
        assert set(failed) == set(TOGETHER[names]), without
        for said in failed.values():
            assert said.startswith("pjrt_hub.errors."), said
            assert any(name in said for name in names.split()), said


def test_compiling_misses_what_compiles_and_nothing_else(walked):
    missed = {
        run.without.partition(":")[0]
        for run in walked.runs.values()
        if run.steps.get("compile", "right") != "right"
    }
    assert missed <= COMPILING


def test_the_profile_is_what_is_measured(walked, names):
    """`python tools/hosts pjrt_hub` rewrites the profile."""
    kept = parse(PROFILE.read_text("utf-8"))
    walked = walked._replace(release=kept.release)  # the release of the recorded profile
    found = parse(measurement.text("pjrt-hub", walked, names, kept.learned))
    assert found == kept
