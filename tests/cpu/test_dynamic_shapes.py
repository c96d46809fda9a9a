"""Bounded dynamic dimensions: reading gives the logical value or raises a clear error."""

import pickle

import numpy as np
import pytest
from children import NAME, there
from texts import BOUNDS, bounded, cut, doubling, identity

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.running.array.dtypes import of_type

VALUES = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
ROWS, COLUMNS = BOUNDS


@pytest.fixture(scope="module")
def cutting(client):
    compiled = {dims: client.compile(cut(dims)) for dims in BOUNDS}

    def run(dims, count):
        return compiled[dims](client.buffer_from_host(VALUES), client.buffer_from_host(count))

    return run


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("dims", BOUNDS)
def test_the_logical_value_comes_back(cutting, dims, count):
    buffer = cutting(dims, count)
    expected = VALUES[:count] if dims == ROWS else VALUES[:, :count]
    assert (buffer.shape, buffer.dynamic_dimensions) == ((4, 3), (0 if dims == ROWS else 1,))
    assert buffer.logical_shape == expected.shape
    for array in (buffer.to_numpy(), np.asarray(buffer), pickle.loads(pickle.dumps(buffer))):
        assert (array.shape, array.tolist()) == (expected.shape, expected.tolist())
    assert buffer.tolist() == expected.tolist()
    assert not buffer.to_numpy().flags.writeable
    assert repr(there(buffer)).endswith(f"f32[{'<=4,3' if dims == ROWS else '4,<=3'}] on {NAME}:0)")


@pytest.mark.parametrize("name", ["bf16", "i8", "i1", "complex<f64>", "i4"])
def test_of_other_element_types(client, name):
    values = client.buffer_from_host(VALUES.astype("i4") % 2, dtype=of_type(name).numpy)
    try:
        program = client.compile(cut(COLUMNS, name))
    except errors.PjrtError:
        assert name == "i4"  # this plugin cannot compile it
        return
    buffer = program(values, client.buffer_from_host(2))
    assert buffer.to_numpy().tolist() == values.to_numpy()[:, :2].tolist()


def test_what_is_computed_with_it(client):
    kind = f"tensor<{bounded(ROWS)}>"
    program = client.compile(
        cut(ROWS).replace(
            f"return %r : {kind}", f"%s = stablehlo.add %r, %r : {kind} return %s : {kind}"
        )
    )
    buffer = program(client.buffer_from_host(VALUES), client.buffer_from_host(3))
    assert buffer.tolist() == (2 * VALUES[:3]).tolist()
    assert str(program.signature) == "(f32[4,3], i32[]) -> (f32[<=4,3])"
    assert program.signature.outputs[0].dynamic == (0,)


@pytest.mark.cpu("shares memory with the host")
def test_its_memory_is_not_lent_as_if_it_were_whole(client, cutting):
    buffer = cutting(COLUMNS, 2)
    for lend in (memoryview, np.from_dlpack, client.from_dlpack, lambda b: b.__dlpack__(copy=True)):
        with pytest.raises(BufferError, match=r"dynamic|to_numpy"):
            lend(buffer)
    with pjrt_hub.ExternalReference(buffer) as reference:
        assert reference.pointer


def test_a_program_of_the_whole_shape_does_not_take_it(client, cutting):
    program = client.compile(identity("4x3xf32"))
    with pytest.raises(ValueError, match=r"argument 0 .*dynamic .* are \(0,\)"):
        program(cutting(ROWS, 2))
    again = client.buffer_from_host(np.asarray(cutting(ROWS, 4)))
    assert program(again).tolist() == VALUES.tolist()


def copies(client, buffer):
    yield buffer.copy_to_device(client.devices[1])
    yield buffer.copy_to_memory(client.devices[0].memories[1])


def test_a_copy_is_right_or_fails(pair):
    program = pair.compile(cut(COLUMNS))
    values = pair.buffer_from_host(VALUES)
    for copy in copies(pair, program(values, pair.buffer_from_host(3))):
        assert copy.tolist() == VALUES.tolist()
    for copy in copies(pair, program(values, pair.buffer_from_host(2))):
        if pair.api.version.minor >= 115:
            assert (copy.tolist(), copy.dynamic_dimensions) == (VALUES[:, :2].tolist(), (1,))
            continue
        with pytest.raises(errors.PluginInternalError, match="Shape mismatch"):
            copy.to_numpy()  # the plugin copies the whole bound


@pytest.mark.cpu("takes no dynamic argument")
def test_a_dynamic_parameter_takes_nothing(client, cutting):
    """Such arrays are results only; as arguments, 0.106 and newer would read past their end."""
    program = client.compile(identity(bounded(ROWS)))
    assert str(program.signature) == "(f32[<=4,3]) -> (f32[<=4,3])"
    with pytest.raises(errors.UnsupportedByPluginError, match=r"dynamic dimensions, \(0,\), and"):
        program(cutting(ROWS, 2))
    with pytest.raises(
        ValueError, match=r"argument 0 .* must be f32\[<=4,3\], .*dynamic .* are \(\)"
    ):
        program(client.buffer_from_host(VALUES))


def test_what_the_plugin_does_not_compile(client):
    with pytest.raises(errors.PjrtError, match="PadToStatic"):
        client.compile(doubling(bounded(ROWS)))
