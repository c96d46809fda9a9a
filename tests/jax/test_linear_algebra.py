"""LAPACK on the plugin, by jaxlib's own functions: values and gradients against numpy's."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from children import in_child
from clients import is_plugin


def setup(dtype):
    """Batches of matrices, and a comparison, for values of a type.

    Values are compared by what they reconstruct, because factors are unique only up to signs.
    """
    jax.config.update("jax_enable_x64", True)
    dtype = np.dtype(dtype)
    tolerance = 2e-4 if dtype in (np.float32, np.complex64) else 1e-10
    random = np.random.default_rng(0)

    def matrix(*shape):
        values = random.standard_normal(shape)
        if dtype.kind == "c":
            values = values + 1j * random.standard_normal(shape)
        return values.astype(dtype)

    def near(found, wanted):
        assert found.dtype == wanted.dtype or found.dtype.kind == "c", (found.dtype, wanted.dtype)
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=tolerance, atol=tolerance)

    assert is_plugin(jax.devices()[0].client)
    general, tall, right = matrix(3, 5, 5), matrix(3, 6, 4), matrix(3, 5, 2)
    positive = general @ adjoint(general) + 5 * np.eye(5, dtype=dtype)
    return SimpleNamespace(
        dtype=dtype,
        near=near,
        matrix=matrix,
        general=general,
        tall=tall,
        right=right,
        positive=positive,
    )


def adjoint(x):
    return np.conj(np.swapaxes(np.asarray(x), -1, -2))


def cholesky(it):
    lower = jax.jit(jnp.linalg.cholesky)(it.positive)
    it.near(lower, np.linalg.cholesky(it.positive))


def eigh(it):
    values, vectors = jax.jit(jnp.linalg.eigh)(it.positive)
    it.near(values, np.linalg.eigh(it.positive)[0])
    it.near(np.asarray(vectors) * np.asarray(values)[:, None] @ adjoint(vectors), it.positive)


def svd(it):
    u, s, v = jax.jit(lambda x: jnp.linalg.svd(x, full_matrices=False))(it.tall)
    it.near(s, np.linalg.svd(it.tall)[1])
    it.near(np.asarray(u) * np.asarray(s)[:, None] @ np.asarray(v), it.tall)


def qr(it):
    q, r = jax.jit(jnp.linalg.qr)(it.tall)
    it.near(np.asarray(q) @ np.asarray(r), it.tall)
    it.near(adjoint(q) @ np.asarray(q), np.broadcast_to(np.eye(4, dtype=it.dtype), (3, 4, 4)))
    it.near(np.tril(np.asarray(r), -1), np.zeros((3, 4, 4), it.dtype))


def lu(it):
    p, lower, u = jax.jit(jax.vmap(jax.scipy.linalg.lu))(it.general)
    it.near(np.asarray(p) @ np.asarray(lower) @ np.asarray(u), it.general)
    it.near(jax.jit(jnp.linalg.det)(it.general), np.linalg.det(it.general))


def solve(it):
    it.near(jax.jit(jnp.linalg.solve)(it.general, it.right), np.linalg.solve(it.general, it.right))
    it.near(jax.jit(jnp.linalg.inv)(it.positive), np.linalg.inv(it.positive))
    triangle = np.tril(it.positive)
    solve = jax.jit(lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True))
    it.near(jax.vmap(solve)(triangle, it.right), np.linalg.solve(triangle, it.right))


def eig(it):
    values, vectors = jax.jit(jnp.linalg.eig)(it.general)
    wide = it.general.astype(vectors.dtype)
    it.near(wide @ np.asarray(vectors), np.asarray(vectors) * np.asarray(values)[:, None])

    def ordered(x):
        return np.sort_complex(np.asarray(x).round(3))

    for mine, theirs in zip(
        jax.jit(jnp.linalg.eigvals)(it.general), np.linalg.eigvals(it.general), strict=True
    ):
        np.testing.assert_allclose(ordered(mine), ordered(theirs), atol=2e-3)


def schur(it):
    t, z = jax.jit(jax.scipy.linalg.schur)(it.general[0])
    it.near(np.asarray(z) @ np.asarray(t) @ adjoint(z), it.general[0])
    it.near(adjoint(z) @ np.asarray(z), np.eye(5, dtype=it.dtype))
    it.near(np.tril(np.asarray(t), -2), np.zeros((5, 5), it.dtype))


def hessenberg(it):
    h, q = jax.jit(lambda x: jax.scipy.linalg.hessenberg(x, calc_q=True))(it.general[0])
    it.near(np.asarray(q) @ np.asarray(h) @ adjoint(q), it.general[0])


FUNCTIONS = (cholesky, eigh, svd, qr, lu, solve, eig, schur, hessenberg)
DTYPES = ("float32", "float64", "complex64", "complex128")


@pytest.mark.cpu("JAX has its linear algebra for platforms that it knows")
@pytest.mark.parametrize("dtype", DTYPES)
@in_child
def test_values_are_those_of_numpy(dtype):
    """All functions in one child: each is compiled for its type and run on a batch."""
    it = setup(dtype)
    for function in FUNCTIONS:
        function(it)


@pytest.mark.cpu("JAX has its linear algebra for platforms that it knows")
@in_child
def test_gradients_are_those_of_differences():
    matrix = setup("float64").matrix

    def scalars(x):
        a = x @ x.T + 4 * jnp.eye(4)
        yield jnp.linalg.cholesky(a).sum()
        yield (jnp.linalg.eigh(a)[0] ** 2 * jnp.arange(4)).sum()
        yield jnp.linalg.svd(x, compute_uv=False).sum()
        yield jnp.linalg.qr(x)[1][0, 0] ** 2
        yield jnp.linalg.slogdet(a)[1]
        yield jnp.linalg.solve(a, x[:, 0]).sum()

    x, step = matrix(4, 4), matrix(4, 4)
    for number in range(6):
        f = jax.jit(lambda x, number=number: list(scalars(x))[number])
        slope = float((jax.jit(jax.grad(f))(x) * step).sum())
        h = 1e-6
        difference = float(f(x + h * step) - f(x - h * step)) / (2 * h)
        assert abs(slope - difference) < 1e-5 * max(1, abs(slope)), (number, slope, difference)


@in_child
def test_jaxs_own_client_keeps_its_functions():
    own = jax.local_devices(backend="cpu")[0]
    x = np.array([[4.0, 2.0], [2.0, 3.0]], np.float32)
    for device, ours in ((own, False), (jax.devices()[0], True), (own, False)):
        with jax.default_device(device):
            lower = jnp.linalg.cholesky(x)
            [where] = lower.devices()
            assert (lower.tolist()[0], is_plugin(where.client)) == ([2.0, 0.0], ours)


@in_child
def test_no_page_is_writable_and_executable():
    """Handlers are reached through compiled entry points: no code is made at run time by them."""
    jax.block_until_ready(jnp.linalg.cholesky(jnp.eye(3)))
    with open("/proc/self/maps") as maps:
        assert [line for line in maps if "rwx" in line.split()[1]] == []


@in_child
def test_functions_of_the_user_reach_the_plugin():
    """`jax.ffi.register_ffi_target`, before the client is made and after."""
    from jaxlib.lapack import _lapack

    _lapack.initialize()
    handler = _lapack.registrations()["lapack_spotrf_ffi"]
    shapes = (jax.ShapeDtypeStruct((2, 2), np.float32), jax.ShapeDtypeStruct((), np.int32))
    layouts = {"input_layouts": [(0, 1)], "output_layouts": [(0, 1), ()]}

    def call(name):
        function = jax.ffi.ffi_call(name, shapes, **layouts)
        return jax.jit(lambda x: function(x, uplo=np.uint8(ord("L"))))(x)

    jax.ffi.register_ffi_target("early", handler, platform="cpu")
    x = jnp.array([[4.0, 2.0], [2.0, 3.0]])
    assert call("early")[0][0, 0] == 2
    jax.ffi.register_ffi_target("late", handler, platform="cpu")
    lower, info = call("late")
    assert (lower[0, 0], info) == (2, 0)
