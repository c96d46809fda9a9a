"""Linear algebra of exported functions: jaxlib's LAPACK, beside numpy's, in fresh processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pjrt_hub.frameworks.exported import specialisation

from .conftest import ARTIFACTS

needs_jaxlib = pytest.mark.skipif(not specialisation.has_jaxlib(), reason="jaxlib is not installed")
#: Prints what differs; the matrices are one, or a batch of two for symbolic sizes.
COMPARE = """
import sys
import numpy as np
import pjrt_hub

name, isolated = sys.argv[1:]
shape = (2, 3, 3) if name.endswith("symbolic.jaxexport") else (4, 4)
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
with pjrt_hub.load_exported(name, client=client, isolated=isolated == "True") as function:
    found = function(x)
assert found.keys() == wanted.keys()
for key, value in wanted.items():
    np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-4, err_msg=key)
print(*(name for name, _ in client.plugin.ffi.registered))
"""


@pytest.fixture
def printed(clean_env):
    """Runs code in a process of its own, and gives what it prints."""

    def printed(code, *args):
        command = [sys.executable, "-c", code, *map(str, args)]
        done = subprocess.run(command, env=clean_env, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return printed


@needs_jaxlib
@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("name", ["linear_algebra", "linear_algebra_symbolic"])
def test_values_are_those_of_numpy(printed, path, name, isolated):
    functions = ("geev", "geqrf", "gesdd", "getrf", "potrf", "syevd", "trsm")
    wanted = {f"lapack_s{each}_ffi" for each in functions}
    assert wanted <= set(printed(COMPARE, path(name), isolated).split())


@needs_jaxlib
def test_jaxlib_is_imported_for_such_a_call_only(printed):
    code = """
import sys
import numpy as np
import pjrt_hub
client = pjrt_hub.client("cpu", offline=True)
for name in ("add", "cpu_cholesky"):
    pjrt_hub.load_exported(f"{sys.argv[1]}/{name}.jaxexport", client=client).compile()
    print("jaxlib" in sys.modules, "jax" in sys.modules)
"""
    assert printed(code, ARTIFACTS) == "False False\nTrue False\n"


@needs_jaxlib
def test_what_is_registered_stays(printed):
    """The user's function of this name is the one that is called."""
    code = """
import sys
import numpy as np
import pjrt_hub

def mine(a, out, info, **_):
    out[...], info[...] = 7, 0

client = pjrt_hub.client("cpu", offline=True)
client.plugin.ffi.register("lapack_spotrf_ffi", mine)
cholesky = pjrt_hub.load_exported(sys.argv[1], client=client, isolated=False)
print(np.asarray(cholesky(np.eye(4, dtype=np.float32)))[3, 0])
"""
    assert printed(code, ARTIFACTS / "cpu_cholesky.jaxexport") == "7.0\n"


def test_without_jaxlib(printed, path):
    code = """
import sys
import pjrt_hub
from pjrt_hub.frameworks.exported import lapack
from pjrt_hub.errors import NotFoundError

lapack.handlers = lambda custom_calls, client: {}
client = pjrt_hub.client("cpu", offline=True)
try:
    pjrt_hub.load_exported(sys.argv[1], client=client).compile()
except NotFoundError as exc:
    print(exc)
"""
    said = printed(code, path("cpu_cholesky"))
    assert "No FFI handler registered for lapack_spotrf_ffi" in said
    assert "install jaxlib, from which load_exported takes them" in said
