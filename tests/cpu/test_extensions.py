"""The CPU plugin's extensions, such as layouts, and errors for those that it lacks."""

import numpy as np
import pytest

from pjrt_hub.errors import ClosedError, UnsupportedByPluginError
from pjrt_hub.running.extensions import (
    abi_version,
    layouts,
    memory_descriptions,
    phase_compile,
    shardings,
)
from pjrt_hub.running.extensions.layouts import Layout

OLD = {"PhaseCompile": 64, "FFI": 48, "MemoryDescriptions": 40, "Layouts": 72}
#: PJRT API -> its extensions and the size of each one's node in bytes.
CHAINS = {
    "0.81": OLD,
    "0.106": {"Shardings": 40, **OLD, "Layouts": 80},
    "0.115": {"XlaTransform": 56, "Shardings": 40, **OLD, "Layouts": 80},
}


@pytest.mark.cpu("its extensions")
def test_the_chain(plugin):
    assert plugin.extensions == CHAINS[str(plugin.api_version)]
    node = plugin.api.extension("Layouts")
    assert (node.name, node.size) == ("Layouts", plugin.extensions["Layouts"])
    assert node is plugin.api.extension("Layouts")


@pytest.mark.api("<0.106", "the node ends before it")
@pytest.mark.cpu("its extensions")
def test_a_function_past_the_node_is_refused(plugin):
    node = plugin.api.extension("Layouts")
    assert node.has("PJRT_Layouts_PJRT_Executable_GetOutputLayouts")
    assert not node.has("PJRT_Layouts_PJRT_Executable_GetParameterLayouts")
    with pytest.raises(UnsupportedByPluginError, match=r"byte 72 .* node has 72 bytes") as caught:
        node.call("PJRT_Layouts_PJRT_Executable_GetParameterLayouts", executable=0)
    assert caught.value.function == "PJRT_Layouts_PJRT_Executable_GetParameterLayouts"


@pytest.mark.cpu("its extensions")
def test_a_null_function_is_refused(plugin):
    with pytest.raises(UnsupportedByPluginError, match="there the plugin has NULL"):
        phase_compile.PhaseCompiler(plugin.api)


@pytest.mark.cpu("its extensions")
@pytest.mark.parametrize("name", ["Profiler", "Stream", "nonsense", "unknown 99"])
def test_an_extension_that_is_not_there_is_refused(plugin, name):
    there = ", ".join(plugin.extensions)
    with pytest.raises(UnsupportedByPluginError, match=f"extension {name}: it has {there}"):
        plugin.api.extension(name)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (4, 1, 5), (0, 2)])
@pytest.mark.rows
def test_the_default_layout(client, shape):
    layout = layouts.default_layout(client, np.float32, shape)
    order = tuple(range(len(shape) - 1, -1, -1))
    assert (layout.minor_to_major, layout.tiles) == (order, ())
    assert str(layout) == f"{{{','.join(map(str, order))}}}"


def test_a_wrong_shape_or_dtype_has_no_layout(client):
    with pytest.raises(ValueError, match="negative"):
        layouts.default_layout(client, "f32", (2, -1))
    with pytest.raises(TypeError):
        layouts.default_layout(client, object, (2,))


@pytest.mark.api("<0.94", "it lacks the type")
def test_a_newer_dtype_has_no_layout(client):
    with pytest.raises(UnsupportedByPluginError, match=r"0\.94"):
        layouts.default_layout(client, "uint1", (2,))


@pytest.mark.parametrize(("dtype", "bits"), [("uint1", 1), ("uint2", 2), ("int4", 4)])
@pytest.mark.api(">=0.115", "it tells of elements that they are packed")
def test_the_layout_of_packed_elements(client, dtype, bits):
    layout = layouts.default_layout(client, dtype, (2, 3))
    assert (str(layout), layout.minor_to_major) == (f"{{1,0:E({bits})}}", (1, 0))


@pytest.mark.rows
def test_layouts_of_buffers_and_executables(client, program):
    executable = client.compile(program("column_major"))
    result = executable(
        *(
            client.buffer_from_host(np.zeros(each.shape, np.float32))
            for each in executable.signature.parameters
        )
    )
    assert layouts.output_layouts(executable) == (Layout("{0,1}"),)
    assert layouts.buffer_layout(result) == Layout("{0,1}")
    assert layouts.buffer_layout(result).minor_to_major == result.layout
    if client.api.extension("Layouts").has("PJRT_Layouts_PJRT_Executable_GetParameterLayouts"):
        assert layouts.parameter_layouts(executable) == (Layout("{1,0}"),)
    else:
        with pytest.raises(UnsupportedByPluginError):
            layouts.parameter_layouts(executable)


def test_layouts_after_the_end(own, program):
    buffer = own.buffer_from_host(np.ones(3, np.float32))
    executable = own.compile(program("add"))
    buffer.delete()
    with pytest.raises(ClosedError, match="deleted"):
        layouts.buffer_layout(buffer)
    own.close()
    for ask in (layouts.buffer_layout, layouts.output_layouts, layouts.default_layout):
        with pytest.raises(ClosedError):
            ask(
                *{layouts.buffer_layout: (buffer,), layouts.output_layouts: (executable,)}.get(
                    ask, (own, "f32", (2,))
                )
            )


@pytest.mark.parametrize(
    ("text", "order", "tiles"),
    [
        ("{}", (), ()),
        ("{1,0:T(8,128)}", (1, 0), ((8, 128),)),
        ("{1,0:T(8,128)(2,1)}", (1, 0), ((8, 128), (2, 1))),
        ("{2,1,0:T(*,128)S(1)}", (2, 1, 0), ((-1, 128),)),
        ("{0:E(4)}", (0,), ()),
    ],
)
def test_reading_a_layout(text, order, tiles):
    assert (Layout(text).minor_to_major, Layout(text).tiles) == (order, tiles)


def test_the_plugin_describes_no_memories(client, pair):
    assert memory_descriptions.memory_descriptions(client, client.devices[0]) == ()
    with pytest.raises(ValueError, match="does not belong"):
        memory_descriptions.memory_descriptions(client, pair.devices[0])


def test_what_the_plugin_has_not(plugin, executables):
    executable = executables("add")
    for call in (
        lambda: plugin.profiler("never.pb"),
        lambda: abi_version.ExecutableAbiVersion.of(executable),
        lambda: abi_version.ExecutableAbiVersion(plugin.api, b""),
    ):
        with pytest.raises(UnsupportedByPluginError):
            call()
    with pytest.raises(UnsupportedByPluginError, match="hint: not every plugin has one"):
        plugin.profiler()


def test_the_shardings_of_a_program_for_one_device(plugin, executables):
    for ask in (shardings.parameter_shardings, shardings.output_shardings):
        if "Shardings" in plugin.extensions:
            assert ask(executables("add")) == ()
        else:
            with pytest.raises(UnsupportedByPluginError):
                ask(executables("add"))


def test_layouts_leave_nothing(client, vector):
    from resource import RUSAGE_SELF, getrusage

    buffer = vector()
    for _ in range(1000):
        layouts.buffer_layout(buffer)
    before = getrusage(RUSAGE_SELF).ru_maxrss
    for _ in range(10_000):
        layouts.buffer_layout(buffer)
    assert getrusage(RUSAGE_SELF).ru_maxrss - before < 4096  # in KiB
