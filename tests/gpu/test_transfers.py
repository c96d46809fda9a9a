"""Ways to the device and back: memory that it reaches by itself, parts, raw bytes, the host's."""

from __future__ import annotations

import numpy as np
import pytest

import pjrt_hub
from pjrt_hub.errors import DataLossError, PjrtHubError, UnimplementedError

NUMBERS = np.arange(1 << 20, dtype=np.float32)


@pytest.fixture
def mapped(client):
    """8 MiB that the device reaches by itself."""
    array = pjrt_hub.empty_aligned(2 << 20)
    try:
        mapping = pjrt_hub.DmaMapping(client, array)
    except UnimplementedError:
        pytest.skip("the plugin maps no memory")
    with mapping:
        yield array


def test_from_mapped_memory_and_back(client, mapped):
    semantics = pjrt_hub.HostBufferSemantics
    for turn, each in enumerate(
        (semantics.IMMUTABLE_ONLY_DURING_CALL, semantics.IMMUTABLE_UNTIL_TRANSFER_COMPLETES)
    ):
        mapped[:] = np.arange(mapped.size, dtype=np.float32) + turn
        buffer = client.buffer_from_host(mapped, semantics=each)
        buffer.ready.wait()
        assert np.array_equal(buffer, mapped)
        kept = mapped.copy()
        mapped[:] = -1
        buffer.copy_raw_to_host(mapped).wait()
        assert np.array_equal(mapped, kept)


def test_memory_is_mapped_again(client, mapped):
    del mapped
    array = pjrt_hub.empty_aligned(1 << 20)
    array[:] = NUMBERS
    pjrt_hub.DmaMapping(client, array).close()
    with pjrt_hub.DmaMapping(client, array):
        assert np.array_equal(client.buffer_from_host(array), array)


@pytest.mark.parametrize("nbytes", [1 << 16, 1 << 20, 1 << 22])
def test_in_parts(client, nbytes):
    """The last comes first."""
    whole = NUMBERS.view(np.uint8)
    with pjrt_hub.Transfer(client, [(NUMBERS.shape, "f32")]) as transfer:
        buffer = transfer.retrieve_buffer(0)
        for begin in reversed(range(0, whole.size, nbytes)):
            part = whole[begin : begin + nbytes]
            transfer.transfer_data(0, part, offset=begin, is_last=begin == 0)
        assert np.array_equal(buffer, NUMBERS)


def test_in_parts_to_the_hosts_memory(client, memories):
    if "pinned_host" not in memories:
        pytest.skip("the device has no such memory")
    given = pjrt_hub.Transfer(client, [(NUMBERS.shape, "f32")], memory=memories["pinned_host"])
    with given as transfer:
        buffer = transfer.retrieve_buffer(0)
        transfer.transfer_data(0, NUMBERS, offset=0, is_last=True)
        assert buffer.memory is memories["pinned_host"]
        assert np.array_equal(buffer, NUMBERS)


def test_from_the_hosts_memory_to_the_devices(client, memories):
    if "pinned_host" not in memories:
        pytest.skip("the device has no such memory")
    pinned = client.buffer_from_host(NUMBERS, memory=memories["pinned_host"])
    assert pinned.is_on_cpu
    there = pinned.copy_to_memory(memories["device"])
    pinned.delete()
    back = there.copy_to_memory(memories["pinned_host"])
    there.delete()
    assert np.array_equal(back, NUMBERS)


def test_raw_bytes(client):
    buffer = client.buffer_from_host(NUMBERS)
    destination = np.zeros(1000, np.float32)
    buffer.copy_raw_to_host(destination, offset=4 * 5000).wait()
    assert np.array_equal(destination, NUMBERS[5000:6000])
    if client.api.has("PJRT_Buffer_CopyRawToHostFuture"):
        copy = pjrt_hub.RawCopy(buffer, 4 * 7000, 4000)
        copy.fulfill(destination)
        copy.ready.wait()
        assert np.array_equal(destination, NUMBERS[7000:8000])


def test_a_transfer_that_fails(client):
    with pjrt_hub.Transfer(client, [((8,), "f32")]) as transfer:
        buffer = transfer.retrieve_buffer(0)
        transfer.set_buffer_error(0, DataLossError("the line is cut"))
    with pytest.raises(PjrtHubError, match="the line is cut"):
        buffer.to_numpy()
    assert np.array_equal(client.buffer_from_host(NUMBERS), NUMBERS)
