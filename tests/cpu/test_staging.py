"""Large arrays are copied once into huge pages, which are kept while used and then reused."""

import gc
import os
import re
import resource
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from children import in_child, in_threads
from texts import DONATED, adding

import pjrt_hub
from pjrt_hub import HostBufferSemantics
from pjrt_hub.running.capi import hotpath

HUGE = 1 << 21
#: The most bytes that are kept for reuse.
KEPT = 128 << 20
COUNT = HUGE // 4 + 3
#: Programs on row-major arrays of COUNT floats.
ADD, DONATE = adding(f"{COUNT}xf32"), adding(f"{COUNT}xf32", DONATED)

pytestmark = pytest.mark.skipif(
    hotpath.Staging.of(1) is None, reason="this system gives no huge pages"
)


@pytest.fixture(autouse=True)
def _no_client_ends_meanwhile():
    """End the clients that earlier tests left in cycles, because the end of each trims memory."""
    gc.collect()


def at(nbytes, offset, dtype="u1"):
    """Zeros that begin `offset` bytes after a multiple of 64."""
    memory = np.zeros(nbytes + 128, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64 + offset
    return memory[start : start + nbytes].view(dtype)


def is_staged(buffer):
    return buffer.unsafe_pointer() % HUGE == 0


@pytest.mark.cpu("copies arrays on the host")
@pytest.mark.parametrize("offset", [0, 16])
@pytest.mark.parametrize(
    "semantics",
    [HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL, HostBufferSemantics.IMMUTABLE_ZERO_COPY],
)
def test_what_is_copied_may_change(client, offset, semantics):
    source = at(HUGE + 64, offset, "f4")
    source[:] = np.arange(source.size)
    expected = source.copy()
    buffer = client.buffer_from_host(source, semantics=semantics)
    shared = semantics is HostBufferSemantics.IMMUTABLE_ZERO_COPY and not offset
    assert is_staged(buffer) is not shared
    source[:] = -1
    expected = source if shared else expected
    assert np.array_equal(buffer.to_numpy(), expected)


@pytest.mark.cpu("copies arrays on the host")
@pytest.mark.parametrize(
    "dtype", ["bool", "s8", "i64", "f16", "bf16", "f8E5M2", "f8E8M0FNU", "complex<f64>", "int4"]
)
def test_every_kind_of_element(client, dtype):
    bits = np.arange(2 * HUGE, dtype=np.uint64).astype(np.uint8) % 2
    source = bits.view(pjrt_hub.empty_aligned(1, dtype).dtype).reshape(2, -1)
    buffer = client.buffer_from_host(source)
    assert is_staged(buffer) or dtype == "int4"  # the plugin packs int4
    assert (buffer.shape, buffer.dtype) == (source.shape, source.dtype)
    assert buffer.to_numpy().tobytes() == source.tobytes()


@pytest.mark.cpu("copies arrays on the host")
def test_small_arrays_and_chosen_memories_are_the_plugins(client):
    for source, memory in ((at(HUGE - 64, 16), None), (at(HUGE, 16), client.memories[0])):
        buffer = client.buffer_from_host(source, memory=memory)
        assert not is_staged(buffer)
        assert np.array_equal(buffer.to_numpy(), source)


def test_strides_are_followed(client):
    source = np.arange(2 * HUGE, dtype=np.int32).reshape(2, -1)
    for strided in (source.T, source[:, ::2], source[::-1]):
        assert np.array_equal(client.buffer_from_host(strided).to_numpy(), strided)


@pytest.mark.cpu("copies arrays on the host")
def test_memory_is_used_again_once_nobody_looks(own, wait_until):
    ones, twos = (np.full(COUNT, value, np.float32) for value in (1, 2))
    first = own.buffer_from_host(ones)
    place = first.unsafe_pointer()
    array = first.to_numpy()
    first.delete()
    second = own.buffer_from_host(twos)
    assert second.unsafe_pointer() != place
    assert array.min() == array.max() == 1
    hotpath.Staging._trim()
    assert hotpath.Staging._kept() == 0
    del array, first
    wait_until(lambda: hotpath.Staging._kept() >= 4 * COUNT)
    assert hotpath.Staging._kept() < 4 * COUNT + 4096
    third = own.buffer_from_host(ones)
    assert third.unsafe_pointer() == place
    assert hotpath.Staging._kept() == 0
    assert np.array_equal(second.to_numpy(), twos)
    assert np.array_equal(third.to_numpy(), ones)


@pytest.mark.cpu("copies arrays on the host")
def test_what_is_kept_is_bounded_and_ends_with_the_client(plugin):
    hotpath.Staging._trim()
    with plugin.client() as client:
        source = np.zeros(KEPT // 4, np.uint8)
        for _ in range(2):
            buffers = [client.buffer_from_host(source) for _ in range(6)]
            assert all(map(is_staged, buffers))
            del buffers
            assert hotpath.Staging._kept() == KEPT
        client.buffer_from_host(np.zeros(KEPT + 4096, np.uint8))  # this one is too large to be kept
        assert hotpath.Staging._kept() == KEPT
    assert hotpath.Staging._kept() == 0


@pytest.mark.cpu("copies arrays on the host")
def test_a_program_writes_into_what_is_donated_to_it(own, wait_until):
    exe = own.compile(DONATE)
    source, ones = np.arange(COUNT, dtype=np.float32), np.ones(COUNT, np.float32)
    given = own.buffer_from_host(source)
    place = given.unsafe_pointer()
    hotpath.Staging._trim()
    result = exe(given, own.buffer_from_host(ones))
    assert given.is_deleted
    assert np.array_equal(result.to_numpy(), source + 1)
    assert result.unsafe_pointer() == place
    assert source[-1] == COUNT - 1
    del given
    again = own.buffer_from_host(ones)
    assert again.unsafe_pointer() != place  # the result occupies that memory
    assert np.array_equal(result.to_numpy(), source + 1)
    hotpath.Staging._trim()
    del result
    wait_until(lambda: hotpath.Staging._kept() >= 4 * COUNT)


def test_what_a_program_reads_stays(own):
    exe = own.compile(ADD)
    for turn in range(20):
        a, b = (own.buffer_from_host(np.full(COUNT, turn + i, np.float32)) for i in range(2))
        result = exe(a, b)
        a.delete()
        del a, b
        litter = [own.buffer_from_host(np.full(COUNT, -1, np.float32)) for _ in range(2)]
        assert result.to_numpy().min() == result.to_numpy().max() == 2 * turn + 1
        del litter


@in_child
def test_the_client_may_go_first(client):
    source = np.arange(COUNT, dtype=np.float32)
    arrays = []
    for _ in range(3):
        c = client.plugin.client()
        buffer = c.buffer_from_host(source)
        arrays.append(buffer.to_numpy())
        another = c.buffer_from_host(source)
        c.close()
    del buffer, another, c
    assert all(np.array_equal(array, source) for array in arrays)
    return client, client.buffer_from_host(source)


@in_child
def test_threads_put_at_once(client):
    wrong = []

    def put(number):
        for turn in range(50):
            source = np.full(COUNT, 100 * number + turn, np.float32)
            buffer = client.buffer_from_host(source)
            source[:] = -1
            if not (buffer.to_numpy() == 100 * number + turn).all():
                wrong.append((number, turn))

    in_threads(*(partial(put, number) for number in range(4)))
    assert not wrong, wrong


@in_child
def test_a_fork_sees_the_values_and_keeps_nothing(client):
    source = np.arange(COUNT, dtype=np.float32)
    array = client.buffer_from_host(source).to_numpy()
    client.buffer_from_host(source)
    assert hotpath.Staging._kept() > 0
    process = os.fork()
    if process == 0:
        right = np.array_equal(array, source) and hotpath.Staging._kept() == 0
        right &= hotpath.Staging.of(HUGE) is not None  # the child inherited no locked lock
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert np.array_equal(client.buffer_from_host(source).to_numpy(), source)


def status(name):
    """A value of /proc/self/status, in bytes."""
    return int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) << 10


@pytest.mark.cpu("copies arrays on the host")
@in_child
def test_putting_again_and_again_takes_no_more_memory(client):
    exe = client.compile(DONATE)
    source = np.ones(COUNT, np.float32)

    def turns(count):
        x = client.buffer_from_host(source)
        for _ in range(count):
            x = exe(x, client.buffer_from_host(source))
            x.ready.wait()  # many pending launches would hold their arrays
            x.delete()
            x = client.buffer_from_host(source)

    turns(50)
    before = status("VmRSS")
    turns(500)  # this moves more than 2 GB in all
    assert status("VmRSS") - before < 64 << 20


@in_child
def test_where_no_more_can_be_mapped_there_is_none(client):
    limit = status("VmSize") + (1 << 30)  # a new thread may need some of it
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    assert hotpath.Staging.of(1 << 31) is None
    assert hotpath.Staging.of(4096) is not None
