"""Buffers: host memory in and out, shared or copied exactly as documented, and what they print."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from children import NAME, promise, there

from pjrt_hub import HostBufferSemantics
from pjrt_hub.errors import ClosedError, InvalidArgumentError, ResourceExhaustedError

NUMBERS = np.arange(8, dtype=np.float32)
BACKED = HostBufferSemantics.IMMUTABLE_ZERO_COPY


def address(array):
    return array.__array_interface__["data"][0]


def aligned(count, dtype=np.float32, to=64, plus=0):
    """Zeros that begin `plus` bytes behind a multiple of `to`."""
    dtype = np.dtype(dtype)
    memory = np.zeros(count * dtype.itemsize + to + plus, np.uint8)
    start = -address(memory) % to + plus
    return memory[start : start + count * dtype.itemsize].view(dtype)


@pytest.mark.cpu("shares memory with the host")
def test_reading_twice_gives_the_same_memory(vector):
    buffer = vector()
    first, second = buffer.to_numpy(), buffer.to_numpy()
    assert address(first) == address(second)
    assert first.tolist() == NUMBERS.tolist()
    assert address(np.asarray(buffer)) == address(first)


def test_an_array_is_read_only(vector):
    array = vector().to_numpy()
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


def test_an_array_outlives_delete(vector):
    buffer = vector()
    array = buffer.to_numpy()
    buffer.delete()
    assert buffer.is_deleted
    assert array.tolist() == NUMBERS.tolist()


def test_an_array_outlives_its_buffer_and_client(plugin):
    client = plugin.client()
    array = client.buffer_from_host(NUMBERS).to_numpy()
    inner = array[2:4]
    client.close()
    del client, array
    gc.collect()
    assert inner.tolist() == [2, 3]


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
    assert address(copy) != address(buffer.to_numpy())
    assert address(np.asarray(buffer, copy=False)) == address(buffer.to_numpy())
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
    with pytest.raises(TypeError, match="no length"):
        len(one)


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


def test_a_column_major_result_reads_in_logical_order(client, executables):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = executables("column_major")(client.buffer_from_host(values))
    assert result.layout == (0, 1)
    assert result.to_numpy().tolist() == (values + values).tolist()
    assert result.to_numpy().strides == (4, 8)
    with pytest.raises(ValueError, match=r"(?s)order row-major.*lays it out anew"):
        executables("column_major")(result)
    again = client.buffer_from_host(np.asarray(result))
    assert executables("column_major")(again).tolist() == (4 * values).tolist()


def test_the_default_copies_at_once(client):
    source = aligned(8)
    buffer = client.buffer_from_host(source)
    source[:] = 9
    assert buffer.tolist() == [0] * 8


def test_until_the_transfer_the_source_must_stay(client):
    semantics = HostBufferSemantics.IMMUTABLE_UNTIL_TRANSFER_COMPLETES
    source = aligned(1 << 16)
    source[:] = 3
    buffer = client.buffer_from_host(source, semantics=semantics)
    buffer.ready.wait()
    source[:] = 9
    assert set(buffer.to_numpy()) == {3}


@pytest.mark.cpu("shares memory with the host")
@pytest.mark.parametrize("semantics", [2, 3])
def test_zero_copy_shares_aligned_memory(client, semantics):
    source = aligned(8)
    buffer = client.buffer_from_host(source, semantics=semantics)
    assert address(buffer.to_numpy()) == address(source)
    source[0] = 5
    assert buffer.to_numpy()[0] == 5


@pytest.mark.parametrize("semantics", [2, 3])
def test_zero_copy_copies_memory_that_is_not_aligned(client, semantics):
    source = aligned(8, plus=16)
    buffer = client.buffer_from_host(source, semantics=semantics)
    assert address(buffer.to_numpy()) != address(source)
    source[0] = 5
    assert buffer.to_numpy()[0] == 0


@pytest.mark.cpu("shares memory with the host")
def test_mutable_zero_copy_is_written_by_donation(client, executables, vector):
    source = aligned(8)
    mutable = HostBufferSemantics.MUTABLE_ZERO_COPY
    result = executables("donate")(client.buffer_from_host(source, semantics=mutable), vector(1))
    result.ready.wait()
    assert source.tolist() == list(range(1, 9))
    assert address(result.to_numpy()) == address(source)


def test_immutable_zero_copy_survives_donation(client, executables, vector):
    source = aligned(8)
    given = client.buffer_from_host(source, semantics=BACKED)
    assert executables("donate")(given, vector(1)).tolist() == list(range(1, 9))
    assert source.tolist() == [0] * 8


class Watched(np.ndarray):
    """An array whose end can be seen."""


def test_a_shared_array_lives_as_long_as_its_buffer(client, wait_until):
    source = aligned(8).view(Watched)
    source[:] = 7
    gone = weakref.ref(source)
    buffer = client.buffer_from_host(source, semantics=BACKED)
    base = source.base
    assert base is not None
    del source, base
    gc.collect()
    assert buffer.tolist() == [7] * 8
    array = buffer.to_numpy()
    del buffer
    gc.collect()
    assert array.tolist() == [7] * 8
    del array
    wait_until(lambda: gone() is None)


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


def test_a_copy_of_a_column_major_result_stays_column_major(pair, program):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = pair.compile(program("column_major"))(pair.buffer_from_host(values))
    copy = result.copy_to_device(pair.devices[1])
    assert copy.layout == (0, 1)
    assert copy.tolist() == (2 * values).tolist()


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


@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        (lambda c, o: {"device": o.devices[0]}, ValueError, "another client"),
        (lambda c, o: {"memory": o.memories[0]}, ValueError, "another client"),
        (lambda c, o: {"device": 0}, TypeError, "not a Device"),
        (lambda c, o: {"device": c.memories[0]}, TypeError, "not a Device"),
        (lambda c, o: {"memory": "device"}, TypeError, "not a Memory"),
        (
            lambda c, o: {"device": c.devices[1], "memory": c.devices[0].default_memory},
            ValueError,
            "does not address",
        ),
        (lambda c, o: {"layout": (0, 2)}, ValueError, "not a permutation"),
        (lambda c, o: {"layout": (0,)}, ValueError, "not a permutation"),
        (lambda c, o: {"semantics": 4}, ValueError, "HostBufferSemantics"),
        (lambda c, o: {"semantics": -1}, ValueError, "HostBufferSemantics"),
        (lambda c, o: {"semantics": "copy"}, ValueError, "HostBufferSemantics"),
    ],
)
def test_wrong_places_are_refused(pair, client, where, error, message):
    with pytest.raises(error, match=message):
        pair.buffer_from_host(np.zeros((2, 2)), **where(pair, client))


def test_row_major_may_be_said(client):
    values = np.arange(6.0).reshape(2, 3)
    assert client.buffer_from_host(values, layout=(1, 0)).tolist() == values.tolist()


def test_copying_to_a_wrong_place_is_refused(vector):
    with pytest.raises(TypeError, match="not a Device"):
        vector().copy_to_device(0)


def test_64_megabytes(client):
    values = np.arange(1 << 24, dtype=np.float32)
    buffer = client.buffer_from_host(values)
    assert buffer.on_device_nbytes == 1 << 26
    assert np.array_equal(buffer.to_numpy(), values)
    backwards = client.buffer_from_host(values.reshape(4096, 4096).T)
    assert np.array_equal(backwards.to_numpy(), values.reshape(4096, 4096).T)


def test_more_than_there_is(client):
    with pytest.raises(ResourceExhaustedError, match="memory"):
        client.buffer_from_host(np.broadcast_to(np.float32(1), (1 << 50,)))
    empty = client.buffer_from_host(np.zeros((0, 1 << 40), np.int8))
    assert empty.to_numpy().shape == (0, 1 << 40)


@pytest.mark.numpy("2.0")
def test_64_dimensions(client):
    values = np.ones((1,) * 64, np.int8)
    assert client.buffer_from_host(values).to_numpy().shape == values.shape


def test_repr_of_a_value(client):
    assert repr(there(client.buffer_from_host([1, 2]))) == f"Buffer([1, 2], i32[2] on {NAME}:0)"
    assert repr(there(client.buffer_from_host(1.5))) == f"Buffer(1.5, f32[] on {NAME}:0)"
    assert str(client.buffer_from_host([1, 2])) == "[1 2]"
    in_a_list = [there(client.buffer_from_host(each)) for each in ([1.0], [[1], [2]])]
    assert repr(in_a_list) == (
        f"[Buffer([1.], f32[1] on {NAME}:0), Buffer([[1],\n        [2]], i32[2,1] on {NAME}:0)]"
    )
    long = repr(there(client.buffer_from_host(np.arange(10**6))))
    assert len(long) < 100
    assert "..." in long


def test_repr_of_a_pending_value_does_not_wait(client):
    result, keep = promise(client)
    assert repr(result) == f"<Buffer pending, f32[256,256] on {NAME}:0>"
    keep()
    result.ready.wait()
    assert repr(result).endswith(f" f32[256,256] on {NAME}:0)")


def test_repr_of_a_deleted_buffer(client, executables, vector):
    buffer = vector()
    buffer.delete()
    assert repr(buffer) == f"<Buffer deleted, f32[8] on {NAME}:0>"
    donated = vector()
    executables("donate")(donated, vector())
    assert repr(donated) == f"<Buffer deleted, f32[8] on {NAME}:0>"


def test_repr_after_close(plugin):
    client = plugin.client()
    buffer = client.buffer_from_host([1])
    event = buffer.ready
    device, memory = client.devices[0], client.memories[0]
    client.close()
    assert repr(buffer) == "<Buffer deleted, i32[1] of a closed client>"
    assert [repr(each) for each in (client, event, device, memory)] == [
        f"<Client {NAME} closed>",
        "<Event closed>",
        "<Device closed>",
        "<Memory closed>",
    ]
    assert str(device) == f"{NAME}:0"


def gone(executables, vector, how):
    """A buffer that is no more."""
    buffer = vector()
    if how == "deleted":
        buffer.delete()
        buffer.delete()
    else:
        executables("donate")(buffer, vector())
    return buffer


@pytest.mark.parametrize("how", ["deleted", "donated"])
@pytest.mark.parametrize(
    "use",
    [
        lambda b: b.to_numpy(),
        lambda b: np.asarray(b),
        lambda b: b.item(),
        lambda b: b.tolist(),
        lambda b: str(b),
        lambda b: bool(b),
        lambda b: b.ready,
        lambda b: b.copy_to_device(b.device),
        lambda b: b.client.buffer_from_host(b),
    ],
    ids=["to_numpy", "asarray", "item", "tolist", "str", "bool", "ready", "copy", "put"],
)
def test_a_value_that_is_gone_is_a_closed_error(executables, vector, how, use):
    buffer = gone(executables, vector, how)
    with pytest.raises(ClosedError, match=r"deleted"):
        use(buffer)
    assert buffer.is_deleted
    assert buffer.shape == (8,)
    assert len(buffer) == 8


def test_buffers_come_only_from_clients():
    from pjrt_hub import Buffer

    with pytest.raises(TypeError):
        Buffer()


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


def test_an_unusable_plugin_answer_keeps_its_code(client):
    with pytest.raises(InvalidArgumentError) as caught:
        client.api.call("PJRT_Client_LookupDevice", client=client.address, id=99)
    assert caught.value.code == 3
    assert caught.value.function == "PJRT_Client_LookupDevice"
