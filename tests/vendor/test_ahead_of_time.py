"""Programs compiled for GPUs and TPUs that are not here, by their vendors' own plugins.

Each child compiles in its own process: what a plugin logs or aborts is its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "programs"

#: The first bytes of a cubin: a 64-bit little-endian ELF file of NVIDIA's OS ABI.
CUBIN = re.compile(rb"\x7fELF\x02\x01\x01[\x33\x41]")
EM_CUDA = b"\x02\x00\xbe\x00"

#: name -> kind, devices, coordinates of the last device
TPUS = {
    "v2:2x2": ("TPU v2", 8, (1, 1, 0)),
    "v3:2x2": ("TPU v3", 8, (1, 1, 0)),
    "v4:2x2x1": ("TPU v4", 8, (1, 1, 0)),
    "v5e:2x2": ("TPU v5 lite", 4, (1, 1, 0)),
    "v5p:2x2x1": ("TPU v5", 4, (1, 1, 0)),
    "v6e:2x2": ("TPU v6 lite", 4, (1, 1, 0)),
    "tpu7x:2x2x1": ("TPU7x", 8, (1, 1, 0)),
}

COMPILE = f"""
from pjrt_hub.running.executable.serialized import read
topology = pjrt_hub.topology({{platform!r}}, {{name!r}}, offline=True)
executable = topology.compile({str(PROGRAMS / "mlp.mlir")!r}, {{options}})
blob = executable.serialize()
guards, code = read(blob)
told = dict(
    platform=topology.platform_name,
    kind=topology.device_descriptions[0].kind,
    count=len(topology.device_descriptions),
    ids=sorted(each.id for each in topology.device_descriptions),
    last=topology.device_descriptions[-1].coords,
    name=executable.name,
    replicas=executable.num_replicas,
    stable=executable.fingerprint
    == topology.compile({str(PROGRAMS / "mlp.mlir")!r}, {{options}}).fingerprint,
    guards=[guards.platform, guards.api_version, len(guards.plugin_sha256)],
    code=code.hex(),
)
"""
TELL = COMPILE + "print(json.dumps(told))\n"
TELL_MORE = (
    COMPILE
    + """
told |= dict(
    signature=str(executable.signature),
    outputs=[[element.name, shape] for element, shape
             in zip(executable.output_types, executable.output_dimensions)],
    memory=executable.memory_stats(),
    report=executable.report(),
    html=[topology._repr_html_(), executable._repr_html_()],
)
print(json.dumps(told))
"""
)
MLP = "(4x64xf32, 64x32xf32, 32xf32, 32x10xf32, 10xf32) -> (4x10xf32)"


def tell(code, platform, name, options="None"):
    return code.format(platform=platform, name=name, options=options)


@pytest.mark.parametrize("name", TPUS)
def test_a_program_for_a_tpu(child, name):
    kind, count, last = TPUS[name]
    told = child(tell(TELL_MORE, "tpu", name))
    assert (told["platform"], told["kind"], told["count"]) == ("tpu", kind, count)
    assert told["ids"] == list(range(count))
    assert tuple(told["last"]) == last
    assert (told["name"], told["replicas"], told["stable"]) == ("main", 1, True)
    assert told["guards"] == ["tpu", "0.116", 64]
    assert len(bytes.fromhex(told["code"])) > 10_000
    assert told["signature"] == MLP
    assert told["outputs"] == [["f32", [4, 10]]]
    assert told["memory"]["generated_code_size_in_bytes"] > 10_000
    assert "4x10xf32" in told["report"]
    assert f">0 {kind}\n1 {kind}\n" in told["html"][0]
    assert ">Executable<" in told["html"][1]
    assert "4x10xf32" in told["html"][1]
    assert f"&lt;Topology tpu of {count} devices&gt;" in told["html"][1]


@pytest.mark.parametrize(
    ("platform", "name", "kind", "options"),
    [
        ("cuda13", "H100", "NVIDIA H100 80GB HBM3", "None"),
        ("cuda13", "A100", "NVIDIA A100-SXM4-80GB", "None"),
        ("cuda13", "NVIDIA H100 PCIe", "NVIDIA H100 PCIe", "None"),
        ("cuda13", "B200", "NVIDIA B200", "None"),
        ("cuda12", "H100", "NVIDIA H100 80GB HBM3", "NO_TIMING"),
        ("cuda12", "A100", "NVIDIA A100-SXM4-80GB", "NO_TIMING"),
    ],
)
def test_a_program_for_a_gpu(child, platform, name, kind, options):
    timing = 'pjrt_hub.CompileOptions(flags={"xla_gpu_autotune_level": 0})'
    told = child(tell(TELL, platform, name, options.replace("NO_TIMING", timing)))
    assert (told["platform"], told["kind"], told["count"]) == ("cuda", kind, 1)
    assert (told["name"], told["stable"]) == ("main", True)
    code = bytes.fromhex(told["code"])
    cubin = CUBIN.search(code)
    assert cubin is not None
    # Its machine; the newer plugin compresses, which leaves these bytes as they are.
    assert EM_CUDA in code[cubin.start() : cubin.start() + 24]


@pytest.mark.parametrize(
    ("platform", "name", "hint"),
    [
        ("cuda13", "H100", "plugin.ffi.register('absent', function)"),
        ("cuda12", "H100", "plugin.ffi.register('absent', function)"),
        ("tpu", "v5e:2x2", "the plugin has no function 'absent'"),
    ],
)
def test_a_function_that_is_not_there(child, platform, name, hint):
    told = child(
        f"""
        text = '''func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
          %r = stablehlo.custom_call @absent(%a) {{api_version = 4 : i32}}
            : (tensor<4xf32>) -> tensor<4xf32>
          return %r : tensor<4xf32>
        }}'''
        try:
            pjrt_hub.topology({platform!r}, {name!r}, offline=True).compile(text)
        except pjrt_hub.errors.PjrtError as exc:
            print(json.dumps([exc.hint]))
        """
    )
    assert hint in told[0]


def test_each_gpu_gives_other_code(child):
    codes = {name: child(tell(TELL, "cuda13", name))["code"] for name in ("A100", "H100", "B200")}
    assert len(set(codes.values())) == 3


def test_a_topology_travels(child):
    told = child(
        """
        told = {}
        for platform, name in (("tpu", "v5e:2x2"), ("cuda13", "H100")):
            plugin = pjrt_hub.load(platform, offline=True)
            one, again = (plugin.topology(name) for _ in range(2))
            copy = plugin.deserialize_topology(one.serialize())
            told[platform] = [
                one.fingerprint == again.fingerprint == copy.fingerprint,
                one.fingerprint.bit_length() <= 64,
                len(one.serialize()) == len(copy.serialize()),
                [each.id for each in copy.device_descriptions],
                [each.coords for each in one.device_descriptions]
                == [each.coords for each in copy.device_descriptions],
                len(copy.memory_space_kind_ids),
                refusal(lambda: plugin.deserialize_topology(b"\\xff" * 20))["error"],
            ]
        print(json.dumps(told))
        """
    )
    refused = "InvalidArgumentError"
    assert told == {
        "tpu": [True, True, True, [0, 1, 2, 3], True, 3, refused],
        "cuda13": [True, True, True, [0], True, 2, refused],
    }


def test_a_pickle_takes_a_topology_and_its_executables_along(child, tmp_path):
    """Into a process that loads the plugin for it, and has no TPU that could run the code."""
    tell = f"""
        import pickle
        {{}}
        executable = topology.compile({str(PROGRAMS / "mlp.mlir")!r})
        told = [topology.fingerprint, executable.fingerprint]
        {{}}
        print(json.dumps(told))
        """
    file = str(tmp_path / "pickled")
    here = child(
        tell.format(
            'topology = pjrt_hub.topology("tpu", "v5e:2x2", offline=True)',
            f'pickle.dump((topology, pickle.dumps(executable)), open({file!r}, "wb"))',
        )
    )
    there = child(
        tell.format(
            f'topology, stream = pickle.load(open({file!r}, "rb"))',
            "told.append(refusal(lambda: pickle.loads(stream)))",
        )
    )
    assert there[:2] == here
    assert there[2]["error"] == "NotFoundError"
    assert "TPU initialization failed" in there[2]["text"]


def test_an_array_laid_out_for_a_kind_of_memory(child):
    told = child(
        """
        from pjrt_hub.running.program.signature import flatten
        told = {}
        for platform, name in (("tpu", "v5e:2x2"), ("cuda13", "H100")):
            topology = pjrt_hub.topology(platform, name, offline=True)
            first, *_ = topology.memory_space_kind_ids
            shape = topology.make_canonical_shape
            told[platform] = [str(*flatten(memoryview(shape(first, dims, dtype))))
                              for dims, dtype in (([3, 5], "float32"), ([], "bfloat16"))]
            told[platform] += [refusal(lambda: shape(*args))["error"] for args in (
                (first, [-1], "float32"), (first, [1 << 40, 1 << 40], "float32"),
                (first, [1.5], "float32"), (12345, [1], "float32"), (first, [1], "str"))]
        print(json.dumps(told))
        """
    )
    refused = ["ValueError", "ValueError", "TypeError", "ValueError", "TypeError"]
    assert told == {each: ["3x5xf32", "bf16", *refused] for each in ("tpu", "cuda13")}


def test_what_the_old_plugin_lacks(child):
    told = child(
        """
        plugin = pjrt_hub.load("cuda12", offline=True)
        topology = plugin.topology("H100")
        executable = topology.compile("func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {"
                                      " return %a : tensor<8xf32> }")
        print(json.dumps([refusal(use)["error"] for use in (
            lambda: topology.fingerprint,
            lambda: topology.memory_space_kind_ids,
            lambda: plugin.deserialize_topology(topology.serialize()),
        )] + [str(executable.signature)]))
        """
    )
    assert told == ["UnsupportedByPluginError"] * 3 + ["(8xf32) -> (8xf32)"]


def test_kernels_cannot_be_timed_without_a_gpu(child):
    answer = child(
        f"""
        topology = pjrt_hub.topology("cuda12", "H100", offline=True)
        print(json.dumps(refusal(lambda: topology.compile({str(PROGRAMS / "mlp.mlir")!r}))))
        """
    )
    assert "xla_gpu_autotune_level" in answer["text"].partition("hint: ")[2]


def test_a_program_split_over_a_tpu_board(child):
    program = """
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
    told = child(
        f"""
        topology = pjrt_hub.topology("tpu", "v5e:2x2", offline=True)
        options = pjrt_hub.CompileOptions(num_partitions=4, use_spmd_partitioning=True)
        executable = topology.compile({program!r}, options)
        print(json.dumps([executable.num_partitions, str(executable.signature),
                          b"all-reduce" in executable.optimized_program()[0]]))
        """
    )
    assert told == [4, "(64x256xf32) -> (f32)", True]


def test_several_gpus_and_slices(child):
    told = child(
        """
        eight = pjrt_hub.topology("cuda", "H100", options={"topology": "1x2x4"}, offline=True)
        slices = pjrt_hub.topology("tpu", "v5e:2x2", options={"num_slices": 2}, offline=True)
        print(json.dumps([
            [each.process_index for each in eight.device_descriptions],
            [each.attributes["slice_index"] for each in slices.device_descriptions],
            refusal(lambda: eight.compile("func.func @main() { return }",
                                          pjrt_hub.CompileOptions(num_replicas=9))),
        ]))
        """
    )
    processes, slices, refused = told
    assert processes == [0, 0, 0, 0, 1, 1, 1, 1]
    assert sorted(slices) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert refused["error"] == "ValueError"
    assert "the topology has 8" in refused["text"]


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
        ("cuda12", "H200", {}, "TargetNotFoundError"),
        ("cuda12", "H100", {"target_config": 1}, "TypeError"),
        ("cuda12", "H100", {"target_config": "nonsense"}, "FailedPreconditionError"),
        ("cuda", "", {}, "FailedPreconditionError"),
    ],
)
def test_no_such_machine(child, platform, name, options, error):
    """Several of these would end the process inside the plugin."""
    answer = child(
        f"""
        print(json.dumps(refusal(
            lambda: pjrt_hub.topology({platform!r}, {name!r}, options={options!r}, offline=True)
        )))
        """
    )
    assert answer["error"] == error


@pytest.mark.parametrize(("platform", "name"), [("cuda12", "H100"), ("tpu", "v5e:2x2")])
def test_a_program_that_is_too_new(child, platform, name):
    """It is refused before the plugin sees it, and both versions are named."""
    told = child(
        f"""
        topology = pjrt_hub.topology({platform!r}, {name!r}, offline=True)
        program = b"ML\\xefR\\x0dStableHLO_v9.0.0\\0"
        print(json.dumps(refusal(lambda: topology.compile(program))))
        """
    )
    assert told["error"] == "IncompatiblePluginError"
    assert "StableHLO 9.0.0" in told["text"]
    assert {"cuda12": "1.8.7", "tpu": "1.23.0"}[platform] in told["text"]


def test_handles_end_in_any_order(child):
    """Each is freed once, with its last reference, also while the interpreter ends."""
    told = child(
        f"""
        import gc
        from pjrt_hub.running.capi.call import BoundFunction
        BoundFunction._compile = lambda *fields: None  # so that Python sees every call
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
            executables.append(topology.compile({str(PROGRAMS / "add.mlir")!r}))
        del topology
        gc.collect()
        before = list(freed)
        executables.clear()
        gc.collect()
        kept = plugin.topology("H100")
        print(json.dumps([before, sorted(freed)]))
        """
    )
    assert told == [
        [],
        ["PJRT_Executable_Destroy"] * 3 + ["PJRT_TopologyDescription_Destroy"] * 3,
    ]


def test_two_processes_compile_for_tpus_at_once(start, finish):
    """The plugin's lock is for the whole machine; without a chip both go on."""
    processes = [start(tell(TELL, "tpu", name)) for name in ("v5e:2x2", "v6e:2x2")]
    told = [finish(process) for process in processes]
    assert [each["kind"] for each in told] == ["TPU v5 lite", "TPU v6 lite"]
    assert all(len(each["code"]) > 20_000 for each in told)


def test_threads_compile_at_once(child):
    told = child(
        f"""
        from concurrent.futures import ThreadPoolExecutor
        topology = pjrt_hub.topology("tpu", "v5e:2x2", offline=True)
        def size(_):
            return len(topology.compile({str(PROGRAMS / "mlp.mlir")!r}).serialize())
        with ThreadPoolExecutor(4) as pool:
            print(json.dumps(list(pool.map(size, range(8)))))
        """
    )
    assert len(told) == 8
    assert min(told) > 10_000


def hub(*args, env, status=0):
    done = subprocess.run(
        [sys.executable, "-m", "pjrt_hub.cli", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        env=env,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_the_command_compiles(clean_env, tmp_path):
    out = tmp_path / "out"
    command = ("compile", PROGRAMS / "add.mlir", "--target", "tpu:v5e:2x2", "-o", out)
    told = json.loads(hub(*command, "--json", env=clean_env).stdout)
    assert told == {
        "target": "tpu:v5e:2x2",
        "platform": "tpu",
        "kind": "TPU v5 lite",
        "devices": 4,
        "path": str(out),
        "nbytes": out.stat().st_size,
    }
    assert hub(*command, env=clean_env).stdout == f"{out}\n"
    flag = ("--flag", "xla_gpu_autotune_level=0")
    hub(
        "compile", PROGRAMS / "mlp.mlir", "--target", "cuda12:A100", *flag, "-o", out, env=clean_env
    )
    assert CUBIN.search(out.read_bytes())


def test_the_command_compiles_for_many_devices(clean_env, tmp_path):
    out = tmp_path / "out"
    matmul = PROGRAMS / "matmul_shardy.mlir"
    shardy = ["use_spmd_partitioning=true", "use_shardy_partitioner=true"]
    told = hub(
        *("compile", matmul, "--target", "tpu:v4:2x2x1", "--num-partitions", 8, "-o", out),
        *(word for each in shardy for word in ("--compile-option", each)),
        *("--topology-option", "chips_per_host_bounds=[2,2,1]", "--json"),
        env=clean_env,
    )
    assert json.loads(told.stdout)["devices"] == 8
    assert out.stat().st_size > 10_000
    two_slices = ("--topology-option", "num_slices=2", "--json")
    command = ("compile", PROGRAMS / "add.mlir", "--target", "tpu:v5e:2x2", "-o", out)
    told = hub(*command, "--num-replicas", 2, *two_slices, env=clean_env)
    assert json.loads(told.stdout)["devices"] == 8
    said = hub(*command, *two_slices, env=clean_env, status=1).stderr
    assert "divisible by the number of slices" in said
    said = hub(*command, "--num-replicas", 5, env=clean_env, status=2).stderr
    assert "5 replica(s) of 1 partition(s) need 5 devices, the topology has 4" in said


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("tpu:v5e:0x0", 2, "is no shape of a machine"),
        ("tpu:bogus:1x1", 2, "Invalid TPU external name"),
        ("cuda:H1000", 2, "it has A100, A6000, H100"),
        ("nonsense:x", 3, "nonsense"),
    ],
)
def test_the_command_says_what_is_wrong(clean_env, tmp_path, target, status, words):
    out = tmp_path / "out"
    done = hub(
        "compile",
        PROGRAMS / "add.mlir",
        "--target",
        target,
        "-o",
        out,
        env=clean_env,
        status=status,
    )
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists()


def test_the_command_lists_targets(clean_env):
    known = json.loads(hub("targets", "--json", env=clean_env).stdout)
    targets = {each["target"]: each for each in known}
    assert {"cuda13:H100", "cuda13:NVIDIA H100 PCIe", "cuda12:A100", "tpu:v5e:2x2"} <= set(targets)
    assert targets["cuda13:H100"] == {
        "target": "cuda13:H100",
        "plugin": "cuda13",
        "name": "H100",
        "description": "Hopper: NVIDIA H100 80GB HBM3",
    }
    assert {
        each["plugin"]
        for each in json.loads(hub("targets", "cuda", "--json", env=clean_env).stdout)
    } == {"cuda12", "cuda13"}
    table = hub("targets", "tpu", env=clean_env).stdout.splitlines()
    assert table[0].split() == ["TARGET", "DESCRIPTION"]
    assert len(table) == 1 + len(TPUS)
