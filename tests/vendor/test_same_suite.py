"""What the CPU plugin's suite asks, as far as it needs no device, of plugins of other versions.

Each plugin is asked everything in one child process; each test reads its part of the answers.
"""

from __future__ import annotations

import gc
import json
import pickle
from functools import partial
from pathlib import Path

import pytest

import pjrt_hub
from pjrt_hub import CompileOptions, Program
from pjrt_hub.running.capi import table
from pjrt_hub.running.executable.serialized import read
from pjrt_hub.running.extensions import layouts, shardings

pytestmark = pytest.mark.skipif(
    any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg", "/dev/accel0")),
    reason="the hardware is here",
)

PROGRAMS = Path(__file__).parents[1] / "programs"
VERSIONS = {"cuda12": "0.58", "cuda13": "0.116", "tpu": "0.117"}
MACHINES = {"cuda12": "H100", "cuda13": "H100", "tpu": "v5e:2x2"}
#: Without hardware there is nothing to time candidates on.
FLAGS = {"cuda12": {"xla_gpu_autotune_level": 0}}


def told(ask):
    try:
        return ask()
    except Exception as exc:
        return {"error": type(exc).__name__, "text": str(exc)}


def ask(name):
    """Print the answers of a plugin."""
    answers = answer(name)
    gc.collect()
    print(json.dumps(answers, default=str))


def answer(name):
    plugin = pjrt_hub.load(name, offline=True)
    options = CompileOptions(flags=FLAGS.get(name, {}))

    def compiled(program, options=options):
        return topology.compile(PROGRAMS / f"{program}.mlir", options)

    topology = pjrt_hub.topology(name, MACHINES[name], offline=True)
    add = compiled("add")
    blob = add.serialize()
    guards, code = read(blob)
    asked = {
        "version": lambda: str(plugin.api_version),
        "verdict": lambda: pjrt_hub.plugins(name, offline=True)[0].verdict.ok,
        "attributes": lambda: sorted(plugin.attributes),
        "same_attributes": lambda: dict(plugin.attributes) == dict(plugin.attributes),
        "extensions": lambda: [list(plugin.extensions), min(plugin.extensions.values())],
        "lacking": lambda: [
            told(partial(plugin.api.call, each))
            for each in table.FUNCTIONS
            if not plugin.api.has(each)
        ],
        "client": lambda: [told(plugin.client) for _ in range(3)],
        "junk_options": lambda: [
            told(partial(plugin.client, junk))
            for junk in (
                {"nope": 1},
                {1: 1},
                {"nope": None},
                {"nope": [1, "a"]},
                {"node_id": 2**70},
            )
        ],
        "descriptions": lambda: [
            [each.id, each.kind, each.process_index, str(each)]
            for each in topology.device_descriptions
        ],
        "platform": lambda: [topology.platform_name, topology.platform_version],
        "topology_attributes": lambda: sorted(topology.attributes),
        "fingerprint": lambda: topology.fingerprint,
        "copy": lambda: (
            plugin.deserialize_topology(topology.serialize()).fingerprint == topology.fingerprint
        ),
        "junk_topology": lambda: [
            told(partial(plugin.deserialize_topology, junk)) for junk in (b"", b"junk", 5)
        ],
        "unknown_machine": lambda: plugin.topology("no such machine"),
        "signature": lambda: str(add.signature),
        "add": lambda: [add.name, add.num_replicas, add.num_partitions],
        "parameters": lambda: [
            [str(each.dtype), each.shape, each.donated] for each in add.parameters
        ],
        "outputs": lambda: [
            [element, list(shape)]
            for element, shape in zip(add.output_element_types, add.output_dimensions, strict=False)
        ],
        "donated": lambda: [each.donated for each in compiled("donate").parameters],
        "results": lambda: [
            str(compiled(name).signature) for name in ("two_outputs", "no_args", "scalar", "mlp")
        ],
        "report": lambda: add.report(),
        "costs": lambda: compiled("matmul_64").cost_analysis().get("flops"),
        "memory": lambda: add.memory_stats()["argument_size_in_bytes"],
        "again": lambda: [
            add.fingerprint == compiled("add").fingerprint,
            add.fingerprint == compiled("donate").fingerprint,
        ],
        "guards": lambda: [guards.platform, guards.api_version, len(code) > 0],
        "echo": lambda: [add.compile_options.num_replicas, add.compile_options.num_partitions],
        "refused": lambda: [
            told(partial(topology.compile, program, options))
            for program in (
                Program(b"junk", "mlir"),
                Program(b"junk", "nope"),
                Program(b"", "mlir"),
                "func.func @other() { return }",
                None,
                5,
            )
        ],
        "refused_options": lambda: [
            told(lambda wrong=wrong: compiled("add", wrong()))
            for wrong in (
                lambda: CompileOptions(num_replicas=0),
                lambda: CompileOptions(num_partitions=-1),
                lambda: CompileOptions(flags={"nope": 1}),
                lambda: {},
            )
        ],
        "layout": lambda: [str(each) for each in layouts.parameter_layouts(add)],
        "shardings": lambda: len(shardings.parameter_shardings(add)),
        "kinds": lambda: add.output_memory_kinds,
        "pickled": lambda: pickle.loads(pickle.dumps(Program.of(PROGRAMS / "add.mlir"))).format,
    }
    return {each: told(ask) for each, ask in asked.items()}


@pytest.fixture(scope="module", params=VERSIONS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def answers(start, finish, name):
    """The plugin's answers."""
    return finish(start(ask, name))


def errors(given):
    return [answer["error"] for answer in given]


def test_the_version_is_taken(answers, name):
    assert (answers["version"], answers["same_attributes"]) == (VERSIONS[name], True)
    standard = {"stablehlo_current_version", "stablehlo_minimum_version", "xla_version"}
    assert standard <= set(answers["attributes"])


def test_every_extension_is_whole(answers):
    names, smallest = answers["extensions"]
    assert len(set(names)) == len(names)
    assert {"FFI", "Layouts", "Profiler"} <= set(names)
    assert smallest >= 24


def test_what_is_missing_says_since_when(answers, name):
    assert len(answers["lacking"]) == (37 if name == "cuda12" else 0)
    for refusal in answers["lacking"]:
        assert refusal["error"] == "UnsupportedByPluginError"
        assert ": it came with PJRT API 0." in refusal["text"]
        assert refusal["text"].splitlines()[0].endswith(f"the plugin has {VERSIONS[name]}")


def test_a_client_is_refused_each_time(answers, name):
    expected = "NotFoundError" if name == "tpu" else "FailedPreconditionError"
    assert errors(answers["client"]) == [expected] * 3


def test_create_options_are_checked(answers, name):
    assert errors(answers["junk_options"]) == ["ValueError", "TypeError"] + ["ValueError"] * 3


def test_devices_are_described(answers, name):
    descriptions = answers["descriptions"]
    assert [each[0] for each in descriptions] == list(range(4 if name == "tpu" else 1))
    assert all(kind and process == 0 and text for _, kind, process, text in descriptions)
    assert answers["platform"][0] == name.rstrip("123")
    assert answers["platform"][1]


def test_topologies_travel(answers, name):
    assert answers["junk_topology"][2]["error"] in ("TypeError", "UnsupportedByPluginError")
    if name == "cuda12":
        assert (
            answers["fingerprint"]["error"]
            == answers["copy"]["error"]
            == "UnsupportedByPluginError"
        )
        assert "0.101" in answers["fingerprint"]["text"]
        assert "0.75" in answers["copy"]["text"]
    else:
        assert 0 < answers["fingerprint"] < 1 << 64
        assert answers["copy"] is True
    assert all(isinstance(each, dict) for each in answers["junk_topology"][1:])


def test_machines_that_nobody_describes(answers):
    assert answers["unknown_machine"]["error"] in ("TargetNotFoundError", "InvalidArgumentError")


def test_programs_are_compiled(answers, name):
    assert answers["add"] == ["main", 1, 1]
    assert "1 replica(s) x 1 partition(s)" in answers["report"]
    if name != "cuda12":  # which does not tell
        assert answers["outputs"] == [["f32", [8]]]
        assert "f32[8]" in answers["report"]


def test_signatures_are_told(answers):
    """Also by the old plugin, which shows no optimized program of what is not loaded."""
    answers = [answers[key] for key in ("signature", "parameters", "donated", "results")]
    parameter = ["float32", [8], False]
    assert answers == [
        "(f32[8], f32[8]) -> (f32[8])",
        [parameter, parameter],
        [True, False],
        [
            "(f32[2,3]) -> (f32[2,3], i1[2,3])",
            "() -> (i32[8])",
            "(f32[]) -> (f32[])",
            "(f32[4,64], f32[64,32], f32[32], f32[32,10], f32[10]) -> (f32[4,10])",
        ],
    ]


def test_programs_are_told_apart(answers):
    assert answers["again"] == [True, False]


def test_code_is_guarded(answers, name):
    assert answers["guards"] == [name.rstrip("123"), VERSIONS[name], True]


def test_options_come_back(answers):
    assert answers["echo"] == [1, 1]


def test_what_is_no_program(answers):
    *_, none, number = answers["refused"]
    assert all(isinstance(each, dict) for each in answers["refused"])
    assert errors([none, number]) == ["TypeError", "TypeError"]


def test_what_is_no_option(answers):
    assert errors(answers["refused_options"][:2]) == ["ValueError", "ValueError"]
    assert answers["refused_options"][2]["error"] == "InvalidArgumentError"
    assert answers["refused_options"][3]["error"] == "TypeError"


def test_what_the_plugin_tells_of_code(answers, name):
    if name == "cuda12":
        assert (
            answers["layout"]["error"]
            == answers["shardings"]["error"]
            == "UnsupportedByPluginError"
        )
    else:
        assert len(answers["layout"]) == 2
        assert answers["shardings"] == 0
