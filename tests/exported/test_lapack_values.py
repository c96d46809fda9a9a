"""Our LAPACK handlers on the plugin against jaxlib's on JAX's own client, in all four types."""

from functools import partial

import numpy as np
import pytest

import pjrt_hub
from pjrt_hub.running.capi import lapack

pytestmark = [pytest.mark.slow, pytest.mark.night]
jax = pytest.importorskip("jax")
linalg = jax.lax.linalg
TYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
REGISTERED = pytest.importorskip("jaxlib.lapack")._lapack.registrations()
NAMES = [name for name in REGISTERED if name.endswith("_ffi")]


def positive(x):
    return x @ x.conj().mT + x.shape[-1] * np.eye(x.shape[-1], dtype=x.dtype)


def with_nan(x):
    return x.at[..., 0, 1].set(np.nan)


def of_rank_one(x):
    return x[..., :1] @ x[..., :1, :]


def multiply(x, c, **how):
    """Multiply `c` by reflections, whatever their length."""
    return linalg.ormqr(x, x[..., 0, :], c, **how)


def tridiagonal(x, singular=False, **how):
    """Solve a tridiagonal system, whose diagonals and right-hand sides are columns of `x`."""
    dl, d, du, b = x[..., 0], x[..., 1] + 4, x[..., 2], x[..., 3:]
    dl, du = dl.at[..., 0].set(0), du.at[..., -1].set(0)
    return linalg.tridiagonal_solve(dl, d * (not singular), du * (not singular), b, **how)


def triangular(x, b, **how):
    return linalg.triangular_solve(positive(x), b, **how)


by_qr = partial(linalg.svd, algorithm=linalg.SvdAlgorithm.QR)
thin_qr = partial(linalg.qr, full_matrices=False)
eigh = partial(linalg.eigh, symmetrize_input=False)
#: A kind of routine -> functions that call it, with the shapes of their arguments.
CASES = {
    "potrf": [
        (lambda x: linalg.cholesky(positive(x)), (2, 3, 4, 4)),
        (lambda x: linalg.cholesky(positive(x)), (1, 1)),
        (lambda x: linalg.cholesky(-positive(x)), (2, 4, 4)),
    ],
    "getrf": [
        *((linalg.lu, shape) for shape in ((3, 5, 5), (2, 6, 3), (3, 6), (0, 3), (0, 3, 3))),
        (lambda x: linalg.lu(of_rank_one(x)), (4, 4)),
    ],
    "getrf, trsm": [(jax.numpy.linalg.solve, (2, 4, 4), (2, 4, 3))],
    "geqrf, orgqr": [
        *((thin_qr, shape) for shape in ((2, 6, 4), (3, 3, 5), (3, 0))),
        (linalg.qr, (6, 4)),
    ],
    "geqp3": [
        (partial(thin_qr, pivoting=True), (2, 5, 4)),
        (partial(linalg.qr, pivoting=True), (3, 8)),
    ],
    "ormqr": [
        (multiply, (2, 5, 3), (2, 5, 4)),
        (partial(multiply, transpose=True), (5, 3), (5, 4)),
        (partial(multiply, left=False), (5, 3), (4, 5)),
        (partial(multiply, left=False, transpose=True), (2, 5, 3), (2, 4, 5)),
    ],
    "gesdd": [
        (partial(linalg.svd, full_matrices=False), (2, 5, 3)),
        (linalg.svd, (2, 5, 3)),
        (linalg.svd, (3, 7)),
        (partial(linalg.svd, compute_uv=False), (4, 3, 2)),
        (partial(linalg.svd, compute_uv=False), (0, 3)),
        (lambda x: linalg.svd(of_rank_one(x), compute_uv=False), (4, 4)),
        (lambda x: linalg.svd(with_nan(x), compute_uv=False), (3, 3)),
    ],
    "gesvd": [
        (by_qr, (2, 5, 3)),
        (partial(by_qr, full_matrices=False), (3, 5)),
        (partial(by_qr, compute_uv=False), (3, 5)),
    ],
    "syevd": [(partial(eigh, lower=True), (2, 5, 5)), (partial(eigh, lower=False), (5, 5))],
    "geev": [
        (linalg.eig, (3, 5, 5)),
        (partial(linalg.eig, compute_left_eigenvectors=False), (2, 4, 4)),
        (partial(linalg.eig, compute_right_eigenvectors=False), (4, 4)),
        (lambda x: linalg.eig(with_nan(x)), (3, 3)),
    ],
    "gees": [
        (linalg.schur, (2, 5, 5)),
        (partial(linalg.schur, compute_schur_vectors=False), (4, 4)),
    ],
    "gehrd": [(linalg.hessenberg, (2, 5, 5)), (linalg.hessenberg, (1, 1))],
    "sytrd": [
        (partial(linalg.tridiagonal, lower=True), (2, 5, 5)),
        (partial(linalg.tridiagonal, lower=False), (5, 5)),
    ],
    "gtsv": [
        (tridiagonal, (2, 6, 5)),
        (tridiagonal, (1, 4)),
        (partial(tridiagonal, singular=True), (2, 4, 5)),
    ],
    "perturbed": [
        (partial(tridiagonal, perturb_singular=True), (2, 6, 5)),
        (partial(tridiagonal, perturb_singular=True), (1, 4)),
    ],
    "trsm": [
        (partial(triangular, left_side=True, lower=True), (2, 4, 4), (2, 4, 3)),
        (partial(triangular, left_side=False), (4, 4), (3, 4)),
        (partial(triangular, left_side=True, transpose_a=True), (4, 4), (4, 2)),
        (partial(triangular, transpose_a=True, conjugate_a=True, lower=True), (4, 4), (2, 4)),
        (partial(triangular, left_side=True, unit_diagonal=True), (4, 4), (4, 2)),
        (partial(triangular, left_side=True), (4, 4), (4, 0)),
    ],
}


def renamed(code):
    """Give handlers names that no other test calls, because a plugin keeps what was registered."""
    return code.replace(b"lapack_", b"tested_").replace(b"tridiagonal_solve", b"tridiagonal_tests")


@pytest.fixture(scope="module")
def tested(client):
    """A client with our handlers, while JAX also has the types of 64 bits."""
    for name in NAMES:
        client.plugin.ffi.register(renamed(name.encode()).decode(), lapack.handler(name))
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield client
    jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("kind", CASES)
def test_values_are_those_of_jax(tested, kind, letter):
    random = np.random.default_rng(0)

    def array(shape):
        real, imaginary = random.standard_normal((2, *shape))
        return (real + 1j * imaginary if letter in "cz" else real).astype(TYPES[letter])

    def all_cases(given):
        return [function(*each) for (function, *_), each in zip(CASES[kind], given, strict=True)]

    arrays = [[array(shape) for shape in shapes] for _, *shapes in CASES[kind]]
    allowed = [jax.export.DisabledSafetyCheck.custom_call(name) for name in NAMES]
    export = jax.export.export(jax.jit(all_cases), platforms=["cpu"], disabled_checks=allowed)
    code = renamed(bytes(export(arrays).serialize()))
    with pjrt_hub.load_exported(code, client=tested, isolated=False) as exported:
        found = exported(arrays)
    tolerance = 1e-5 if letter in "sc" else 1e-12
    wanted = jax.tree.map(np.asarray, jax.jit(all_cases)(arrays))
    for number, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            scale = np.abs(other).max(initial=0, where=np.isfinite(other))
            np.testing.assert_allclose(
                one, other, rtol=tolerance, atol=tolerance * scale, err_msg=f"case {number}"
            )


def test_every_name_of_jaxlib_has_a_handler():
    assert len(NAMES) > 40
    assert [name for name in NAMES if lapack.handler(name) is None] == []
