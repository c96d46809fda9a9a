"""Transfers: buffers filled from the host in parts, and everything that must not reach a plugin."""

import numpy as np
import pytest
from children import NAME
from elements import KNOWN

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.running.array import dtypes

SPECS = [((4,), "f32"), ((2, 3), "int32")]
NUMBERS = np.arange(4, dtype=np.float32)


@pytest.fixture
def transfer(client):
    with pjrt_hub.Transfer(client, SPECS) as transfer:
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
    with pjrt_hub.Transfer(client, [((8,), "f32")]) as transfer:
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
    with pjrt_hub.Transfer(client, [spec]) as transfer:
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
    transfer = pjrt_hub.Transfer(client, SPECS)
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
    transfer = pjrt_hub.Transfer(client, SPECS)
    transfer.retrieve_buffer(0)
    client.close()
    assert transfer.closed
    with pytest.raises(errors.ClosedError):
        transfer.transfer_data(0, NUMBERS)
    transfer.close()


@pytest.mark.api(">=0.83", "it takes literals")
@pytest.mark.parametrize("element", KNOWN)
@pytest.mark.rows
def test_literals_of_every_dtype(client, element):
    dtype = dtypes.numpy_dtype(element.code)
    values = (np.arange(24) % 2).astype(np.float32).astype(dtype).reshape(2, 3, 4)
    for each in (values, np.asfortranarray(values), values[:0], values[0, 0, 0].reshape(())):
        spec = (each.shape, dtype)
        with pjrt_hub.Transfer(client, [spec]) as transfer:
            transfer.transfer_literal(0, each)
            buffer = transfer.retrieve_buffer(0)
            assert buffer.to_numpy().tobytes() == np.array(each, order="C").tobytes()


@pytest.mark.parametrize("function", ["transfer_data", "transfer_literal"])
def test_masks_are_refused(client, function):
    masked = np.ma.masked_equal(NUMBERS, NUMBERS[1])
    transfer = pjrt_hub.Transfer(client, [(NUMBERS.shape, "f32")])
    with transfer, pytest.raises(TypeError, match="a device has no masks"):
        getattr(transfer, function)(0, masked)


@pytest.mark.api(">=0.83", "it takes literals")
def test_a_literal_in_a_layout(client):
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    specs = [((2, 3), "f32", order) for order in ((0, 1), (1, 0))]
    with pjrt_hub.Transfer(client, specs) as transfer:
        for index in range(2):
            transfer.transfer_literal(index, matrix)
            buffer = transfer.retrieve_buffer(index)
            assert (buffer.layout, buffer.tolist()) == (specs[index][2], matrix.tolist())
