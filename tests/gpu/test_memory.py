"""Device and host memories, copies between them, large arrays, and memory that runs out."""

from __future__ import annotations

import numpy as np
import pytest
from children import ADD

from pjrt_hub.errors import ResourceExhaustedError

KINDS = ("device", "pinned_host", "unpinned_host")


@pytest.fixture(params=KINDS)
def memory(client, request):
    kinds = {each.kind: each for each in client.devices[0].memories}
    if request.param not in kinds:
        pytest.skip(f"the device has {', '.join(kinds)}")
    return kinds[request.param]


def test_through_every_memory_and_back(client, memory):
    array = np.random.default_rng(5).standard_normal((33, 7)).astype(np.float32)
    there = client.buffer_from_host(array, memory=memory)
    assert there.memory is memory
    assert there.to_numpy().tobytes() == array.tobytes()
    for other in client.devices[0].memories:
        moved = there.copy_to_memory(other)
        assert moved.memory is other
        assert moved.to_numpy().tobytes() == array.tobytes()


@pytest.mark.gpu("memory that the host does not see")
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


@pytest.mark.gpu("a limit of its memory")
def test_memory_runs_out_and_comes_back(plugin):
    with plugin.client({"memory_fraction": 0.05, "preallocate": False}) as client:
        limit = client.devices[0].memory_stats()["bytes_limit"]
        held = []

        def hold():
            buffer = client.create_uninitialized_buffer((limit // 16,), np.uint8)
            buffer.ready.wait()
            held.append(buffer)

        with pytest.raises(ResourceExhaustedError, match=r"(?i)out of memory"):
            in_turn(hold, 64)
        assert 8 <= len(held) <= 16
        held.clear()
        half = client.create_uninitialized_buffer((limit // 2,), np.uint8)
        half.ready.wait()
        a = client.buffer_from_host(np.ones(8, np.float32))
        assert client.compile(ADD)(a, a).tolist() == [2.0] * 8


@pytest.mark.gpu("a limit of its memory")
def test_a_program_that_does_not_fit(plugin):
    program = """func.func @main(%a: tensor<f32>) -> tensor<131072x131072xf32> {
      %0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<131072x131072xf32>
      return %0 : tensor<131072x131072xf32>
    }"""
    with plugin.client({"memory_fraction": 0.05, "preallocate": False}) as client:
        with pytest.raises(ResourceExhaustedError):  # 64 GiB, when it is compiled, run or read
            client.compile(program)(np.float32(1)).ready.wait()
        a = client.buffer_from_host(np.ones(8, np.float32))
        assert client.compile(ADD)(a, a).tolist() == [2.0] * 8
