"""torch and JAX over DLPack: both ways, without a copy."""

from __future__ import annotations

import gc
import time
import weakref

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

#: torch's names of the element types that it shares with PJRT.
TORCH = {
    "bool": torch.bool,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "uint16": torch.uint16,
    "uint32": torch.uint32,
    "uint64": torch.uint64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
    "complex64": torch.complex64,
    "complex128": torch.complex128,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "float8_e5m2": torch.float8_e5m2,
    "float8_e5m2fnuz": torch.float8_e5m2fnuz,
    "float8_e8m0fnu": torch.float8_e8m0fnu,
}
#: The element types that JAX lends and takes.
JAX = [name for name in TORCH if name != "float8_e8m0fnu"]


def numpy_dtype(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def address_of(buffer):
    return buffer.to_numpy().view(np.uint8).__array_interface__["data"][0]


def ones(client, name):
    return client.buffer_from_host(np.ones((4, 16), np.float32).astype(numpy_dtype(name)))


@pytest.mark.parametrize("name", TORCH)
def test_torch_shares_a_buffer(client, name):
    buffer = ones(client, name)
    tensor = torch.from_dlpack(buffer)
    assert (tensor.dtype, tuple(tensor.shape)) == (TORCH[name], (4, 16))
    assert tensor.data_ptr() == address_of(buffer)
    assert tensor.to(torch.complex64).sum().item() == 64


@pytest.mark.parametrize("name", TORCH)
def test_a_tensor_of_torch_is_shared(client, name):
    tensor = torch.ones(4, 16).to(TORCH[name])
    assert tensor.data_ptr() % 64 == 0
    buffer = client.from_dlpack(tensor, copy=False)
    assert (buffer.dtype, buffer.shape) == (numpy_dtype(name), (4, 16))
    assert address_of(buffer) == tensor.data_ptr()
    assert (buffer.to_numpy().astype(np.complex64) == 1).all()
    assert torch.from_dlpack(buffer).data_ptr() == tensor.data_ptr()


@pytest.mark.parametrize("name", JAX)
@pytest.mark.parametrize("take", [jax.dlpack.from_dlpack, jnp.from_dlpack], ids=["jax", "jnp"])
def test_jax_shares_a_buffer(client, name, take):
    buffer = ones(client, name)
    array = take(buffer)
    assert (array.dtype, array.shape) == (numpy_dtype(name), (4, 16))
    assert array.unsafe_buffer_pointer() == address_of(buffer)
    assert (np.asarray(array).astype(np.complex64) == 1).all()


@pytest.mark.parametrize("name", JAX)
def test_an_array_of_jax_is_shared(client, name):
    array = jnp.ones((4, 16), numpy_dtype(name))
    buffer = client.from_dlpack(array, copy=False)
    assert (buffer.dtype, buffer.shape) == (numpy_dtype(name), (4, 16))
    assert address_of(buffer) == array.unsafe_buffer_pointer()
    assert jax.dlpack.from_dlpack(buffer).unsafe_buffer_pointer() == array.unsafe_buffer_pointer()


def test_strides_reach_torch(client):
    program = """func.func @main(%a: tensor<2x3xf32>)
        -> (tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"}) {
      %sum = stablehlo.add %a, %a : tensor<2x3xf32>
      return %sum : tensor<2x3xf32>
    }"""
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = client.compile(program)(client.buffer_from_host(source))
    tensor = torch.from_dlpack(result)
    assert tensor.stride() == (1, 2)
    assert tensor.tolist() == (2 * source).tolist()


def test_strides_of_torch_are_copied(client):
    tensor = torch.arange(6.0).reshape(2, 3)
    assert client.from_dlpack(tensor.T).tolist() == tensor.T.tolist()
    shared = client.from_dlpack(tensor.T, copy=False)
    assert (shared.layout, shared.tolist()) == ((0, 1), tensor.T.tolist())
    assert shared.unsafe_pointer() == tensor.data_ptr()
    with pytest.raises(BufferError, match="not row-major"):
        client.from_dlpack(tensor[:, ::2], copy=False)


def test_a_copy_for_torch_may_be_written(client):
    buffer = ones(client, "float32")
    tensor = torch.from_dlpack(buffer, copy=True)
    tensor.zero_()
    assert buffer.to_numpy().all()


def test_writing_through_torch_writes_into_the_buffer(client):
    """As its documentation says, torch does not heed DLPack's read-only flag."""
    buffer = ones(client, "float32")
    torch.from_dlpack(buffer).zero_()
    assert not buffer.to_numpy().any()


def test_a_tensor_that_requires_grad_is_refused(client):
    with pytest.raises(BufferError, match="gradient"):
        client.from_dlpack(torch.ones(2, requires_grad=True))


@pytest.mark.parametrize("name", ["int4", "float4_e2m1fn"])
def test_what_torch_lacks_it_refuses_by_itself(client, name):
    with pytest.raises(BufferError, match="Unsupported"):
        torch.from_dlpack(ones(client, name))


def test_torch_is_told_when_its_loan_ends(client):
    memory = np.zeros(1024 + 64, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    gone = weakref.ref(memory)
    tensor = torch.from_numpy(memory)[start : start + 1024]
    buffer = client.from_dlpack(tensor, copy=False)
    del memory, tensor
    gc.collect()
    assert gone() is not None
    assert buffer.to_numpy().sum() == 0
    del buffer
    deadline = time.monotonic() + 10
    while gone() is not None:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_from_torch_through_a_program_to_jax(client):
    program = """func.func @main(%a: tensor<1024xf32>) -> tensor<1024xf32> {
      %sum = stablehlo.add %a, %a : tensor<1024xf32>
      return %sum : tensor<1024xf32>
    }"""
    result = client.compile(program)(client.from_dlpack(torch.arange(1024.0), copy=False))
    array = jnp.from_dlpack(result)
    assert array.unsafe_buffer_pointer() == address_of(result)
    assert array.tolist() == list(range(0, 2048, 2))


VIEWS = {
    "negated": (lambda: torch.tensor([1 + 2j, 3 + 4j]).conj().imag, "resolve_neg", [-2.0, -4.0]),
    "conjugated": (lambda: torch.tensor([1 + 2j, 3 + 4j]).conj(), "resolve_conj", [1 - 2j, 3 - 4j]),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("copy", [None, True])
def test_a_view_that_torch_changes_when_it_is_read(client, name, copy):
    view, _, values = VIEWS[name]
    assert view().is_neg() or view().is_conj()
    assert client.from_dlpack(view(), copy=copy).tolist() == values


@pytest.mark.parametrize("name", VIEWS)
def test_such_a_view_cannot_be_shared(client, name):
    view, resolve, _ = VIEWS[name]
    with pytest.raises(BufferError, match=rf"copy=False forbids it.*\n\nhint: .*\.{resolve}\(\)"):
        client.from_dlpack(view(), copy=False)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn"])
def test_what_torch_gives_no_numpy_of_has_a_hint(client, name):
    tensor = torch.ones(3).to(TORCH[name])
    with pytest.raises(TypeError, match=r"of this Tensor.*\n\nhint: client\.from_dlpack\(array\)"):
        client.buffer_from_host(tensor)
    assert client.from_dlpack(tensor).dtype.name == name
