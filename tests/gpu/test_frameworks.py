"""torch, CuPy and JAX beside a client: the same memory, by address, in both directions."""

from __future__ import annotations

import numpy as np
import pytest
from children import ADD, IS_HARDWARE, IS_LAYERED

NUMBERS = np.arange(4096, dtype=np.float32).reshape(64, 64)
DEVICE = "cuda" if IS_HARDWARE else "cpu"
#: The side of matrices whose product takes a device a while.
SIDE = 2048 if IS_HARDWARE else 256
pytestmark = pytest.mark.skipif(IS_LAYERED, reason="the addresses of this layer are nobody's")


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture(scope="module")
def cupy():
    return pytest.importorskip("cupy", reason="CuPy is not installed")


def test_torch_reads_a_buffer_where_it_lies(client, torch):
    buffer = client.buffer_from_host(NUMBERS)
    tensor = torch.from_dlpack(buffer)
    assert tensor.device.type == DEVICE
    assert tensor.data_ptr() == buffer.unsafe_pointer()
    assert torch.equal(tensor.cpu(), torch.from_numpy(NUMBERS))


def test_a_buffer_is_a_tensor_where_it_lies(client, torch):
    tensor = torch.arange(4096, dtype=torch.float32, device=DEVICE).reshape(64, 64)
    buffer = client.from_dlpack(tensor, copy=False)
    assert buffer.unsafe_pointer() == tensor.data_ptr()
    assert np.array_equal(buffer, NUMBERS)


def test_what_torch_computes_is_there_before_a_program_reads_it(client, torch):
    """The stream of torch is another one than the plugin's."""
    add = client.compile(ADD)
    for turn in range(50):
        tensor = torch.full((SIDE, SIDE), 0.5, device=DEVICE)
        for _ in range(4):
            tensor = tensor @ torch.eye(SIDE, device=DEVICE)
        eight = (tensor[0, :8] * (turn + 1)).contiguous()
        buffer = client.from_dlpack(eight)
        assert add(buffer, buffer).tolist() == [turn + 1.0] * 8


def test_what_a_program_computes_is_there_before_torch_reads_it(client, torch):
    add = client.compile(ADD)
    for turn in range(50):
        result = add(*[np.full(8, turn, np.float32)] * 2)
        assert torch.from_dlpack(result).sum().item() == 16.0 * turn


@pytest.mark.gpu("CUDA's array interface")
def test_cupy_reads_a_buffer_where_it_lies(client, cupy):
    buffer = client.buffer_from_host(NUMBERS)
    assert buffer.__cuda_array_interface__["data"][0] == buffer.unsafe_pointer()
    for array in (cupy.asarray(buffer), cupy.from_dlpack(buffer)):
        assert array.data.ptr == buffer.unsafe_pointer()
        assert np.array_equal(cupy.asnumpy(array), NUMBERS)
    given = cupy.asarray(NUMBERS)
    back = client.from_dlpack(given, copy=False)
    assert back.unsafe_pointer() == given.data.ptr
    assert np.array_equal(back, NUMBERS)


@pytest.mark.gpu("CUDA's array interface")
def test_torch_reads_cudas_array_interface(client, torch):
    buffer = client.buffer_from_host(NUMBERS)
    tensor = torch.as_tensor(buffer, device="cuda")
    assert tensor.data_ptr() == buffer.unsafe_pointer()
    assert np.array_equal(tensor.cpu(), NUMBERS)


@pytest.mark.gpu("CUDA's array interface")
def test_what_cupy_computes_is_there_before_a_program_reads_it(client, cupy):
    add = client.compile(ADD)
    for turn in range(50):
        array = cupy.full((SIDE, SIDE), 0.5, np.float32)
        for _ in range(4):
            array = array @ cupy.eye(SIDE, dtype=np.float32)
        buffer = client.from_dlpack(array[0, :8] * np.float32(turn + 1))
        assert add(buffer, buffer).tolist() == [turn + 1.0] * 8


def test_jax_reads_a_buffer_where_it_lies(client):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    buffer = client.buffer_from_host(NUMBERS)
    array = jax.numpy.from_dlpack(buffer)
    assert next(iter(array.devices())).platform == "gpu" if IS_HARDWARE else "cpu"
    assert array.unsafe_buffer_pointer() == buffer.unsafe_pointer()
    assert np.array_equal(array, NUMBERS)
    back = client.from_dlpack(jax.numpy.sin(array))
    np.testing.assert_allclose(back, np.sin(NUMBERS), atol=1e-5)
