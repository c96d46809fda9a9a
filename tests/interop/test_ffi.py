"""Functions in C that another package brings: jaxlib's LAPACK, called by programs that JAX made."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib import lapack

MATRIX = np.random.default_rng(7).standard_normal((5, 5)).astype(np.float32)
SYMMETRIC = MATRIX @ MATRIX.T + 5 * np.eye(5, dtype=np.float32)


@pytest.fixture(scope="module")
def run(client):
    """Register LAPACK, and run a JAX function on our own client."""
    for name, handler, api_version in lapack.registrations()["cpu"]:
        if api_version == 1:
            client.plugin.ffi.register(name, handler)

    def run(function, *arrays):
        traced = jax.jit(function).trace(*arrays)
        program = traced.lower(lowering_platforms=("cpu",)).as_text()
        buffers = [client.buffer_from_host(array) for array in arrays]
        return [np.asarray(each) for each in client.compile(program)(*buffers, simplify=False)]

    return run


def test_cholesky(run):
    [lower] = run(jnp.linalg.cholesky, SYMMETRIC)
    np.testing.assert_allclose(lower @ lower.T, SYMMETRIC, atol=1e-4)


def test_eigh(run):
    values, vectors = run(jnp.linalg.eigh, SYMMETRIC)
    np.testing.assert_allclose(vectors @ np.diag(values) @ vectors.T, SYMMETRIC, atol=1e-4)


def test_svd(run):
    u, s, vt = run(jnp.linalg.svd, MATRIX)
    np.testing.assert_allclose(u @ np.diag(s) @ vt, MATRIX, atol=1e-4)


def test_qr(run):
    q, r = run(jnp.linalg.qr, MATRIX)
    np.testing.assert_allclose(q @ r, MATRIX, atol=1e-4)


def test_solve_in_double(run):
    matrix = SYMMETRIC.astype(np.float64)
    [x] = run(jnp.linalg.solve, matrix, matrix[:, 0])
    np.testing.assert_allclose(x, [1, 0, 0, 0, 0], atol=1e-12)
