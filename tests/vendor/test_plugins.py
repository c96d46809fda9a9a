"""Vendors' plugins found, probed, loaded and asked; without hardware each refuses in its words."""

import json
import os
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from children import in_child, refusal

import pjrt_hub
from pjrt_hub.door import client as door
from pjrt_hub.errors import UnsupportedByPluginError
from pjrt_hub.running.capi import table

pytestmark = pytest.mark.usefixtures("without_hardware")

HELLO = Path(__file__).parents[2] / "examples" / "hello.mlir"
#: Name -> the distribution's version, API version, StableHLO version, further attributes.
PLUGINS = {
    "cuda12": ("0.4.38", "0.58", [1, 8, 7], {}),
    "cuda13": ("0.12.0.1", "0.116", [1, 22, 0], {"cuda_version": 13000}),
    "tpu": ("0.0.52", "0.117", [1, 24, 0], {}),
}
REFUSALS = {
    "cuda12": ("FailedPreconditionError", "No visible GPU devices"),
    "cuda13": ("FailedPreconditionError", "No visible GPU devices"),
    "tpu": ("NotFoundError", "No jellyfish device found"),
}


def tell(name):
    plugin = pjrt_hub.load(name, offline=True)
    told = [str(plugin.api_version), dict(plugin.attributes), dict(plugin.attributes)]
    print(json.dumps([*told, plugin.path.name, plugin.name]))


@pytest.mark.parametrize("name", PLUGINS)
def test_what_each_tells_is_remembered(start, finish, name, tmp_path):
    """The second load of the same bytes starts no probe, which would time out at once."""
    env = {"PJRT_HUB_CACHE": str(tmp_path)}
    _, version, stablehlo, more = PLUGINS[name]
    file = "libtpu.so" if name == "tpu" else "xla_cuda_plugin.so"
    xla = {"xla_version": 2, "stablehlo_minimum_version": [0, 9, 0]}
    attributes = {**xla, "stablehlo_current_version": stablehlo, **more}
    told = finish(start(tell, name, **env))
    assert told == [version, attributes, attributes, file, name]
    assert list(tmp_path.rglob("*.json")) != []
    assert finish(start(tell, name, PJRT_HUB_PROBE_SECONDS="0.000001", **env)) == told


@pytest.mark.parametrize("name", PLUGINS)
@in_child
def test_a_client_without_hardware_is_refused_each_time(name):
    error, text = REFUSALS[name]
    plugin = pjrt_hub.load(name, offline=True)
    for client in (partial(pjrt_hub.client, name, offline=True), plugin.client, plugin.client):
        answer = refusal(client)
        assert answer["error"] == error
        assert text in answer["text"]


WRONG = {
    "cuda12": {"memory_fraction": "half", "node_id": 1.5, "visible_devices": 0, "preallocate": 1},
    "cuda13": {"memory_fraction": "half", "use_tfrt_gpu_client": "yes", "allocator": 1},
    "tpu": {"max_inflight_computations": "4", "ml_framework_name": 1},
}
#: Options that no plugin has, or values that none takes, and the class of the error.
JUNK = [({1: 1}, TypeError), ({"nope": None}, ValueError), ({"nope": [1, "a"]}, ValueError)]
JUNK += [({"node_id": 2**70}, ValueError)]


@pytest.mark.parametrize("name", PLUGINS)
@in_child
def test_create_options_are_refused_before_the_call(name):
    plugin = pjrt_hub.load(name, offline=True)

    def never(*args, **kwargs):
        raise AssertionError("the plugin was called")

    plugin.api.call = never
    for options, error in JUNK:
        with pytest.raises(error):
            plugin.client(options)
    options = {**WRONG[name], "nope": 1}.items()
    answers = {k: refusal(partial(plugin.client, {k: v})) for k, v in options}
    unknown = answers.pop("nope")
    assert unknown["error"] == "ValueError"
    assert f"{name} has no create option 'nope'; it has " in unknown["text"]
    assert set(answers) == set(WRONG[name])
    for key, answer in answers.items():
        assert answer["error"] == "TypeError"
        assert f"option '{key}' is of type " in answer["text"]


#: Functions for buffers and transfers that the oldest table lacks -> the minor that brought them.
NEWER = {
    "PJRT_Client_CreateBuffersForAsyncHostToDevice": 60,
    "PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer": 62,
    "PJRT_Client_DmaMap": 67,
    "PJRT_Client_CreateUninitializedBuffer": 69,
    "PJRT_Client_CreateAliasBuffer": 77,
    "PJRT_Client_CreateErrorBuffer": 82,
    "PJRT_AsyncHostToDeviceTransferManager_TransferLiteral": 83,
    "PJRT_Buffer_CopyRawToHostFuture": 84,
    "PJRT_Buffer_DonateWithControlDependency": 88,
    "PJRT_Event_Create": 89,
    "PJRT_Event_Set": 89,
    "PJRT_Buffer_Bitcast": 98,
}


@pytest.mark.parametrize("name", PLUGINS)
@in_child
def test_what_an_old_plugin_lacks(name):
    plugin, lacking = pjrt_hub.load(name, offline=True), {}
    for function in table.FUNCTIONS:
        try:
            plugin.api.function(function)
        except UnsupportedByPluginError as exc:
            lacking[exc.function] = str(exc)
    assert len(lacking) == (37 if name == "cuda12" else 0)
    if name == "cuda12":
        told = re.compile(r"(\w+): it came with PJRT API 0\.(\d+), the plugin has 0\.58$", re.M)
        since = {told.search(text)[1]: int(told.search(text)[2]) for text in lacking.values()}
        assert since.keys() == lacking.keys()
        assert {each: since[each] for each in NEWER} == NEWER
        assert min(since.values()) > 58
        with pytest.raises(ValueError, match=r"since PJRT API 0\.116, cuda12 has 0\.58"):
            plugin.client({"max_inflight_computations": 4})


@in_child
def test_all_of_them_in_one_process():
    """The CPU plugin works before and after the others were loaded and refused."""
    program = "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> { return %a : tensor<8xf32>}"
    client = pjrt_hub.client("cpu")
    executable, values = client.compile(program), np.arange(8, dtype=np.float32)
    refusals = {}
    for name in ("cuda13", "tpu", "cuda12"):
        refusals[name] = refusal(pjrt_hub.load(name, offline=True).client)["error"]
        assert executable(client.buffer_from_host(values)).tolist() == values.tolist()
    again = pjrt_hub.client("cpu")
    assert again.compile(program)(again.buffer_from_host(values)).tolist() == values.tolist()
    assert refusals == {name: error for name, (error, _) in REFUSALS.items()}


@in_child
def test_cuda_is_the_newer_of_two():
    """Both are installed; a name chooses one, and the platform means the one for CUDA 13."""
    names = ("cuda", "cuda12", "cuda13", "cuda12,cuda13,cpu", None)  # None takes what works here
    chosen = [door.choose(name, offline=True).candidate.name for name in names]
    assert chosen == ["cuda13", "cuda12", "cuda13", "cpu", "cpu"]


def refuse_a_client():
    error = refusal(lambda: pjrt_hub.client("tpu", offline=True))
    print(json.dumps([error["error"], os.environ["TPU_SKIP_MDS_QUERY"]]))


def test_two_processes_share_the_tpu_plugin(start, finish):
    """The plugin locks the whole machine, but without a chip the manifest lets several load it."""
    processes = [start(refuse_a_client) for _ in range(2)]
    assert [finish(process) for process in processes] == [["NotFoundError", "1"]] * 2


@in_child(TPU_SKIP_MDS_QUERY="true")
def test_what_the_user_set_stays():
    pjrt_hub.load("tpu", offline=True)
    assert os.environ["TPU_SKIP_MDS_QUERY"] == "true"
    assert os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] == "1"


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
    _, version, *_ = PLUGINS[name]
    _, absent = REFUSALS[name]
    told = json.loads(hub("doctor", name, "--json", status=1).stdout)
    steps = {step["what"]: step for step in told if not step["ok"]}
    assert f"pjrt-hub doctor {name} --for compile" in steps["hardware"]["hint"]
    assert absent in steps["client"]["detail"]
    told = json.loads(hub("doctor", name, "--for", "compile", "--json").stdout)
    steps = {step["what"]: step for step in told}
    assert f"PJRT API {version}," in steps["load"]["detail"]
    done = hub("run", HELLO, "--platform", name, status=1)
    assert absent in done.stderr
    assert "Traceback" not in done.stderr
