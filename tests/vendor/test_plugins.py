"""Vendors' plugins found, probed, loaded and asked; without hardware each refuses in its words."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from children import in_child, refusal

import pjrt_hub
from pjrt_hub.door import client as door
from pjrt_hub.errors import UnsupportedByPluginError
from pjrt_hub.running.capi import table

pytestmark = pytest.mark.skipif(
    any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg", "/dev/accel0")),
    reason="the hardware is here",
)

#: name -> distribution, API version, StableHLO version, more attributes, extensions in their order
PLUGINS = {
    "cuda12": (
        "jax-cuda12-pjrt 0.4.38",
        "0.58",
        [1, 8, 7],
        {},
        "FFI Layouts Gpu_Custom_Call Stream Custom_Partitioner Profiler",
    ),
    "cuda13": (
        "jax-cuda13-pjrt 0.12.0.1",
        "0.116",
        [1, 22, 0],
        {"cuda_version": 13000},
        "AbiVersion XlaTransform Shardings CrossHostTransfers MemoryDescriptions FFI Layouts "
        "Gpu_Custom_Call Stream Custom_Partitioner Profiler",
    ),
    "tpu": (
        "libtpu 0.0.52",
        "0.117",
        [1, 24, 0],
        {},
        "FFI XlaTransform HostMemoryAllocator MultiSlice Collectives AbiVersion Shardings "
        "Megascale TpuExecutable TpuTopology Callback PhaseCompile CrossHostTransfers "
        "ExecutableMetadata MemoryDescriptions Layouts RawBuffer Profiler",
    ),
}
REFUSALS = {
    "cuda12": ("FailedPreconditionError", "No visible GPU devices"),
    "cuda13": ("FailedPreconditionError", "No visible GPU devices"),
    "tpu": ("NotFoundError", "No jellyfish device found"),
}


def tell(name):
    plugin = pjrt_hub.load(name, offline=True)
    told = [str(plugin.api_version), list(plugin.extensions), dict(plugin.attributes)]
    print(json.dumps([*told, plugin.path.name, plugin.name]))


@pytest.mark.parametrize("name", PLUGINS)
def test_what_each_tells(start, finish, name):
    _, version, stablehlo, more, extensions = PLUGINS[name]
    found, chain, attributes, file, called = finish(start(tell, name))
    assert (found, called) == (version, name)
    assert chain == extensions.split()
    assert attributes == {
        "xla_version": 2,
        "stablehlo_current_version": stablehlo,
        "stablehlo_minimum_version": [0, 9, 0],
        **more,
    }
    assert file == ("libtpu.so" if name == "tpu" else "xla_cuda_plugin.so")


@in_child
def test_each_is_found_in_its_distribution():
    found = [
        [
            f.name,
            f.platform,
            f.version,
            f.hardware.ok,
            f.chosen,
            f.verdict.reason,
            str(f.library_path),
        ]
        for f in pjrt_hub.plugins(offline=True)
    ]
    rows = {row[0]: row for row in found if row[6] != "None"}
    for name, (distribution, *_) in PLUGINS.items():
        _, platform, version, hardware, chosen, reason, path = rows[name]
        assert platform == name.rstrip("123")
        assert version == distribution.split()[1]
        assert (hardware, chosen) == (False, False)
        assert reason.startswith("its hardware is absent")
        assert path.endswith(".so")
    assert found[0][0] == "cpu" or found[0][4] is False


@pytest.mark.parametrize("name", PLUGINS)
def test_a_probe_in_a_child_is_remembered(start, finish, name, tmp_path):
    """The second load of the same bytes asks no child: a probe of no seconds would fail."""
    env = {"PJRT_HUB_CACHE": str(tmp_path)}
    first = finish(start(tell, name, **env))
    assert list(tmp_path.rglob("*.json")) != []
    assert finish(start(tell, name, PJRT_HUB_PROBE_SECONDS="0.000001", **env)) == first


@in_child(PJRT_HUB_PROBE_SECONDS="0.01")
def test_a_probe_that_takes_too_long_is_ended(tmp_path):
    os.environ["PJRT_HUB_CACHE"] = tmp_path
    answer = refusal(lambda: pjrt_hub.load("cuda13", offline=True))
    assert answer["error"] == "PluginTimeoutError"
    assert "within 0.01 s" in answer["text"]
    assert "hint: " in answer["text"]


@pytest.mark.parametrize("name", PLUGINS)
@in_child
def test_a_client_without_hardware(name):
    answer = refusal(lambda: pjrt_hub.client(name, offline=True))
    error, text = REFUSALS[name]
    assert answer["error"] == error
    assert text in answer["text"]


WRONG = {
    "cuda12": {"memory_fraction": "half", "node_id": 1.5, "visible_devices": 0, "preallocate": 1},
    "cuda13": {"memory_fraction": "half", "use_tfrt_gpu_client": "yes", "allocator": 1},
    "tpu": {"max_inflight_computations": "4", "ml_framework_name": 1},
}


@pytest.mark.parametrize("name", PLUGINS)
@in_child
def test_create_options_are_refused_before_the_call(name):
    plugin = pjrt_hub.load(name, offline=True)

    def never(*args, **kwargs):
        raise AssertionError("the plugin was called")

    plugin.api.call = never
    options = {**WRONG[name], "nope": 1}.items()
    answers = {k: refusal(partial(plugin.client, {k: v})) for k, v in options}
    unknown = answers.pop("nope")
    assert unknown["error"] == "ValueError"
    assert f"{name} has no create option 'nope'; it has " in unknown["text"]
    assert set(answers) == set(WRONG[name])
    for key, answer in answers.items():
        assert answer["error"] == "TypeError"
        assert f"option '{key}' is of type " in answer["text"]


@in_child
def test_an_old_plugin_has_not_the_options_of_a_new_one():
    plugin = pjrt_hub.load("cuda12", offline=True)
    answer = refusal(lambda: plugin.client({"max_inflight_computations": 4}))
    assert answer["error"] == "ValueError"
    assert "known since PJRT API 0.116, cuda12 has 0.58" in answer["text"]


@in_child
def test_what_an_old_plugin_lacks():
    api, lacking = pjrt_hub.load("cuda12", offline=True).api, {}
    for name in table.FUNCTIONS:
        try:
            api.function(name)
        except UnsupportedByPluginError as exc:
            lacking[exc.function] = [exc.since, exc.have]
    assert len(lacking) == 37
    assert {have for _, have in lacking.values()} == {"0.58"}
    for name in ("PJRT_Client_DmaMap", "PJRT_Event_Create", "PJRT_Client_CreateErrorBuffer"):
        assert name in lacking
    assert all(int(since.split(".")[1]) > 58 for since, _ in lacking.values())


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
    names = ("cuda", "cuda12", "cuda13", "cuda12,cuda13,cpu")
    chosen = [door.choose(name, offline=True).candidate.name for name in names]
    assert chosen == ["cuda13", "cuda12", "cuda13", "cpu"]


@in_child
def test_without_a_wish_hardware_that_is_absent_is_not_chosen():
    assert door.choose().candidate.name == "cpu"


def refuse_a_client():
    error = refusal(lambda: pjrt_hub.client("tpu", offline=True))
    print(json.dumps([error["error"], os.environ["TPU_SKIP_MDS_QUERY"]]))


def test_two_processes_share_the_tpu_plugin(start, finish):
    """Its lock is for the whole machine; without a chip the manifest lets several load it."""
    processes = [start(refuse_a_client) for _ in range(2)]
    assert [finish(process) for process in processes] == [["NotFoundError", "1"]] * 2


@in_child(TPU_SKIP_MDS_QUERY="true")
def test_what_the_user_set_stays():
    pjrt_hub.load("tpu", offline=True)
    assert os.environ["TPU_SKIP_MDS_QUERY"] == "true"
    assert os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] == "1"
