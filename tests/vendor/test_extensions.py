"""Extensions of vendors' plugins, as far as they answer without hardware."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg", "/dev/accel0")),
    reason="the hardware is here",
)

#: name -> the nodes of the chain with their sizes in bytes
SIZES = {
    "cuda12": {
        "FFI": 40,
        "Layouts": 56,
        "Gpu_Custom_Call": 32,
        "Stream": 40,
        "Custom_Partitioner": 32,
        "Profiler": 40,
    },
    "cuda13": {
        "AbiVersion": 120,
        "XlaTransform": 56,
        "Shardings": 40,
        "CrossHostTransfers": 56,
        "MemoryDescriptions": 40,
        "FFI": 48,
        "Layouts": 80,
        "Gpu_Custom_Call": 33,
        "Stream": 40,
        "Custom_Partitioner": 40,
        "Profiler": 40,
    },
    "tpu": {
        "FFI": 48,
        "XlaTransform": 56,
        "HostMemoryAllocator": 32,
        "MultiSlice": 64,
        "Collectives": 96,
        "AbiVersion": 120,
        "Shardings": 40,
        "Megascale": 248,
        "TpuExecutable": 96,
        "TpuTopology": 272,
        "Callback": 40,
        "PhaseCompile": 64,
        "CrossHostTransfers": 56,
        "ExecutableMetadata": 40,
        "MemoryDescriptions": 40,
        "Layouts": 80,
        "RawBuffer": 80,
        "Profiler": 40,
    },
}
#: what a node of the older plugin ends before
MISSING = [
    "PJRT_FFI_Register_Handler",
    "PJRT_Layouts_PJRT_Executable_GetOutputLayouts",
    "PJRT_Layouts_PJRT_Executable_GetParameterLayouts",
    "PJRT_Layouts_PJRT_Topology_GetDefaultLayout",
    "PJRT_Register_Batch_Partitionable",
]

ADD = """func.func @main(%a: tensor<8x128xbf16>) -> (tensor<8x128xbf16>, tensor<f32>) {
  %c = stablehlo.constant dense<1.0> : tensor<f32>
  %0 = stablehlo.add %a, %a : tensor<8x128xbf16>
  return %0, %c : tensor<8x128xbf16>, tensor<f32> }"""
CUSTOM = """func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.custom_call @NAME(%a) {api_version = 4 : i32, backend_config = {}}
      : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32> }"""
TARGETS = {"cuda12": "H100", "cuda13": "H100", "tpu": "v5e:2x2"}

PREPARE = """
from pjrt_hub.runtime import (
    abi_version, layouts, memory_descriptions, phase_compile, shardings, stream)
plugin = pjrt_hub.load({name!r}, offline=True)
def topology():
    return pjrt_hub.topology({name!r}, {target!r}, offline=True)
"""


@pytest.fixture(scope="module")
def ask(child):
    """Runs code in a child that has loaded a plugin."""

    def ask(name, code):
        lines = code if isinstance(code, str) else "\n".join(code)
        return child(PREPARE.format(name=name, target=TARGETS[name]) + lines)

    return ask


@pytest.mark.parametrize("name", SIZES)
def test_nodes_and_what_they_end_before(ask, name):
    sizes, missing = ask(
        name,
        """
found, missing = dict(plugin.extensions), []
for extension in found:
    node = plugin.api.extension(extension)
    missing += [name for name in node._rows if not node.has(name)]
print(json.dumps([found, sorted(missing)]))
""",
    )
    assert sizes == SIZES[name]
    assert list(sizes) == list(SIZES[name])
    assert missing == (MISSING if name == "cuda12" else [])


def test_the_old_nodes_are_never_left(ask):
    refusals = ask(
        "cuda12",
        f"""
described = topology()
executable = described.compile({ADD!r})
print(json.dumps([refusal(call) for call in (
    lambda: layouts.default_layout(described, "f32", (8, 128)),
    lambda: layouts.output_layouts(executable),
    lambda: layouts.parameter_layouts(executable),
    lambda: plugin.ffi.register("f", print),
    lambda: shardings.output_shardings(executable),
    lambda: abi_version.ExecutableAbiVersion.of(executable),
    lambda: memory_descriptions.memory_descriptions(described, described.device_descriptions[0]),
    lambda: phase_compile.PhaseCompiler(plugin.api),
)]))
""",
    )
    assert {each["error"] for each in refusals} == {"UnsupportedByPluginError"}
    assert "at byte 56 of the extension Layouts, the plugin's node has 56" in refusals[0]["text"]
    assert "at byte 40 of the extension FFI, the plugin's node has 40 bytes" in refusals[3]["text"]


LOOK = f"""
described = topology()
executable = described.compile({ADD!r})
kinds = memory_descriptions.memory_descriptions(described, described.device_descriptions[0])
version = abi_version.ExecutableAbiVersion.of(executable)
again = abi_version.ExecutableAbiVersion(plugin.api, version.proto)
print(json.dumps([
    [str(each) for each in (layouts.default_layout(described, "bf16", (8, 128)),
                            *layouts.parameter_layouts(executable),
                            *layouts.output_layouts(executable))],
    [[each.kind, each.is_default] for each in kinds],
    [again == version, again.platform_id == version.platform_id != 0],
    [list(shardings.parameter_shardings(executable)), list(shardings.output_shardings(executable))],
    [refusal(lambda: kind(plugin.api, b"\\xff\\xff\\xff"))["error"]
     for kind in (abi_version.ExecutableAbiVersion, abi_version.RuntimeAbiVersion)],
]))
"""


@pytest.mark.parametrize(
    ("name", "tiled", "scalar", "kinds"),
    [
        ("cuda13", "{1,0}", "{}", []),
        (
            "tpu",
            "{1,0:T(8,128)(2,1)}",
            "{:T(128)}",
            [["device", True], ["pinned_host", False], ["unpinned_host", False]],
        ),
    ],
)
def test_what_is_told_without_hardware(ask, name, tiled, scalar, kinds):
    found, memories, versions, shards, junk = ask(name, LOOK)
    assert found == [tiled, tiled, tiled, scalar]
    assert memories == kinds
    assert versions == [True, True]
    assert shards == [[], []]
    assert junk == ["InvalidArgumentError"] * 2


def test_phases(ask):
    names, damaged, unknown, nothing = ask(
        "tpu",
        """
compiler, described = phase_compile.PhaseCompiler(plugin.api), topology()
first = compiler.phase_names[0]
print(json.dumps([compiler.phase_names,
    refusal(lambda: compiler.run([b"junk"], [first], described))["error"],
    refusal(lambda: compiler.run([b"junk"], ["never"], described)),
    refusal(lambda: compiler.run([], [first], described))["error"]]))
""",
    )
    assert len(names) == 5
    assert names[0] == "phase1_hlo_opts"
    assert (damaged, nothing) == ("InvalidArgumentError", "ValueError")
    assert unknown["error"] == "ValueError"
    assert "'never', it has phase1_hlo_opts" in unknown["text"]


@pytest.mark.parametrize("name", ["cuda12", "cuda13"])
def test_a_registered_custom_call_compiles(ask, name):
    """A compiler that finds no such function says so: a registration that was dropped is seen."""
    dropped, kept, twice = ask(
        name,
        f"""
program = {CUSTOM!r}
described = topology()
plugin.ffi.register("ours", print, platform="CUDA")
print(json.dumps([
    refusal(lambda: described.compile(program.replace("NAME", "never_registered"))),
    refusal(lambda: described.compile(program.replace("NAME", "ours"))),
    refusal(lambda: plugin.ffi.register("ours", print, platform="CUDA")),
]))
""",
    )
    assert "never_registered" in dropped["text"]
    assert kept is None
    assert twice["error"] == "AlreadyExistsError"


@pytest.mark.parametrize("name", SIZES)
def test_a_profile(ask, name, tmp_path):
    path = tmp_path / "p.xplane.pb"
    told = ask(
        name,
        f"""
from pjrt_hub._capi import wire
described = topology()
profiler = plugin.profiler({json.dumps(str(path))})
with profiler:
    described.compile({ADD!r})
numbers = sorted(set(number for number, _ in wire.fields(memoryview(profiler.xspace))))
other = plugin.profiler()
states = [refusal(other.stop), refusal(other.collect)]
other.close()
other.close()
states += [refusal(other.start), refusal(lambda: plugin.profiler(host_level=9))]
print(json.dumps([len(profiler.xspace), numbers, [each["error"] for each in states]]))
""",
    )
    size, numbers, states = told
    assert path.stat().st_size == size
    assert set(numbers) <= {1, 2, 3, 4}  # planes, errors, warnings, host names
    assert size > 0
    assert states == ["RuntimeError"] * 3 + ["ValueError"]
