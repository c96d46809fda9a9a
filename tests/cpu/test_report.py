"""What an executable tells about itself: parameters, counts, options, memory, and all on a page."""

from __future__ import annotations

import numpy as np
import pytest

from pjrt_hub import CompileOptions
from pjrt_hub.errors import UnimplementedError, UnsupportedByPluginError


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
    assert "parameter 0     p0: f32[8], donated" in facts
    assert "parameter 1     p1: f32[8]" in facts
    assert "output 0        f32[8]" in facts
    assert "flops           8" in facts
    assert any(fact.endswith("64 B  argument size") for fact in facts)
    assert "32 B  alias size" in facts
    assert "options         optimization_level = 2" in facts
    assert "xla_cpu_enable_fast_math = True" in facts
    for name, value in client.plugin.compile_flags.items():
        assert any(fact.startswith(f"{name} = {value!r}"[:60]) for fact in facts)
    assert max(map(len, lines)) <= 100


def test_the_page_of_layouts(executables):
    assert "output 0        f32[2,3]{0,1}" in executables("column_major").report()
    assert "parameter 0     p0: f32[2,3]{1,0}" in executables("column_major").report()


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
    """Without the words of its compilation, which this plugin does not keep."""
    executable = client.compile(program("add"), CompileOptions(optimization_level=1))
    page = client.load(executable.serialize()).report()
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
    given = CompileOptions(flags={**added, **options.flags})
    assert executable.compile_options.changed() == given.changed()
    assert executables("add").compile_options.changed() == {"flags": added}
    if not client.api.has("PJRT_Executable_GetCompileOptions"):
        with pytest.raises(UnsupportedByPluginError, match=r"came with PJRT API 0\.87"):
            _ = client.load(executable.serialize()).compile_options


def test_memory_kinds(client, executables):
    """This plugin has one function and does not answer, and lacks the other."""
    with pytest.raises(UnimplementedError):
        _ = executables("add").output_memory_kinds
    with pytest.raises(UnsupportedByPluginError, match=r"came with PJRT API 0\.102"):
        _ = executables("add").parameter_memory_kinds


def test_memory_and_costs(client, executables):
    """A product of 64x64 matrices: 2 * 64^3 operations, three matrices of 16 KiB."""
    matmul = executables("matmul_64")
    assert matmul.cost_analysis()["flops"] == pytest.approx(2 * 64**3, rel=0.5)
    stats = matmul.memory_stats()
    assert stats["argument_size_in_bytes"] == 2 * 64 * 64 * 4
    assert stats["output_size_in_bytes"] == 64 * 64 * 4
    assert "16 KiB  output size" in matmul.report()
    assert np.all([size >= 0 for size in stats.values()])
