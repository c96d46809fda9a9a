"""What the CPU plugin's suite asks, as far as it needs no device, of plugins of other versions.

Each plugin is asked everything in one child process; each test reads its part of the answers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg", "/dev/accel0")),
    reason="the hardware is here",
)

PROGRAMS = Path(__file__).parents[1] / "programs"
VERSIONS = {"cuda12": "0.58", "cuda13": "0.116", "tpu": "0.116"}
MACHINES = {"cuda12": "H100", "cuda13": "H100", "tpu": "v5e:2x2"}
#: Without hardware there is nothing to time candidates on.
FLAGS = {"cuda12": {"xla_gpu_autotune_level": 0}}

ASK = """
import gc, pickle
from pjrt_hub import CompileOptions, Program
from pjrt_hub.running.capi import table
from pjrt_hub.running.extensions import layouts, memory_descriptions, shardings
from pjrt_hub.running.executable.serialized import read
plugin = pjrt_hub.load({name!r}, offline=True)
options = CompileOptions(flags={flags!r})
def told(ask):
    try:
        answer = ask()
    except Exception as exc:
        return {{"error": type(exc).__name__, "text": str(exc)}}
    return answer
def compiled(name, options=options):
    return topology.compile({programs!r} + "/" + name + ".mlir", options)
topology = pjrt_hub.topology({name!r}, {machine!r}, offline=True)
add = compiled("add")
blob = add.serialize()
guards, code = read(blob)
asked = dict(
    version=lambda: str(plugin.api_version),
    verdict=lambda: pjrt_hub.plugins({name!r}, offline=True)[0].verdict.ok,
    attributes=lambda: sorted(plugin.attributes),
    same_attributes=lambda: dict(plugin.attributes) == dict(plugin.attributes),
    extensions=lambda: [list(plugin.extensions), min(plugin.extensions.values())],
    lacking=lambda: [told(lambda: plugin.api.call(name)) for name in table.FUNCTIONS
             if not plugin.api.has(name)],
    client=lambda: [told(plugin.client) for _ in range(3)],
    junk_options=lambda: [told(lambda: plugin.client(junk)) for junk in (
        {{"nope": 1}}, {{1: 1}}, {{"nope": None}}, {{"nope": [1, "a"]}}, {{"node_id": 2**70}})],
    descriptions=lambda: [[each.id, each.kind, each.process_index, str(each)]
                  for each in topology.device_descriptions],
    platform=lambda: [topology.platform_name, topology.platform_version],
    topology_attributes=lambda: sorted(topology.attributes),
    fingerprint=lambda: topology.fingerprint,
    copy=lambda: (plugin.deserialize_topology(topology.serialize()).fingerprint
                  == topology.fingerprint),
    junk_topology=lambda: [told(lambda: plugin.deserialize_topology(junk))
                           for junk in (b"", b"junk", 5)],
    unknown_machine=lambda: plugin.topology("no such machine"),
    signature=lambda: str(add.signature),
    add=lambda: [add.name, add.num_replicas, add.num_partitions],
    parameters=lambda: [[str(each.dtype), each.shape, each.donated] for each in add.parameters],
    outputs=lambda: [[element.name, list(shape)] for element, shape
             in zip(add.output_types, add.output_dimensions)],
    donated=lambda: [each.donated for each in compiled("donate").parameters],
    results=lambda: [str(compiled(name).signature)
                     for name in ("two_outputs", "no_args", "scalar", "mlp")],
    report=lambda: add.report(),
    costs=lambda: compiled("matmul_64").cost_analysis().get("flops"),
    memory=lambda: add.memory_stats()["argument_size_in_bytes"],
    again=lambda: [add.fingerprint == compiled("add").fingerprint,
           add.fingerprint == compiled("donate").fingerprint],
    guards=lambda: [guards.platform, guards.api_version, len(code) > 0],
    echo=lambda: [add.compile_options.num_replicas, add.compile_options.num_partitions],
    refused=lambda: [told(lambda: topology.compile(program, options)) for program in (
        Program(b"junk", "mlir"), Program(b"junk", "nope"), Program(b"", "mlir"),
        "func.func @other() {{ return }}", None, 5)],
    refused_options=lambda: [told(lambda: compiled("add", wrong())) for wrong in (
        lambda: CompileOptions(num_replicas=0), lambda: CompileOptions(num_partitions=-1),
        lambda: CompileOptions(flags={{"nope": 1}}), lambda: {{}})],
    layout=lambda: [str(each) for each in layouts.parameter_layouts(add)],
    shardings=lambda: len(shardings.parameter_shardings(add)),
    kinds=lambda: add.output_memory_kinds,
    pickled=lambda: pickle.loads(pickle.dumps(Program.of({programs!r} + "/add.mlir"))).format,
)
answers = {{name: told(ask) for name, ask in asked.items()}}
del topology, add
gc.collect()
print(json.dumps(answers, default=str))
"""


@pytest.fixture(scope="module", params=VERSIONS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def told(child, name):
    """The plugin's answers."""
    return child(
        ASK.format(
            name=name, machine=MACHINES[name], programs=str(PROGRAMS), flags=FLAGS.get(name, {})
        )
    )


def errors(answers):
    return [answer["error"] for answer in answers]


def test_the_version_is_taken(told, name):
    assert (told["version"], told["same_attributes"]) == (VERSIONS[name], True)
    standard = {"stablehlo_current_version", "stablehlo_minimum_version", "xla_version"}
    assert standard <= set(told["attributes"])


def test_every_extension_is_whole(told):
    names, smallest = told["extensions"]
    assert len(set(names)) == len(names)
    assert {"FFI", "Layouts", "Profiler"} <= set(names)
    assert smallest >= 24


def test_what_is_missing_says_since_when(told, name):
    assert len(told["lacking"]) == (37 if name == "cuda12" else 0)
    for refusal in told["lacking"]:
        assert refusal["error"] == "UnsupportedByPluginError"
        assert ": it came with PJRT API 0." in refusal["text"]
        assert refusal["text"].splitlines()[0].endswith(f"the plugin has {VERSIONS[name]}")


def test_a_client_is_refused_each_time(told, name):
    expected = "NotFoundError" if name == "tpu" else "FailedPreconditionError"
    assert errors(told["client"]) == [expected] * 3


def test_create_options_are_checked(told, name):
    assert errors(told["junk_options"]) == ["ValueError", "TypeError"] + ["ValueError"] * 3


def test_devices_are_described(told, name):
    descriptions = told["descriptions"]
    assert [each[0] for each in descriptions] == list(range(4 if name == "tpu" else 1))
    assert all(kind and process == 0 and text for _, kind, process, text in descriptions)
    assert told["platform"][0] == name.rstrip("123")
    assert told["platform"][1]


def test_topologies_travel(told, name):
    assert told["junk_topology"][2]["error"] in ("TypeError", "UnsupportedByPluginError")
    if name == "cuda12":
        assert told["fingerprint"]["error"] == told["copy"]["error"] == "UnsupportedByPluginError"
        assert "0.101" in told["fingerprint"]["text"]
        assert "0.75" in told["copy"]["text"]
    else:
        assert 0 < told["fingerprint"] < 1 << 64
        assert told["copy"] is True
    assert all(isinstance(each, dict) for each in told["junk_topology"][1:])


def test_machines_that_nobody_describes(told):
    assert told["unknown_machine"]["error"] in ("TargetNotFoundError", "InvalidArgumentError")


def test_programs_are_compiled(told, name):
    assert told["add"] == ["main", 1, 1]
    assert "1 replica(s) x 1 partition(s)" in told["report"]
    if name != "cuda12":  # which does not tell
        assert told["outputs"] == [["f32", [8]]]
        assert "8xf32" in told["report"]


def test_signatures_are_told(told):
    """Also by the old plugin, which shows no optimized program of what is not loaded."""
    answers = [told[key] for key in ("signature", "parameters", "donated", "results")]
    parameter = ["float32", [8], False]
    assert answers == [
        "(8xf32, 8xf32) -> (8xf32)",
        [parameter, parameter],
        [True, False],
        [
            "(2x3xf32) -> (2x3xf32, 2x3xi1)",
            "() -> (8xi32)",
            "(f32) -> (f32)",
            "(4x64xf32, 64x32xf32, 32xf32, 32x10xf32, 10xf32) -> (4x10xf32)",
        ],
    ]


def test_programs_are_told_apart(told):
    assert told["again"] == [True, False]


def test_code_is_guarded(told, name):
    assert told["guards"] == [name.rstrip("123"), VERSIONS[name], True]


def test_options_come_back(told):
    assert told["echo"] == [1, 1]


def test_what_is_no_program(told):
    *_, none, number = told["refused"]
    assert all(isinstance(each, dict) for each in told["refused"])
    assert errors([none, number]) == ["TypeError", "TypeError"]


def test_what_is_no_option(told):
    assert errors(told["refused_options"][:2]) == ["ValueError", "ValueError"]
    assert told["refused_options"][2]["error"] == "InvalidArgumentError"
    assert told["refused_options"][3]["error"] == "TypeError"


def test_what_the_plugin_tells_of_code(told, name):
    if name == "cuda12":
        assert told["layout"]["error"] == told["shardings"]["error"] == "UnsupportedByPluginError"
    else:
        assert len(told["layout"]) == 2
        assert told["shardings"] == 0
