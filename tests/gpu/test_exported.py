"""Functions that JAX exports for this platform, run without JAX, beside its values on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from children import IS_LAYERED, PLATFORM

import pjrt_hub
from pjrt_hub.errors import NotRunnableError

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy
RANDOM = np.random.default_rng(11)
A, B = RANDOM.standard_normal((2, 128, 128)).astype(np.float32)
IMAGE = RANDOM.standard_normal((2, 32, 32, 8)).astype(np.float32)
KERNEL = RANDOM.standard_normal((3, 3, 8, 16)).astype(np.float32)


def attend(q, k, v):
    return jax.nn.softmax(q @ k.T / 11.3) @ v


def convolve(image, kernel):
    dimensions = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=dimensions)


def repeat(a):
    return jax.lax.fori_loop(0, 20, lambda _, x: jnp.tanh(x) + 0.1, a)


#: Name -> function, arguments, and a tolerance, since matrix units round their inputs.
FUNCTIONS = {
    "product": (lambda a, b: a @ b, (A, B), 0.1),
    "attention": (attend, (A, B, A), 0.05),
    "convolution": (convolve, (IMAGE, KERNEL), 0.1),
    "loop": (repeat, (A,), 1e-4),
    "sort": (lambda a: jnp.sort(a, axis=0), (A,), 0),
    "sums": (lambda a: (a.sum(0), jnp.cumsum(a, 1), a.max()), (A,), 1e-3),
    "fft": (lambda a: jnp.abs(jnp.fft.fft(a)), (A,), 1e-2),
    "bits": (lambda a: jax.random.bits(jax.random.key(7), a.shape), (A,), 0),
    "bfloat16": (lambda a: (a.astype(jnp.bfloat16) * 3).astype(jnp.float32), (A,), 0.05),
    "int8": (lambda a: (a * 10).astype(jnp.int8) // 3, (A,), 1),
    "gather": (lambda a: a[jnp.argsort(a[:, 0])[:10]], (A,), 0),
    "gradient": (jax.grad(lambda a: jnp.sin(a).sum()), (A,), 1e-5),
    "complex": (lambda a: jnp.abs(jnp.exp(1j * a)), (A,), 1e-5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_its_values(client, name):
    function, arguments, tolerance = FUNCTIONS[name]
    with jax.default_device(jax.devices("cpu")[0]):
        expected = jax.jit(function)(*arguments)
    exported = jax.export.export(jax.jit(function), platforms=[PLATFORM])(*arguments)
    run = pjrt_hub.load_exported(bytes(exported.serialize()), client=client)
    try:
        results = run(*arguments)
    except NotRunnableError as exc:
        if not IS_LAYERED:
            raise
        pytest.skip(f"the plugin under the layer is older than the platform's programs: {exc}")
    for result, value in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
        told, right = np.asarray(result), np.asarray(value)
        assert (told.shape, told.dtype) == (right.shape, right.dtype)
        np.testing.assert_allclose(told, right, atol=tolerance, rtol=tolerance)
