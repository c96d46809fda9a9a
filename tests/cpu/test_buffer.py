"""Buffers: host memory in and out, shared or copied exactly as documented, and what they print."""

import numpy as np
import pytest
from children import NAME, there

import pjrt_hub
from pjrt_hub import HostBufferSemantics

NUMBERS = np.arange(8, dtype=np.float32)


@pytest.mark.cpu("shares memory with the host")
def test_an_array_keeps_its_memory_from_donation(client, executables, vector):
    given = vector()
    array = given.to_numpy()
    result = executables("donate")(given, vector(1))
    assert not given.is_deleted
    assert result.tolist() == (2 * NUMBERS + 1).tolist()
    assert array.tolist() == given.tolist() == NUMBERS.tolist()
    del array
    again = executables("donate")(given, vector(1))
    assert given.is_deleted
    assert again.tolist() == (2 * NUMBERS + 1).tolist()


@pytest.mark.cpu("shares memory with the host")
@pytest.mark.numpy("2.0")
def test_asarray_converts_and_copies(vector):
    buffer = vector()
    assert np.asarray(buffer, dtype=np.int64).tolist() == list(range(8))
    copy = np.array(buffer)
    assert copy.flags.writeable
    shared = buffer.to_numpy().ctypes.data
    assert copy.ctypes.data != shared
    assert np.asarray(buffer, copy=False).ctypes.data == shared
    with pytest.raises(ValueError, match="copy"):
        np.asarray(buffer, dtype=np.int8, copy=False)


def test_numpy_functions_take_buffers(vector):
    assert np.sum(vector()) == 28
    assert np.add(vector(), 1).tolist() == list(range(1, 9))
    assert np.stack([vector(), vector(8)]).tolist() == np.arange(16.0).reshape(2, 8).tolist()


def test_like_a_number(client):
    one = client.buffer_from_host(2.5)
    assert (one.item(), float(one), int(one), bool(one)) == (2.5, 2.5, 2, True)
    assert (one.shape, one.ndim, one.size, one.nbytes) == ((), 0, 1, 4)
    assert not client.buffer_from_host(0)


@pytest.mark.rows
def test_like_an_array(client):
    buffer = client.buffer_from_host(np.arange(6, dtype=np.int16).reshape(2, 3))
    assert buffer.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (buffer.shape, buffer.ndim, buffer.size, buffer.nbytes) == ((2, 3), 2, 6, 12)
    assert (len(buffer), buffer.on_device_nbytes, buffer.layout) == (2, 12, (1, 0))
    assert buffer.device is client.devices[0]
    assert buffer.client is client
    for convert in (buffer.item, lambda: float(buffer), lambda: bool(buffer)):
        with pytest.raises(ValueError, match=r"one|size|ambiguous"):
            convert()


@pytest.mark.cpu("shares memory with the host")
def test_mutable_zero_copy_is_written_by_donation(client, executables, vector):
    source = pjrt_hub.empty_aligned(8)
    source[:] = 0
    mutable = HostBufferSemantics.MUTABLE_ZERO_COPY
    result = executables("donate")(client.buffer_from_host(source, semantics=mutable), vector(1))
    result.ready.wait()
    assert source.tolist() == list(range(1, 9))
    assert result.to_numpy().ctypes.data == source.ctypes.data


def test_copies_to_another_device(pair):
    first, second = pair.devices
    source = pair.buffer_from_host(NUMBERS)
    assert source.device is first
    copy = source.copy_to_device(second)
    assert copy.device is second
    assert copy.tolist() == NUMBERS.tolist()
    assert pair.buffer_from_host(NUMBERS, device=second).device is second
    same = source.copy_to_device(first)
    source.delete()
    assert same.tolist() == copy.tolist() == NUMBERS.tolist()


def test_every_memory_takes_a_buffer(pair):
    kinds = set()
    for device in pair.devices:
        assert device.default_memory in device.memories
        for memory in device.memories:
            assert device in memory.devices
            buffer = pair.buffer_from_host(NUMBERS, memory=memory)
            assert buffer.memory is memory
            assert buffer.device is device
            assert buffer.tolist() == NUMBERS.tolist()
            kinds.add(memory.kind)
    assert kinds == {"device", "pinned_host", "unpinned_host"}
    assert len({memory.id for memory in pair.memories}) == len(pair.memories) == 6


@pytest.mark.numpy("2.0")
def test_64_dimensions(client):
    values = np.ones((1,) * 64, np.int8)
    assert client.buffer_from_host(values).to_numpy().shape == values.shape


def test_repr_in_a_list(client):
    in_a_list = [there(client.buffer_from_host(each)) for each in ([1.0], [[1], [2]])]
    assert repr(in_a_list) == (
        f"[Buffer([1.], f32[1] on {NAME}:0), Buffer([[1],\n        [2]], i32[2,1] on {NAME}:0)]"
    )


def test_buffers_do_not_change(vector):
    buffer = vector()
    for name in ("shape", "device", "client", "dtype", "anything"):
        with pytest.raises(AttributeError):
            setattr(buffer, name, None)


@pytest.mark.cpu("shares memory with the host")
def test_live_objects_are_counted(own):
    assert own._num_children == 0
    buffers = [own.buffer_from_host(NUMBERS) for _ in range(10)]
    assert own._num_children == 10
    arrays = [buffer.to_numpy() for buffer in buffers]
    del buffers
    assert own._num_children == 10
    del arrays
    assert own._num_children == 0
