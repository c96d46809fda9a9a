"""What an executable tells about itself: parameters, counts, options, memory, and all on a page."""

import re

import numpy as np
import pytest

from pjrt_hub import CompileOptions
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import UnimplementedError, UnsupportedByPluginError


def counts_costs(client):
    """The CPU plugin stopped that by 0.106."""
    return client.api.version < ApiVersion(0, 106)


def tells_memory_kinds(client):
    """The CPU plugin has by 0.115."""
    return client.api.version >= ApiVersion(0, 115)


@pytest.mark.cpu("its flags")
def test_the_page(client, program):
    options = CompileOptions(optimization_level=2, flags={"xla_cpu_enable_fast_math": True})
    executable = client.compile(program("donate"), options)
    lines = executable.report().splitlines()
    assert lines[0] == "main(f32[8], f32[8]) -> (f32[8])"
    facts = [line.strip() for line in lines[1:]]
    assert "devices         cpu:0" in facts
    assert "split           1 replica(s) x 1 partition(s)" in facts
    assert f"fingerprint     {executable.fingerprint}" in facts
    where = " in device" if tells_memory_kinds(client) else ""
    assert f"parameter 0     p0: f32[8]{where}, donated" in facts
    assert f"parameter 1     p1: f32[8]{where}" in facts
    assert f"output 0        f32[8]{where}" in facts
    assert ("flops           8" in facts) is counts_costs(client)
    assert any(fact.endswith("64 B  argument size") for fact in facts)
    assert "32 B  alias size" in facts
    assert {"options         optimization_level = 2", "optimization_level = 2"} & set(facts)
    assert "xla_cpu_enable_fast_math = True" in facts
    for name, value in client.plugin.compile_flags.items():
        assert any(fact.startswith(f"{name} = {value!r}"[:60]) for fact in facts)
    assert max(map(len, lines)) <= 100


def test_the_page_of_layouts(executables):
    page = executables("column_major").report()
    assert re.search(r"output 0        f32\[2,3\]\{0,1\}( in device)?\n", page)
    assert re.search(r"parameter 0     p0: f32\[2,3\]\{1,0\}( in device)?\n", page)


@pytest.mark.cpu("its flags")
def test_the_page_of_layouts_that_were_asked_for(client, program):
    shapes = [("f32", (64, 64), (0, 1)), ("f32", (64, 64))]
    page = client.compile(program("matmul_64"), CompileOptions(argument_layouts=shapes)).report()
    assert "argument_layouts = f32[64,64]{0,1}, f32[64,64]{1,0}\n" in page
    assert "Slot" not in page


def test_the_page_of_a_portable_program(client, program):
    options = CompileOptions(compile_portable_executable=True)
    page = client.compile(program("add"), options).report()
    assert "any one, chosen at each execution" in page
    assert "compile_portable_executable = True" in page


def test_the_page_of_what_was_loaded(client, program):
    """Without the words of its compilation, where the plugin does not keep them."""
    executable = client.compile(program("add"), CompileOptions(optimization_level=1))
    page = client.load(executable.serialize()).report()
    if client.api.has("PJRT_Executable_GetCompileOptions"):
        assert page == executable.report()
        assert "optimization_level = 1" in page
    else:
        assert "\n  options " not in page
        assert page == executable.report().partition("\n  options ")[0]


@pytest.mark.parametrize("name", ["no_args", "thirty_to_thirty", "scalar", "two_outputs"])
def test_every_program_has_a_page(executables, name):
    executable = executables(name)
    page = executable.report()
    assert page.count("\n  parameter ") == len(executable.signature.parameters)
    assert page.count("\n  output ") == len(executable.signature.outputs)


def test_parameters(executables):
    first, second = executables("matmul_64").parameters
    assert (first.dtype, first.shape, first.layout) == (np.dtype("float32"), (64, 64), (1, 0))
    assert first.name != second.name
    assert executables("no_args").parameters == ()
    assert executables("scalar").parameters[0].shape == ()


def test_parameters_of_what_was_loaded(client, executables):
    loaded = client.load(executables("donate").serialize())
    assert loaded.parameters == executables("donate").parameters


def test_counts(executables):
    add = executables("add")
    assert (add.num_replicas, add.num_partitions) == (1, 1)
    assert add.generated_code_nbytes >= -1
    assert add.device_assignment == ((0,),)
    assert add.addressable_device_logical_ids == ((0, 0),)


@pytest.mark.cpu("its flags")
def test_options_come_back(client, program, executables):
    added = client.plugin.compile_flags
    options = CompileOptions(num_replicas=1, flags={"xla_cpu_enable_fast_math": False})
    executable = client.compile(program("add"), options)
    flags = {**added, **options.flags}
    if client.api.version < ApiVersion(0, 87):
        assert executable.compile_options.changed() == {"flags": flags}
        assert executables("add").compile_options.changed() == {"flags": added}
    else:
        changed = executable.compile_options.changed()
        assert changed.pop("flags") == flags
        assert [str(each) for each in changed.pop("result_layout")] == ["f32[8]"]
        devices = {"device_ids": ((0,),)} if client.api.version >= ApiVersion(0, 115) else {}
        assert changed == devices
    if not client.api.has("PJRT_Executable_GetCompileOptions"):
        with pytest.raises(UnsupportedByPluginError, match=r"came with PJRT API 0\.87"):
            _ = client.load(executable.serialize()).compile_options


def test_memory_kinds(client, executables):
    """Older plugins have one function and do not answer, and lack the other."""
    add = executables("add")
    if tells_memory_kinds(client):
        assert add.output_memory_kinds == ("device",)
        assert add.parameter_memory_kinds == ("device", "device")
        return
    with pytest.raises(UnimplementedError):
        _ = add.output_memory_kinds
    if client.api.has("PJRT_Executable_ParameterMemoryKinds"):
        with pytest.raises(UnimplementedError):
            _ = add.parameter_memory_kinds
    else:
        with pytest.raises(UnsupportedByPluginError, match=r"came with PJRT API 0\.102"):
            _ = add.parameter_memory_kinds


def test_memory_and_costs(client, executables):
    """A product of 64x64 matrices: 2 * 64^3 operations, three matrices of 16 KiB."""
    matmul = executables("matmul_64")
    costs = matmul.cost_analysis()
    if counts_costs(client):
        assert costs["flops"] == pytest.approx(2 * 64**3, rel=0.5)
    else:
        assert costs is None
    stats = matmul.memory_stats()
    assert stats["argument_size_in_bytes"] == 2 * 64 * 64 * 4
    assert stats["output_size_in_bytes"] == 64 * 64 * 4
    assert "16 KiB  output size" in matmul.report()
    assert np.all([size >= 0 for size in stats.values()])
