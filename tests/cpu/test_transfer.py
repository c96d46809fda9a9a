"""Transfers: buffers filled from the host in parts, and everything that must not reach a plugin."""

from __future__ import annotations

import numpy as np
import pytest
from children import NAME
from elements import KNOWN

from pjrt_hub import errors
from pjrt_hub.running.array import dtypes

SPECS = [((4,), "f32"), ((2, 3), "int32")]
NUMBERS = np.arange(4, dtype=np.float32)


@pytest.fixture
def transfer(client):
    with client.create_buffers_for_async_host_to_device(SPECS) as transfer:
        yield transfer


@pytest.mark.rows
def test_what_it_says_of_itself(client, transfer):
    assert (transfer.buffer_count, transfer.device) == (2, client.devices[0])
    assert [transfer.buffer_size(index) for index in range(2)] == [16, 24]
    assert repr(transfer) == f"<Transfer of f32[4], i32[2,3] to {NAME}:0>"
    transfer.add_metadata({"name": "weights"})


@pytest.mark.rows
def test_parts_in_any_order(transfer):
    buffer = transfer.retrieve_buffer(0)
    assert not buffer.ready.is_ready()
    transfer.transfer_data(0, NUMBERS[3:], offset=12).wait(10)
    transfer.transfer_data(0, NUMBERS[:1].tobytes(), offset=0).wait(10)
    assert not buffer.ready.is_ready()
    transfer.transfer_data(0, NUMBERS[1:3], offset=4, is_last=True).wait(10)
    assert buffer.tolist() == [0, 1, 2, 3]


@pytest.mark.rows
def test_a_program_runs_on_what_is_still_coming(client, executables):
    with client.create_buffers_for_async_host_to_device([((8,), "f32")]) as transfer:
        coming = transfer.retrieve_buffer(0)
        result = executables("add")(coming, coming)
        assert not result.ready.is_ready()
        transfer.transfer_data(0, np.ones(8, np.float32), is_last=True)
        assert result.tolist() == [2.0] * 8


@pytest.mark.parametrize(
    ("spec", "data", "value"),
    [
        (((8,), "int4"), bytes([0x10, 0x32, 0x54, 0x76]), list(range(8))),
        (((0,), "f32"), b"", []),
        (((), "f64"), np.float64(2.5), 2.5),
    ],
)
@pytest.mark.rows
def test_odd_buffers(client, spec, data, value):
    with client.create_buffers_for_async_host_to_device([spec]) as transfer:
        buffer = transfer.retrieve_buffer(0)
        transfer.transfer_data(0, np.asarray(data) if spec[0] == () else data, is_last=True)
        assert buffer.tolist() == value


@pytest.mark.rows
def test_an_error_fails_one_buffer(transfer):
    first, second = transfer.retrieve_buffer(0), transfer.retrieve_buffer(1)
    transfer.set_buffer_error(0, errors.DataLossError("the disk is gone"))
    with pytest.raises(errors.DataLossError, match="the disk is gone"):
        first.ready.wait(10)
    transfer.transfer_data(1, np.ones((2, 3), np.int32), is_last=True)
    assert second.tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.rows
def test_closing_fails_what_is_not_complete(client):
    transfer = client.create_buffers_for_async_host_to_device(SPECS)
    first, second = transfer.retrieve_buffer(0), transfer.retrieve_buffer(1)
    transfer.transfer_data(0, NUMBERS, is_last=True)
    transfer.close()
    transfer.close()
    assert first.tolist() == [0, 1, 2, 3]
    with pytest.raises(errors.PluginInternalError, match="deleted before transfers completed"):
        second.ready.wait(10)
    assert transfer.closed
    assert repr(transfer) == "<Transfer closed>"
    for use in (lambda: transfer.buffer_count, lambda: transfer.retrieve_buffer(0)):
        with pytest.raises(ValueError, match=r"closed|before"):
            use()


def test_it_ends_with_its_client(plugin):
    client = plugin.client()
    transfer = client.create_buffers_for_async_host_to_device(SPECS)
    transfer.retrieve_buffer(0)
    client.close()
    assert transfer.closed
    with pytest.raises(errors.ClosedError):
        transfer.transfer_data(0, NUMBERS)
    transfer.close()


MISUSE = {
    "no such buffer": (lambda t: t.retrieve_buffer(2), IndexError, "no buffer 2, of 2"),
    "a negative index": (lambda t: t.buffer_size(-1), IndexError, "no buffer -1"),
    "an index of text": (lambda t: t.buffer_size("0"), TypeError, "str"),
    "data for nobody": (lambda t: t.transfer_data(7, NUMBERS), IndexError, "no buffer 7"),
    "too far": (lambda t: t.transfer_data(0, NUMBERS, offset=4), ValueError, "do not fit"),
    "before the start": (lambda t: t.transfer_data(0, NUMBERS, offset=-4), ValueError, "not fit"),
    "bytes missing": (
        lambda t: t.transfer_data(0, NUMBERS[:3], is_last=True),
        ValueError,
        "4 bytes missing",
    ),
    "another dtype": (lambda t: t.transfer_data(0, NUMBERS[:2].astype("f8")), TypeError, "float64"),
    "strided": (lambda t: t.transfer_data(0, NUMBERS[::2]), ValueError, "contiguous"),
    "no memory": (lambda t: t.transfer_data(0, [1.0]), TypeError, "list"),
    "objects": (lambda t: t.transfer_data(0, np.array([None])), TypeError, "objects"),
    "no error": (lambda t: t.set_buffer_error(0, "bad"), TypeError, "PjrtError"),
    "metadata that end the process": (lambda t: t.add_metadata({"a": 1}), TypeError, "text"),
    "a literal of another shape": (
        lambda t: t.transfer_literal(0, NUMBERS[:2]),
        ValueError,
        "(2,)",
    ),
    "a literal": (
        lambda t: t.transfer_literal(0, NUMBERS),
        errors.UnsupportedByPluginError,
        "0.83",
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.api("<0.83", "it takes none"))
        if name == "a literal"
        else name
        for name in MISUSE
    ],
)
@pytest.mark.rows
def test_misuse(transfer, name):
    action, error, words = MISUSE[name]
    with pytest.raises(error) as caught:
        action(transfer)
    assert words in str(caught.value)


@pytest.mark.api(">=0.83", "it takes literals")
@pytest.mark.parametrize("element", KNOWN)
@pytest.mark.rows
def test_literals_of_every_dtype(client, element):
    dtype = dtypes.numpy_dtype(element.code)
    values = (np.arange(24) % 2).astype(np.float32).astype(dtype).reshape(2, 3, 4)
    for each in (values, np.asfortranarray(values), values[:0], values[0, 0, 0].reshape(())):
        spec = (each.shape, dtype)
        with client.create_buffers_for_async_host_to_device([spec]) as transfer:
            transfer.transfer_literal(0, each)
            buffer = transfer.retrieve_buffer(0)
            assert buffer.to_numpy().tobytes() == np.array(each, order="C").tobytes()


@pytest.mark.api(">=0.83", "it takes literals")
def test_a_literal_in_a_layout(client):
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    specs = [((2, 3), "f32", order) for order in ((0, 1), (1, 0))]
    with client.create_buffers_for_async_host_to_device(specs) as transfer:
        for index in range(2):
            transfer.transfer_literal(index, matrix)
            buffer = transfer.retrieve_buffer(index)
            assert (buffer.layout, buffer.tolist()) == (specs[index][2], matrix.tolist())


@pytest.mark.rows
def test_once_is_enough(transfer):
    transfer.retrieve_buffer(0)
    with pytest.raises(ValueError, match="retrieved before"):
        transfer.retrieve_buffer(0)
    transfer.transfer_data(0, NUMBERS[:2])
    with pytest.raises(ValueError, match="came before"):
        transfer.transfer_data(0, NUMBERS[1:3], offset=4)
    transfer.transfer_data(0, NUMBERS[2:], offset=8, is_last=True)
    for again in (
        lambda: transfer.transfer_data(0, b""),
        lambda: transfer.set_buffer_error(0, errors.DataLossError("late")),
    ):
        with pytest.raises(errors.ClosedError, match="complete"):
            again()


@pytest.mark.parametrize(
    ("specs", "error"),
    [
        ([], ValueError),
        ([((2,),)], TypeError),
        ([((-1,), "f32")], ValueError),
        ([((1 << 40, 1 << 40), "f32")], ValueError),
        ([((2.5,), "f32")], TypeError),
        ([((2,), "O")], TypeError),
        (3, TypeError),
    ],
)
def test_shape_specs_that_cannot_be(client, specs, error):
    with pytest.raises(error):
        client.create_buffers_for_async_host_to_device(specs)
