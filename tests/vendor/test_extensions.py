"""Extensions of vendors' plugins, as far as they answer without hardware."""

from functools import partial
from pathlib import Path

import pytest
from children import in_child, refusal
from tiles import ARRAYS, dtype_of

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.kit.tracing import xspace
from pjrt_hub.running.capi import wire
from pjrt_hub.running.extensions import (
    abi_version,
    executable_metadata,
    layouts,
    memory_descriptions,
    phase_compile,
    shardings,
    tpu_executable,
)

pytestmark = pytest.mark.usefixtures("without_hardware")

#: Name -> the nodes of the chain of extensions, each with its size in bytes.
SIZES = {
    "cuda12": "FFI 40, Layouts 56, Gpu_Custom_Call 32, Stream 40, Custom_Partitioner 32, "
    "Profiler 40",
    "cuda13": "AbiVersion 120, XlaTransform 56, Shardings 40, CrossHostTransfers 56, "
    "MemoryDescriptions 40, FFI 48, Layouts 80, Gpu_Custom_Call 33, Stream 40, "
    "Custom_Partitioner 40, Profiler 40",
    "tpu": "FFI 48, XlaTransform 56, HostMemoryAllocator 32, MultiSlice 64, Collectives 96, "
    "AbiVersion 120, Shardings 40, Megascale 248, TpuExecutable 96, TpuTopology 280, Callback 40, "
    "PhaseCompile 192, CrossHostTransfers 56, ExecutableMetadata 40, MemoryDescriptions 40, "
    "Layouts 80, RawBuffer 80, Profiler 40",
}
#: Functions that lie behind the end of a node of the older plugin.
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


def load(name):
    return pjrt_hub.load(name, offline=True)


def described(name):
    return pjrt_hub.topology(name, TARGETS[name], offline=True)


def refusals(*calls):
    return [refusal(call) for call in calls]


def errors_of(*calls):
    return [told and told["error"] for told in refusals(*calls)]


@pytest.mark.parametrize("name", SIZES)
@in_child
def test_nodes_and_what_they_end_before(name):
    plugin = load(name)
    found, missing = dict(plugin.extensions), []
    for extension in found:
        node = plugin.api.extension(extension)
        missing += [each for each in node._rows if not node.has(each)]
    assert [f"{node} {nbytes}" for node, nbytes in found.items()] == SIZES[name].split(", ")
    assert sorted(missing) == (MISSING if name == "cuda12" else [])
    if name != "tpu":
        topology = described(name)
        executable = topology.compile(ADD)
        only_of_libtpu = errors_of(
            lambda: topology.tpu,
            lambda: tpu_executable.target_arguments(executable),
            lambda: executable_metadata.executable_metadata(executable),
        )
        assert only_of_libtpu == ["UnsupportedByPluginError"] * 3


@in_child
def test_the_old_nodes_are_never_left():
    plugin, topology = load("cuda12"), described("cuda12")
    executable, device = topology.compile(ADD), topology.device_descriptions[0]
    refused = refusals(
        lambda: layouts.default_layout(topology, "f32", (8, 128)),
        lambda: layouts.output_layouts(executable),
        lambda: layouts.parameter_layouts(executable),
        lambda: plugin.ffi.register("f", print),
        lambda: shardings.output_shardings(executable),
        lambda: shardings.parameter_shardings(executable),
        lambda: abi_version.ExecutableAbiVersion.of(executable),
        lambda: memory_descriptions.memory_descriptions(topology, device),
        lambda: phase_compile.PhaseCompiler(plugin.api),
    )
    assert {each["error"] for each in refused} == {"UnsupportedByPluginError"}
    assert "at byte 56 of the extension Layouts, the plugin's node has 56" in refused[0]["text"]
    assert "at byte 40 of the extension FFI, the plugin's node has 40 bytes" in refused[3]["text"]


TPU_MEMORIES = [("device", True), ("pinned_host", False), ("unpinned_host", False)]


@pytest.mark.parametrize(
    ("name", "tiled", "scalar", "kinds"),
    [("cuda13", "{1,0}", "{}", []), ("tpu", "{1,0:T(8,128)(2,1)}", "{:T(128)}", TPU_MEMORIES)],
)
@in_child
def test_what_is_told_without_hardware(name, tiled, scalar, kinds):
    topology = described(name)
    executable, api = topology.compile(ADD), topology.api
    told = [
        layouts.default_layout(topology, "bf16", (8, 128)),
        *layouts.parameter_layouts(executable),
        *layouts.output_layouts(executable),
    ]
    assert [str(each) for each in told] == [tiled, tiled, tiled, scalar]
    memories = memory_descriptions.memory_descriptions(topology, topology.device_descriptions[0])
    assert [(each.kind, each.is_default) for each in memories] == kinds
    version = abi_version.ExecutableAbiVersion.of(executable)
    again = abi_version.ExecutableAbiVersion(api, version.proto)
    assert again == version
    assert again.platform_id == version.platform_id != 0
    assert not list(shardings.parameter_shardings(executable))
    assert not list(shardings.output_shardings(executable))
    with pytest.raises(errors.InvalidArgumentError):
        abi_version.ExecutableAbiVersion(api, b"\xff\xff\xff")
    if name == "tpu":  # the layer `discrete` has the same tiles
        for dtype, shape, tiles, _ in ARRAYS:
            rows = ",".join(map(str, reversed(range(len(shape)))))
            told = layouts.default_layout(topology, dtype_of(dtype), shape)
            assert str(told) == f"{{{rows}:{tiles}}}", (dtype, shape)


@in_child
def test_a_program_through_all_phases():
    """The last phase gives an executable, from which libtpu reads what it was made for."""
    plugin, topology = load("tpu"), described("tpu")
    compiler, read = phase_compile.PhaseCompiler(plugin.api), phase_compile.PartialProgram.read
    one, two_a, two_b, three, _ = compiler.phase_names
    assert one == "phase1_hlo_opts"
    for parts, phase, error, said in (
        ([b"junk"], one, errors.InvalidArgumentError, ""),
        ([b"junk"], "never", ValueError, "'never', it has phase1_hlo_opts"),
        ([], one, ValueError, ""),
    ):
        with pytest.raises(error, match=said):
            compiler.run(parts, [phase], topology)
    opened = compiler.run([pjrt_hub.Program.of(ADD)], [one], topology)
    parts = {read(each).name: each for each in opened}
    isolated = [each for each in opened if read(each).format == "dedup_hlo"]
    tlp = compiler.run(opened, [two_a], topology)
    environments = parts["modified_comp_envs"]
    deduped = [
        part for each in isolated for part in compiler.run([each, environments], [two_b], topology)
    ]
    rest = [each for each in opened if each not in isolated]
    linked = [read(each) for each in compiler.run([*rest, *tlp, *deduped], [three], topology)]
    names = ["opt_hlo", "modified_comp_envs", "buffer_assignment", "original_hlo_module"]
    assert [read(each).name for each in rest] == names
    assert {read(each).generating_phase for each in tlp} == {"phase2a_tlp_lowering"}
    assert {read(each).generating_phase for each in deduped} == {"phase2b_deduped_lowering"}
    assert [each.name for each in linked] == ["pjrt_executable", "executable_metadata"]
    arguments = plugin.api.extension("TpuExecutable").call(
        "PJRT_TpuExecutable_GetTargetArguments", serialized_executable=linked[0].code
    )
    assert arguments.count(b"lite") == 1
    assert tpu_executable.target_arguments(topology.compile(ADD)).count(b"lite") == 1
    refused = errors_of(lambda: compiler.run(opened, [three], topology), lambda: read(b"junk"))
    assert refused == ["PluginInternalError", "ValueError"]


@pytest.mark.parametrize("name", ["cuda12", "cuda13"])
@in_child
def test_custom_calls_compile(name):
    """The compiler names a function that it does not find, so a lost registration is seen.

    It also instantiates the calls of a program.
    """
    plugin, topology, made = load(name), described(name), []

    def compiled(function):
        return topology.compile(CUSTOM.replace("NAME", function))

    def fail():
        raise ValueError("no plan")

    def note():
        made.append(plugin.ffi.current.name)
        return object()

    register = partial(plugin.ffi.register, platform="CUDA")
    register("ours", print)
    register("staged", print, prepare=print, initialize=print, instantiate=note)
    register("failing", print, instantiate=fail)
    compiled("ours")
    compiled("staged")
    assert made == ["staged"]
    for function, error, said in (
        (partial(compiled, "never_registered"), errors.PjrtError, "never_registered"),
        (partial(register, "ours", print), errors.AlreadyExistsError, "ours"),
        (partial(compiled, "failing"), errors.PjrtError, "ValueError: no plan"),
    ):
        with pytest.raises(error, match=said):
            function()


@pytest.mark.parametrize("name", SIZES)
@in_child
def test_a_profile(name, tmp_path):
    """Without hardware, a profile has the steps of the compiler."""
    topology, plugin, path = described(name), load(name), Path(tmp_path, "p.xplane.pb")
    profiler = plugin.profiler(path)
    with profiler:
        topology.compile(ADD)
    assert path.stat().st_size == len(profiler.xspace) > 0
    profile = xspace.read(profiler.xspace)
    assert profile.messages == ()
    [host] = [plane for plane in profile.planes if plane.name == "/host:CPU"]
    step = {"cuda12": "call-inliner", "cuda13": "call-inliner", "tpu": "dce"}[name]
    titles = {title for line in host.lines for title in line.titles.tolist()}
    assert step in {host.names[title] for title in titles}
    other = plugin.profiler()
    refused = errors_of(other.stop, other.collect)
    other.close()
    other.close()
    refused += errors_of(other.start, lambda: plugin.profiler(host_level=9))
    assert refused == ["RuntimeError"] * 3 + ["ValueError"]


@in_child
def test_a_tpu_topology():
    small, large = (
        pjrt_hub.topology("tpu", name, offline=True).tpu for name in ("v5e:2x2", "v4:2x2x2")
    )
    numbers = ("", "_per_chip", "_per_process")
    names = [f"{of}_count{each}" for of in ("core", "device") for each in numbers]
    names += ["chip_count", "process_count", "chips_per_process"]
    counts = [[getattr(each, name) for name in names] for each in (small, large)]
    assert counts == [[4, 1, 4, 4, 1, 4, 4, 1, 4], [16, 2, 8, 16, 2, 8, 8, 2, 4]]
    names = ("chip_bounds", "process_bounds", "chips_per_process_bounds")
    assert [getattr(small, name) for name in names] == [(2, 2, 1), (1, 1, 1), (2, 2, 1)]
    assert [getattr(large, name) for name in names] == [(2, 2, 2), (1, 1, 2), (2, 2, 1)]
    assert [list(each.process_ids) for each in (small, large)] == [[0], [0, 1]]
    assert list(large.device_ids_on_process(1)) == [8, 9, 10, 11, 12, 13, 14, 15]
    assert large.process_coordinates(1) == (0, 0, 1)
    assert (large.chip_on_process(5), large.device_on_process(13)) == ((1, 1), (1, 5))
    assert (large.chip_id((1, 1, 0)), large.device_id((1, 1, 0), 1)) == (3, 7)
    assert large.chip_coordinates(7) == ((1, 1, 0), 1)
    for each in large.topology.device_descriptions:
        assert large.device_id(*large.chip_coordinates(each.id)) == each.id
    assert not small.is_subslice
    assert small.is_enhanced_barrier_enabled
    assert not small.has_limited_ici_connectivity
    assert [small.is_reachable_over_limited_ici(0, number) for number in (1, 3)] == [True, False]
    assert small.routing_strategy == "mesh"


@in_child
def test_parts_of_a_tpu_topology_and_numbers_that_none_has():
    """A device outside of a part would end the process, so it is refused before."""
    tpu = described("tpu").tpu
    part = tpu.subslice((2, 1, 1))
    assert (part.tpu.chip_bounds, part.tpu.is_subslice) == ((2, 1, 1), True)
    assert len(part.device_descriptions) == 2
    pairs = ((0, 1), (1, 2), (1, 3))
    assert [tpu.subslice_device_id(part, (0, y, 0), each) for y, each in pairs] == [1, 0, 1]
    assert (
        errors_of(
            lambda: tpu.subslice_device_id(part, (0, 0, 0), 2),
            lambda: tpu.subslice_device_id(part, (0, 0), 0),
            lambda: tpu.subslice_device_id(part, (0, 0, 0), 4),
            lambda: tpu.subslice_device_id(tpu.topology, (0, 0, 0), 0),
            lambda: tpu.subslice((9, 9, 9)),
            lambda: tpu.replace_host_bounds((0, 0, 0)),
        )
        == ["ValueError"] * 4 + ["InvalidArgumentError"] * 2
    )
    assert tpu.replace_host_bounds((2, 2, 1)).tpu.chip_count == 16
    assert len(part.compile(ADD).serialize()) > 1000

    ours = errors_of(
        lambda: tpu.chip_on_process(-1),
        lambda: tpu.chip_on_process(4),
        lambda: tpu.device_on_process(-1),
        lambda: tpu.chip_coordinates(-1),
        lambda: tpu.device_id((0, 0, 0), -1),
        lambda: tpu.device_id((0, 0, 0), 1),
        lambda: tpu.is_reachable_over_limited_ici(0, 99),
        lambda: tpu.chip_id((2**40, 0, 0)),
    )
    theirs = errors_of(
        lambda: tpu.chip_id((-1, 0, 0)),
        lambda: tpu.chip_id((0, 0)),
        lambda: tpu.chip_id((5, 0, 0)),
        lambda: tpu.process_coordinates(-1),
        lambda: tpu.device_ids_on_process(7),
    )
    assert (ours, theirs) == (["ValueError"] * 8, ["InvalidArgumentError"] * 5)
    assert errors_of(lambda: tpu.chip_on_process("0")) == ["TypeError"]


@in_child
def test_what_libtpu_reads_out_of_code():
    executable, api = described("tpu").compile(ADD), load("tpu").api
    arguments = tpu_executable.target_arguments(executable)
    module = tpu_executable.hlo_module_with_config(executable)
    stats = tpu_executable.compiled_memory_stats(executable)
    metadata = executable_metadata.executable_metadata(executable)
    assert b"lite" in arguments
    assert b"main" in module
    assert {number for number, _ in wire.fields(memoryview(module))} == {1, 2}
    for proto in (arguments, stats, metadata):
        assert list(wire.fields(memoryview(proto)))
    [nbytes] = [value for number, value in wire.fields(memoryview(stats)) if number == 1]
    assert nbytes == executable.memory_stats()["generated_code_size_in_bytes"] > 0
    analyse = tpu_executable.run_hlo_cost_analysis
    assert analyse(executable)["flops"] == executable.cost_analysis()["flops"] == 1024.0
    environments = tpu_executable.compilation_environments(api)
    field = tpu_executable.compilation_environment_field
    assert field(api, environments, "xla_tpu_enable_latency_hiding_scheduler") == "true"
    unknown = refusal(lambda: field(api, environments, "xla_never"))
    assert "xla_never not found" in unknown["text"]
    assert tpu_executable.is_predetermined_error(api, b"") is False
    for error, call, *wrong in (
        ("PluginInternalError", tpu_executable.compilation_environments, api, b"junk"),
        ("ValueError", analyse, executable, []),
        ("InvalidArgumentError", analyse, executable, [b"junk"]),
        ("UnimplementedError", analyse, executable, [module] * 2),  # more than one program
        ("InvalidArgumentError", tpu_executable.is_predetermined_error, api, b"junk"),
    ):
        assert refusal(partial(call, *wrong))["error"] == error
