"""Linear algebra of exported functions against numpy's, with each LAPACK, in fresh processes."""

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from children import in_child

import pjrt_hub
from pjrt_hub.errors import NotFoundError
from pjrt_hub.frameworks.exported import obstacle, specialisation

needs_jaxlib = pytest.mark.skipif(not specialisation.has_jaxlib(), reason="jaxlib is not installed")
ARTIFACTS = Path(__file__).parent / "artifacts"
CHOLESKY = ARTIFACTS / "cpu_cholesky.jaxexport"
#: Packages from which LAPACK is taken; the first one that is installed is used.
PACKAGES = ("jaxlib", "scipy", "scipy_openblas32")


def compare(name, isolated):
    """Compare with numpy, in a batch for symbolic sizes; return the names of what is registered."""
    shape = (2, 3, 3) if name.stem.endswith("symbolic") else (4, 4)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    positive = x @ x.swapaxes(-1, -2) + 4 * np.eye(shape[-1], dtype=np.float32)
    wanted = {
        "cholesky": np.linalg.cholesky(positive),
        "det": np.linalg.det(x),
        "eigenvalues": np.linalg.eigh(positive)[0],
        "inverse": np.linalg.inv(positive),
        "qr": np.abs(np.linalg.qr(x)[1]),
        "singular": np.linalg.svd(x, compute_uv=False),
        "solved": np.linalg.solve(positive, x),
        "spectral_radius": np.abs(np.linalg.eigvals(x)).max(-1),
    }
    client = pjrt_hub.client("cpu", offline=True)
    with pjrt_hub.load_exported(name, client=client, isolated=isolated) as function:
        found = function(x)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-4, err_msg=key)
    return {name for name, _ in client.plugin.ffi.registered}


@needs_jaxlib
@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("name", ["linear_algebra", "linear_algebra_symbolic"])
@in_child
def test_values_are_those_of_numpy(name, isolated):
    functions = ("geev", "geqrf", "gesdd", "getrf", "potrf", "syevd", "trsm")
    wanted = {f"lapack_s{each}_ffi" for each in functions}
    assert wanted <= compare(ARTIFACTS / f"{name}.jaxexport", isolated)


@needs_jaxlib
@in_child
def test_jaxlib_is_imported_for_such_a_call_only():
    client = pjrt_hub.client("cpu", offline=True)
    for name, needed in (("add", False), ("cpu_cholesky", True)):
        pjrt_hub.load_exported(ARTIFACTS / f"{name}.jaxexport", client=client).compile()
        found = [each in sys.modules for each in ("pjrt_hub.running.capi.lapack", "jaxlib", "jax")]
        assert found == [needed, needed, False]


@needs_jaxlib
@in_child
def test_what_is_registered_stays(client):
    """A function that the user registered under this name is the one that is called."""

    def mine(a, out, info, **_):
        out[...], info[...] = 7, 0

    client.plugin.ffi.register("lapack_spotrf_ffi", mine)
    cholesky = pjrt_hub.load_exported(CHOLESKY, client=client, isolated=False)
    assert np.asarray(cholesky(np.eye(4, dtype=np.float32)))[3, 0] == 7


def leave_out(packages):
    sys.modules.update(dict.fromkeys(packages))


@pytest.mark.parametrize("package", [each for each in PACKAGES[1:] if find_spec(each)])
@in_child
def test_without_jaxlib(client, package):
    leave_out(each for each in PACKAGES if each != package)
    cholesky = pjrt_hub.load_exported(CHOLESKY, client=client, isolated=False)
    np.testing.assert_allclose(cholesky(4 * np.eye(4, dtype=np.float32)), 2 * np.eye(4))
    assert [each for each in PACKAGES if sys.modules.get(each)] == [package]


@in_child
def test_without_a_lapack(client):
    leave_out(PACKAGES)
    cholesky = pjrt_hub.load_exported(CHOLESKY, client=client, isolated=False)
    doubt, *_ = obstacle.doubts(cholesky.function, client)
    assert doubt.endswith("pip install 'pjrt-hub[lapack]' brings LAPACK's")
    with pytest.raises(NotFoundError) as caught:
        cholesky.compile()
    assert "No FFI handler registered for lapack_spotrf_ffi" in str(caught.value)
    assert "after `pip install 'pjrt-hub[lapack]'`" in caught.value.hint
