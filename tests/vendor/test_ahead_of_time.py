"""Programs compiled for GPUs and TPUs that are not here, by their vendors' own plugins.

Each child compiles in its own process: what a plugin logs or aborts is its own.
"""

import gc
import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from children import in_child, refusal

import pjrt_hub
from pjrt_hub import Program, errors
from pjrt_hub.running.capi.call import BoundFunction
from pjrt_hub.running.executable.serialized import parse
from pjrt_hub.running.program.signature import flatten

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "programs"

#: The first bytes of a cubin: a 64-bit little-endian ELF file of NVIDIA's OS ABI.
CUBIN = re.compile(rb"\x7fELF\x02\x01\x01[\x33\x41]")
EM_CUDA = b"\x02\x00\xbe\x00"

#: Name -> kind, and the number of its devices.
TPUS = {
    "v2:2x2": ("TPU v2", 8),
    "v3:2x2": ("TPU v3", 8),
    "v4:2x2x1": ("TPU v4", 8),
    "v5e:2x2": ("TPU v5 lite", 4),
    "v5p:2x2x1": ("TPU v5", 4),
    "v6e:2x2": ("TPU v6 lite", 4),
    "tpu7x:2x2x1": ("TPU7x", 8),
}

MACHINES = {"cuda12": "H100", "cuda13": "H100", "tpu": "v5e:2x2"}
VERSIONS = {"cuda12": "0.58", "cuda13": "0.116", "tpu": "0.117"}
#: Autotuning is off, since without hardware there is nothing to time candidates on.
FLAGS = {"cuda12": {"xla_gpu_autotune_level": 0}}
HELLO = ROOT / "examples" / "hello.mlir"
ADD, MLP_FILE = PROGRAMS / "add.mlir", PROGRAMS / "mlp.mlir"
MLP = "(f32[4,64], f32[64,32], f32[32], f32[32,10], f32[10]) -> (f32[4,10])"


def describe(platform, name, **options):
    return pjrt_hub.topology(platform, name, options=options, offline=True)


@pytest.mark.parametrize("name", TPUS)
@in_child
def test_a_program_for_a_tpu(name):
    kind, count = TPUS[name]
    topology = describe("tpu", name)
    devices = topology.device_descriptions
    assert (topology.platform_name, devices[0].kind, len(devices)) == ("tpu", kind, count)
    assert sorted(each.id for each in devices) == list(range(count))
    assert tuple(devices[-1].coords) == (1, 1, 0)
    executable = topology.compile(MLP_FILE)
    assert (executable.name, executable.num_replicas) == ("main", 1)
    assert executable.fingerprint == topology.compile(MLP_FILE).fingerprint
    guards, code, _ = parse(executable.serialize())
    assert len(guards.plugin_sha256) == 64
    assert len(code) > 10_000
    assert str(executable.signature) == MLP
    assert executable.output_element_types == ("f32",)
    assert [list(each) for each in executable.output_dimensions] == [[4, 10]]
    assert executable.memory_stats()["generated_code_size_in_bytes"] > 10_000
    assert "f32[4,10]" in executable.report()
    assert f">0 {kind}<br>1 {kind}<br>" in topology._repr_html_()
    html = executable._repr_html_()
    assert ">Executable<" in html
    assert "f32[4,10]" in html
    assert f"&lt;Topology tpu of {count} devices&gt;" in html


@pytest.mark.parametrize(
    ("platform", "name", "kind"),
    [
        ("cuda13", "H100", "NVIDIA H100 80GB HBM3"),
        ("cuda13", "A100", "NVIDIA A100-SXM4-80GB"),
        ("cuda13", "NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("cuda13", "B200", "NVIDIA B200"),
        ("cuda12", "H100", "NVIDIA H100 80GB HBM3"),
        ("cuda12", "A100", "NVIDIA A100-SXM4-80GB"),
        ("cuda12", "H200", "NVIDIA H200 141GB HBM3e"),
    ],
)
@in_child
def test_a_program_for_a_gpu(platform, name, kind):
    topology = describe(platform, name)
    options = pjrt_hub.CompileOptions(flags=FLAGS.get(platform, {}))
    devices = topology.device_descriptions
    assert (topology.platform_name, [each.kind for each in devices]) == ("cuda", [kind])
    executable = topology.compile(MLP_FILE, options)
    assert executable.fingerprint == topology.compile(MLP_FILE, options).fingerprint
    _, code, _ = parse(executable.serialize())
    cubin = CUBIN.search(code)
    assert cubin is not None
    # These bytes name its machine; the newer plugin's compression leaves them as they are.
    assert EM_CUDA in code[cubin.start() : cubin.start() + 24]


@pytest.mark.parametrize("platform", MACHINES)
@in_child
def test_what_each_tells_of_a_machine_and_its_programs(platform):
    """The old plugin is asked, too; it shows no optimized program of what is not loaded."""
    topology = describe(platform, MACHINES[platform])
    options = pjrt_hub.CompileOptions(flags=FLAGS.get(platform, {}))
    assert topology.platform_version
    assert all(str(each) and each.process_index == 0 for each in topology.device_descriptions)
    add, donate, *others = (
        topology.compile(PROGRAMS / f"{name}.mlir", options)
        for name in ("add", "donate", "two_outputs", "no_args", "scalar", "mlp")
    )
    assert add.fingerprint != donate.fingerprint
    echoed = add.compile_options
    assert (add.name, add.num_replicas, add.num_partitions) == ("main", 1, 1)
    assert (echoed.num_replicas, echoed.num_partitions) == (1, 1)
    guards, code, _ = parse(add.serialize())
    told = (guards.platform, guards.api_version, code != b"")
    assert told == (platform.rstrip("123"), VERSIONS[platform], True)
    assert "1 replica(s) x 1 partition(s)" in add.report()
    if platform != "cuda12":  # that plugin does not tell them
        outputs = (list(add.output_element_types), [list(each) for each in add.output_dimensions])
        assert outputs == (["f32"], [[8]])
        assert "f32[8]" in add.report()
    parameters = [(str(each.dtype), each.shape, each.donated) for each in add.parameters]
    assert parameters == [("float32", (8,), False)] * 2
    assert [each.donated for each in donate.parameters] == [True, False]
    assert [str(each.signature) for each in (add, *others)] == [
        "(f32[8], f32[8]) -> (f32[8])",
        "(f32[2,3]) -> (f32[2,3], i1[2,3])",
        "() -> (i32[8])",
        "(f32[]) -> (f32[])",
        MLP,
    ]
    junk = [Program(b"junk", "mlir"), Program(b"junk", "nope"), Program(b"", "mlir")]
    for program in (*junk, "func.func @other() { return }", None, 5):
        with pytest.raises(TypeError if program in (None, 5) else errors.PjrtHubError):
            topology.compile(program, options)
    with pytest.raises(errors.InvalidArgumentError):
        topology.compile(ADD, pjrt_hub.CompileOptions(flags={"nope": 1}))
    with pytest.raises(TypeError):
        topology.compile(ADD, {})


@pytest.mark.parametrize(
    ("platform", "hint"),
    [
        ("cuda13", "plugin.ffi.register('absent', function)"),
        ("cuda12", "plugin.ffi.register('absent', function)"),
        ("tpu", "the plugin has no function 'absent'"),
    ],
)
@in_child
def test_a_function_that_is_not_there(platform, hint):
    text = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %r = stablehlo.custom_call @absent(%a) {api_version = 4 : i32}
        : (tensor<4xf32>) -> tensor<4xf32>
      return %r : tensor<4xf32>
    }"""
    with pytest.raises(errors.PjrtError) as caught:
        describe(platform, MACHINES[platform]).compile(text)
    assert hint in caught.value.hint


def print_code(platform, name):
    topology = describe(platform, name)
    _, code, _ = parse(topology.compile(MLP_FILE).serialize())
    print(json.dumps([topology.device_descriptions[0].kind, code.hex()]))


def test_each_gpu_gives_other_code_and_two_processes_compile_for_tpus_at_once(start, finish):
    """The TPU plugin locks the whole machine, but without a chip both processes go on."""
    codes = {finish(start(print_code, "cuda13", each))[1] for each in ("A100", "H100", "B200")}
    assert len(codes) == 3
    processes = [start(print_code, "tpu", name) for name in ("v5e:2x2", "v6e:2x2")]
    told = [finish(process) for process in processes]
    assert [kind for kind, _ in told] == ["TPU v5 lite", "TPU v6 lite"]
    assert all(len(code) > 20_000 for _, code in told)


@in_child
def test_a_topology_travels():
    for platform, name, count, kinds in (("tpu", "v5e:2x2", 4, 3), ("cuda13", "H100", 1, 2)):
        plugin = pjrt_hub.load(platform, offline=True)
        one, again = (plugin.topology(name) for _ in range(2))
        copy = plugin.deserialize_topology(one.serialize())
        assert one.fingerprint == again.fingerprint == copy.fingerprint
        assert one.fingerprint.bit_length() <= 64
        assert len(one.serialize()) == len(copy.serialize())
        assert [each.id for each in copy.device_descriptions] == list(range(count))
        coords = [[each.coords for each in own.device_descriptions] for own in (one, copy)]
        assert coords[0] == coords[1]
        assert len(copy.memory_space_kind_ids) == kinds
        for junk, error in ((b"\xff" * 20, errors.InvalidArgumentError), (5, TypeError)):
            with pytest.raises(error):
                plugin.deserialize_topology(junk)


def write_pickle(file):
    topology = describe("tpu", "v5e:2x2")
    executable = topology.compile(MLP_FILE)
    Path(file).write_bytes(pickle.dumps((topology, pickle.dumps(executable))))
    print(json.dumps([topology.fingerprint, executable.fingerprint]))


def read_pickle(file):
    topology, stream = pickle.loads(Path(file).read_bytes())
    told = [topology.fingerprint, topology.compile(MLP_FILE).fingerprint]
    print(json.dumps([*told, refusal(lambda: pickle.loads(stream))]))


def test_a_pickle_takes_a_topology_and_its_executables_along(start, finish, tmp_path):
    """The other process loads the plugin for it, and has no TPU that could run the code."""
    file = tmp_path / "pickled"
    here = finish(start(write_pickle, file))
    *there, refused = finish(start(read_pickle, file))
    assert there == here
    assert refused["error"] == "NotFoundError"
    assert "TPU initialization failed" in refused["text"]


@in_child
def test_an_array_laid_out_for_a_kind_of_memory():
    for platform, name in (("tpu", "v5e:2x2"), ("cuda13", "H100")):
        topology = describe(platform, name)
        first, *_ = topology.memory_space_kind_ids
        shape = topology.make_canonical_shape
        for dims, dtype, told in (([3, 5], "float32", "f32[3,5]"), ([], "bfloat16", "bf16[]")):
            assert str(*flatten(memoryview(shape(first, dims, dtype)))) == told
        for kind, dims in ((first, [-1]), (first, [1 << 40, 1 << 40]), (12345, [1])):
            with pytest.raises(ValueError, match=r"."):
                shape(kind, dims, "float32")
        for dims, dtype in (([1.5], "float32"), ([1], "str")):
            with pytest.raises(TypeError):
                shape(first, dims, dtype)


@in_child
def test_what_the_old_plugin_lacks():
    plugin = pjrt_hub.load("cuda12", offline=True)
    topology = plugin.topology("H100")
    for lacking, since in (
        (lambda: topology.fingerprint, "0.101"),
        (lambda: topology.memory_space_kind_ids, "0."),
        (lambda: plugin.deserialize_topology(topology.serialize()), "0.75"),
    ):
        with pytest.raises(errors.UnsupportedByPluginError) as caught:
            lacking()
        assert since in str(caught.value)
    answer = refusal(lambda: topology.compile(MLP_FILE))  # no kernel can be timed without a GPU
    assert "xla_gpu_autotune_level" in answer["text"].partition("hint: ")[2]


SUM = """
module attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  func.func @main(%a: tensor<256x256xf32> {mhlo.sharding = "{devices=[4,1]<=[4]}"})
      -> (tensor<f32> {mhlo.sharding = "{replicated}"}) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %sum = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<256x256xf32>, tensor<f32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
}
"""


@in_child
def test_several_devices_and_a_program_split_over_them():
    eight = describe("cuda", "H100", topology="1x2x4")
    assert [each.process_index for each in eight.device_descriptions] == [0] * 4 + [1] * 4
    with pytest.raises(ValueError, match="the topology has 8"):
        eight.compile("func.func @main() { return }", pjrt_hub.CompileOptions(num_replicas=9))
    slices = describe("tpu", "v5e:2x2", num_slices=2)
    found = [each.attributes["slice_index"] for each in slices.device_descriptions]
    assert sorted(found) == [0] * 4 + [1] * 4
    topology = describe("tpu", "v5e:2x2")
    options = pjrt_hub.CompileOptions(num_partitions=4, use_spmd_partitioning=True)
    executable = topology.compile(SUM, options)
    assert executable.num_partitions == 4
    assert str(executable.signature) == "(f32[64,256]) -> (f32[])"
    assert b"all-reduce" in executable.optimized_program().code


@pytest.mark.parametrize(
    ("platform", "name", "options", "error"),
    [
        ("tpu", "bogus:1x1", {}, "InvalidArgumentError"),
        ("tpu", "v5e:0x0", {}, "ValueError"),
        ("tpu", "v5e:2x2", {"num_slices": 1 << 40}, "ValueError"),
        ("tpu", "v5e:2x2", {"num_slices": "2"}, "TypeError"),
        ("cuda13", "H100", {"topology": 1}, "TypeError"),
        ("cuda13", "H100", {"topology": "-1x1x1"}, "ValueError"),
        ("cuda13", "H1000", {}, "TargetNotFoundError"),
        ("cuda12", "B200", {}, "TargetNotFoundError"),
        ("cuda12", "H100", {"target_config": 1}, "TypeError"),
        ("cuda12", "H100", {"target_config": "nonsense"}, "FailedPreconditionError"),
        ("cuda", "", {}, "FailedPreconditionError"),
    ],
)
@in_child
def test_no_such_machine(platform, name, options, error):
    """Several of these would end the process inside the plugin."""
    answer = refusal(lambda: pjrt_hub.topology(platform, name, options=options, offline=True))
    assert answer["error"] == error


@pytest.mark.parametrize(("platform", "newest"), [("cuda12", "1.8.7"), ("tpu", "1.24.0")])
@in_child
def test_a_program_that_is_too_new(platform, newest):
    """It is refused before the plugin sees it, and both versions are named."""
    topology = describe(platform, MACHINES[platform])
    with pytest.raises(errors.IncompatiblePluginError, match=r"StableHLO 9\.0\.0") as caught:
        topology.compile(b"ML\xefR\x0dStableHLO_v9.0.0\0")
    assert newest in str(caught.value)


@in_child
def test_handles_end_in_any_order():
    """Each handle is freed once, with its last reference, also while the interpreter ends."""
    BoundFunction._compile = lambda *fields: None  # every call now goes through Python
    freed, call = [], BoundFunction.raw

    def raw(self, **inputs):
        if "Destroy" in self.name:
            freed.append(self.name)
        return call(self, **inputs)

    BoundFunction.raw = raw
    plugin = pjrt_hub.load("cuda13", offline=True)
    executables = []
    for _ in range(3):
        topology = plugin.topology("H100")
        executables.append(topology.compile(ADD))
    del topology
    gc.collect()
    assert freed == []
    executables.clear()
    gc.collect()
    kinds = ("PJRT_Executable_Destroy", "PJRT_TopologyDescription_Destroy")
    assert sorted(freed) == [kinds[0]] * 3 + [kinds[1]] * 3
    return plugin.topology("H100")  # it lives until the process ends


@in_child
def test_threads_compile_at_once():
    topology = describe("tpu", "v5e:2x2")
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda _: len(topology.compile(MLP_FILE).serialize()), range(8)))
    assert len(told) == 8
    assert min(told) > 10_000


@pytest.fixture
def compiled(hub, tmp_path):
    """Run `pjrt-hub compile` for a target; the file that it writes is `out`."""
    out = tmp_path / "out"

    def compiled(target, *more, program=ADD, status=0):
        return hub("compile", program, "--target", target, "-o", out, *more, status=status)

    compiled.out = out
    return compiled


def test_the_command_compiles(compiled):
    assert json.loads(compiled("tpu:v5e:2x2", "--json").stdout) == {
        "target": "tpu:v5e:2x2",
        "platform": "tpu",
        "kind": "TPU v5 lite",
        "devices": 4,
        "path": str(compiled.out),
        "nbytes": compiled.out.stat().st_size,
    }
    assert compiled("tpu:v5e:2x2").stdout == f"{compiled.out}\n"
    compiled("cuda12:A100", "--flag", "xla_gpu_autotune_level=0", program=MLP_FILE)
    assert CUBIN.search(compiled.out.read_bytes())


def test_the_command_compiles_for_many_devices(compiled):
    shardy = ["use_spmd_partitioning=true", "use_shardy_partitioner=true"]
    told = compiled(
        *("tpu:v4:2x2x1", "--num-partitions", 8, "--json"),
        *(word for each in shardy for word in ("--compile-option", each)),
        *("--topology-option", "chips_per_host_bounds=[2,2,1]"),
        program=PROGRAMS / "matmul_shardy.mlir",
    )
    assert json.loads(told.stdout)["devices"] == 8
    assert compiled.out.stat().st_size > 10_000
    two_slices = ("tpu:v5e:2x2", "--topology-option", "num_slices=2", "--json")
    assert json.loads(compiled(*two_slices, "--num-replicas", 2).stdout)["devices"] == 8
    assert "divisible by the number of slices" in compiled(*two_slices, status=1).stderr
    said = compiled("tpu:v5e:2x2", "--num-replicas", 5, status=2).stderr
    assert "5 replica(s) of 1 partition(s) need 5 devices, the topology has 4" in said


@pytest.mark.parametrize("target", ["cuda12:H100", "cuda13:H100"])
def test_the_command_compiles_for_several_gpus(compiled, target):
    several = ("--topology-option", "topology=1x1x4", "--num-replicas", 4)
    told = json.loads(compiled(target, *several, "--json", program=HELLO).stdout)
    assert (told["devices"], told["nbytes"]) == (4, compiled.out.stat().st_size)
    said = compiled(target, "--num-replicas", 2, program=HELLO, status=2).stderr
    assert "need 2 devices" in said
    said = compiled(target, "--topology-option", "topology=4", program=HELLO, status=2).stderr
    assert "option 'topology' is of type string, found 4" in said


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("tpu:v5e:0x0", 2, "is not a shape of a machine"),
        ("tpu:bogus:1x1", 2, "Invalid TPU external name"),
        ("cuda:H1000", 2, "it has A100, A6000, H100"),
        ("nonsense:x", 3, "nonsense"),
    ],
)
def test_the_command_says_what_is_wrong(compiled, target, status, words):
    said = compiled(target, status=status).stderr
    assert words in said
    assert "Traceback" not in said
    assert not compiled.out.exists()


def test_the_command_lists_targets(hub):
    targets = {each["target"]: each for each in json.loads(hub("targets", "--json").stdout)}
    assert {"cuda13:H100", "cuda13:NVIDIA H100 PCIe", "cuda12:A100", "tpu:v5e:2x2"} <= set(targets)
    assert targets["cuda13:H100"] == {
        "target": "cuda13:H100",
        "plugin": "cuda13",
        "name": "H100",
        "description": "Hopper: NVIDIA H100 80GB HBM3",
    }
    cuda = json.loads(hub("targets", "cuda", "--json").stdout)
    assert {each["plugin"] for each in cuda} == {"cuda12", "cuda13"}
    table = hub("targets", "tpu").stdout.splitlines()
    assert table[0].split() == ["TARGET", "DESCRIPTION"]
    assert len(table) == 1 + len(TPUS)
