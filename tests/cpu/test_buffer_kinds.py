"""Buffers not made from host arrays, device memory by address, and gaps of older plugins."""

import gc

import numpy as np
import pytest

import pjrt_hub
from pjrt_hub import HostBufferSemantics, errors

NUMBERS = np.arange(8, dtype=np.float32)


@pytest.mark.cpu("shares memory with the host")
def test_aligned_arrays_are_shared(client):
    for shape, dtype in ((8, "f32"), ((3, 5), "bf16"), ((1 << 20,), "f32")):
        array = pjrt_hub.empty_aligned(shape, dtype)
        assert array.__array_interface__["data"][0] % 64 == 0
        assert array.flags.writeable
        assert array.flags.c_contiguous
    array = pjrt_hub.empty_aligned(8)
    array[:] = 1
    shared = client.buffer_from_host(array, semantics=HostBufferSemantics.IMMUTABLE_ZERO_COPY)
    array[0] = 7
    assert shared.tolist() == [7.0] + [1.0] * 7


def test_uninitialized(client):
    buffer = client.create_uninitialized_buffer((2, 3), "bf16")
    assert (buffer.shape, buffer.dtype.name, len(buffer.to_numpy())) == ((2, 3), "bfloat16", 2)
    pinned = client.devices[0].memories[1]
    assert client.create_uninitialized_buffer(4, memory=pinned).memory is pinned


@pytest.mark.parametrize("deleted", [False, True])
def test_an_alias_waits_for_its_buffer(client, executables, deleted):
    """What was launched on it is fed even if it was deleted."""
    alias = pjrt_hub.Alias(client, (8,))
    value = client.buffer_from_host(NUMBERS)
    result = executables("add")(alias.buffer, value)
    assert not result.ready.is_ready()
    if deleted:
        alias.buffer.delete()
    alias.fulfill(value)
    assert deleted or alias.buffer.tolist() == NUMBERS.tolist()
    assert result.tolist() == (2 * NUMBERS).tolist()
    assert value.is_deleted


def test_an_alias_that_fails_or_is_given_up(client):
    alias = pjrt_hub.Alias(client, (8,))
    alias.fail(errors.DataLossError("it never came"))
    with pytest.raises(errors.PjrtError, match="it never came"):
        alias.buffer.ready.wait(10)
    alias = pjrt_hub.Alias(client, (8,))
    waiting = alias.buffer
    del alias
    with pytest.raises(errors.PjrtError, match="nobody kept the promise"):
        waiting.ready.wait(10)


def test_an_alias_ends_with_its_client(plugin):
    client = plugin.client()
    alias = pjrt_hub.Alias(client, (8,))
    client.close()
    assert alias.closed
    with pytest.raises(errors.ClosedError):
        alias.fail(errors.AbortedError("late"))


def test_an_alias_that_the_collector_finds_is_given_up(client):
    alias = pjrt_hub.Alias(client, (8,))
    buffer = alias.buffer
    cycle = [alias]
    cycle.append(cycle)
    del alias, cycle
    gc.collect()
    with pytest.raises(errors.CancelledError, match="nobody kept the promise"):
        buffer.ready.wait(20)


@pytest.mark.cpu("shares memory with the host")
def test_a_view_of_an_array(client, wait_until):
    array = pjrt_hub.empty_aligned(8)
    array[:] = NUMBERS
    deleted = []
    view = client.create_view_of_device_buffer(array, (8,), on_delete=lambda: deleted.append(1))
    array[0] = 9
    assert view.tolist() == [9, *range(1, 8)]
    del view
    wait_until(lambda: deleted == [1])


@pytest.mark.cpu("shares memory with the host")
def test_an_external_reference_keeps_the_memory(client):
    buffer = client.buffer_from_host(NUMBERS)
    with pjrt_hub.ExternalReference(buffer) as reference:
        assert reference.pointer == buffer.unsafe_pointer()
        assert reference.pointer == buffer.to_numpy().__array_interface__["data"][0]
        buffer.delete()
        assert reference.pointer
    reference.release()
    with pytest.raises(errors.ClosedError, match="was released"):
        _ = reference.pointer
    with pytest.raises(errors.ClosedError):
        pjrt_hub.ExternalReference(buffer)


def test_copies_to_memories(client):
    buffer = client.buffer_from_host(NUMBERS)
    for memory in client.devices[0].memories:
        copy = buffer.copy_to_memory(memory)
        assert (copy.memory, copy.tolist()) == (memory, NUMBERS.tolist())
    assert {memory.kind for memory in client.memories} >= {"device", "pinned_host"}


@pytest.mark.rows
def test_raw_copies(client):
    buffer = client.buffer_from_host(NUMBERS)
    middle = np.zeros(3, np.float32)
    buffer.copy_raw_to_host(middle, offset=8).wait(10)
    assert middle.tolist() == [2, 3, 4]
    buffer.copy_raw_to_host(bytearray(0), offset=32).wait(10)


@pytest.mark.cpu("shares memory with the host")
def test_static_shapes(client):
    buffer = client.buffer_from_host(NUMBERS.reshape(2, 4))
    assert (buffer.logical_shape, buffer.dynamic_dimensions) == ((2, 4), ())
    assert buffer.is_on_cpu is True


@pytest.mark.cpu("its host's memory is the device's")
def test_no_memory_is_mapped_for_dma(client):
    with pytest.raises(errors.UnimplementedError):
        pjrt_hub.DmaMapping(client, np.zeros(4096))


@pytest.mark.api(">=0.82", "it makes one")
def test_an_error_buffer_fails_what_uses_it(client, executables):
    failed = client.create_error_buffer(errors.DataLossError("on purpose"), (8,))
    assert (failed.shape, failed.dtype, failed.layout) == ((8,), np.float32, (0,))
    result = executables("add")(failed, client.buffer_from_host(NUMBERS))
    with pytest.raises(errors.DataLossError, match="on purpose"):
        failed.to_numpy()
    with pytest.raises(errors.PluginInternalError, match="on purpose"):  # the plugin's status code
        result.to_numpy()


@pytest.mark.api(">=0.89", "it makes one")
def test_an_event_of_one_s_own(client):
    fired, failed = pjrt_hub.SettableEvent(client), pjrt_hub.SettableEvent(client)
    assert not fired.is_ready()
    fired.set()
    fired.wait(10)
    failed.set(errors.AbortedError("on purpose"))
    with pytest.raises(errors.AbortedError, match="on purpose"):
        failed.wait(10)


@pytest.mark.api(">=0.84", "it tells the destination later")
def test_a_destination_that_is_told_later(client):
    numbers = client.buffer_from_host(NUMBERS)
    destination = np.zeros(8, np.float32)
    copy = pjrt_hub.RawCopy(numbers)
    copy.fulfill(destination)
    copy.ready.wait(10)
    assert destination.tolist() == NUMBERS.tolist()


@pytest.mark.api(">=0.98", "it casts")
def test_a_bitcast(client):
    numbers = client.buffer_from_host(NUMBERS)
    cast = numbers.bitcast("i32", (2, 4))
    assert cast.to_numpy().tolist() == NUMBERS.view(np.int32).reshape(2, 4).tolist()
