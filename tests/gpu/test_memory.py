"""Device and host memories, copies between them, large arrays, and memory that runs out."""

from __future__ import annotations

import numpy as np
import pytest
from children import ADD, IS_CPU

from pjrt_hub.errors import ResourceExhaustedError

KINDS = ("device", "pinned_host", "unpinned_host")


@pytest.fixture(params=KINDS)
def memory(memories, request):
    if request.param not in memories:
        pytest.skip(f"the device has {', '.join(memories)}")
    return memories[request.param]


def test_through_every_memory_and_back(client, memory):
    array = np.random.default_rng(5).standard_normal((33, 7)).astype(np.float32)
    there = client.buffer_from_host(array, memory=memory)
    assert there.memory is memory
    assert there.to_numpy().tobytes() == array.tobytes()
    for other in client.devices[0].memories:
        moved = there.copy_to_device(other)
        assert moved.memory is other
        assert moved.to_numpy().tobytes() == array.tobytes()


@pytest.mark.skipif(IS_CPU, reason="the host sees the memory of the CPU's devices")
def test_where_the_bytes_are(client):
    assert not client.buffer_from_host([1.0]).is_on_cpu


@pytest.mark.parametrize("mib", [1, 64, 256])
def test_large_arrays(client, mib):
    array = np.arange(mib << 18, dtype=np.uint32)
    buffer = client.buffer_from_host(array)
    assert np.array_equal(buffer, array)
    destination = np.zeros(1000, np.uint32)
    buffer.copy_raw_to_host(destination, offset=4 * 5000).wait()
    assert np.array_equal(destination, array[5000:6000])


def in_turn(call, count):
    for _ in range(count):
        call()


def test_memory_runs_out_and_comes_back(small):
    """Until nothing fits, and then again: what was refused leaves nothing behind."""
    limit = small.devices[0].memory_stats()["bytes_limit"]
    part = np.zeros(limit // 16, np.uint8)
    held = []

    def hold():
        buffer = small.buffer_from_host(part)
        buffer.ready.wait()
        held.append(buffer)

    for _ in range(3):
        with pytest.raises(ResourceExhaustedError, match=r"(?i)out of memory"):
            in_turn(hold, 64)
        assert 8 <= len(held) <= 16
        held.clear()
    half = small.buffer_from_host(np.zeros(limit // 2, np.uint8))
    half.ready.wait()
    a = small.buffer_from_host(np.ones(8, np.float32))
    assert small.compile(ADD)(a, a).tolist() == [2.0] * 8


def test_uninitialized_memory_runs_out(small):
    limit = small.devices[0].memory_stats()["bytes_limit"]
    held = []

    def hold():
        buffer = small.create_uninitialized_buffer((limit // 16,), np.uint8)
        buffer.ready.wait()
        held.append(buffer)

    with pytest.raises(ResourceExhaustedError, match=r"(?i)out of memory"):
        in_turn(hold, 64)
    assert 8 <= len(held) <= 16


def test_a_program_that_does_not_fit(small):
    """Its result takes twice what there is; it is refused when compiled, called or read."""
    side = 1 << (small.devices[0].memory_stats()["bytes_limit"].bit_length() // 2)
    program = f"""func.func @main(%a: tensor<f32>) -> tensor<{side}x{side}xf32> {{
      %0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<{side}x{side}xf32>
      return %0 : tensor<{side}x{side}xf32>
    }}"""
    with pytest.raises(ResourceExhaustedError):
        small.compile(program)(np.float32(1)).ready.wait()
    a = small.buffer_from_host(np.ones(8, np.float32))
    assert small.compile(ADD)(a, a).tolist() == [2.0] * 8
