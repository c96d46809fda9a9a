"""LAPACK on the plugin, by jaxlib's own functions: values and gradients against numpy's."""

from __future__ import annotations

import pytest

#: Values are compared by what they reconstruct, because factors are unique only up to signs.
COMMON = """
jax.config.update("jax_enable_x64", True)
dtype = np.dtype(sys.argv[1])
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

def adjoint(x):
    return np.conj(np.swapaxes(np.asarray(x), -1, -2))

assert is_plugin(jax.devices()[0].client)
general, tall, right = matrix(3, 5, 5), matrix(3, 6, 4), matrix(3, 5, 2)
positive = general @ adjoint(general) + 5 * np.eye(5, dtype=dtype)
"""
#: Name, and a script that checks one function on a batch of three under jit.
FUNCTIONS = {
    "cholesky": """
lower = jax.jit(jnp.linalg.cholesky)(positive)
near(lower, np.linalg.cholesky(positive))
""",
    "eigh": """
values, vectors = jax.jit(jnp.linalg.eigh)(positive)
near(values, np.linalg.eigh(positive)[0])
near(np.asarray(vectors) * np.asarray(values)[:, None] @ adjoint(vectors), positive)
""",
    "svd": """
u, s, v = jax.jit(lambda x: jnp.linalg.svd(x, full_matrices=False))(tall)
near(s, np.linalg.svd(tall)[1])
near(np.asarray(u) * np.asarray(s)[:, None] @ np.asarray(v), tall)
""",
    "qr": """
q, r = jax.jit(jnp.linalg.qr)(tall)
near(np.asarray(q) @ np.asarray(r), tall)
near(adjoint(q) @ np.asarray(q), np.broadcast_to(np.eye(4, dtype=dtype), (3, 4, 4)))
near(np.tril(np.asarray(r), -1), np.zeros((3, 4, 4), dtype))
""",
    "lu": """
p, l, u = jax.jit(jax.vmap(jax.scipy.linalg.lu))(general)
near(np.asarray(p) @ np.asarray(l) @ np.asarray(u), general)
near(jax.jit(jnp.linalg.det)(general), np.linalg.det(general))
""",
    "solve": """
near(jax.jit(jnp.linalg.solve)(general, right), np.linalg.solve(general, right))
near(jax.jit(jnp.linalg.inv)(positive), np.linalg.inv(positive))
triangle = np.tril(positive)
solve = jax.jit(lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True))
near(jax.vmap(solve)(triangle, right), np.linalg.solve(triangle, right))
""",
    "eig": """
values, vectors = jax.jit(jnp.linalg.eig)(general)
wide = general.astype(vectors.dtype)
near(wide @ np.asarray(vectors), np.asarray(vectors) * np.asarray(values)[:, None])
ordered = lambda x: np.sort_complex(np.asarray(x).round(3))
for mine, theirs in zip(jax.jit(jnp.linalg.eigvals)(general), np.linalg.eigvals(general)):
    np.testing.assert_allclose(ordered(mine), ordered(theirs), atol=2e-3)
""",
    "schur": """
t, z = jax.jit(jax.scipy.linalg.schur)(general[0])
near(np.asarray(z) @ np.asarray(t) @ adjoint(z), general[0])
near(adjoint(z) @ np.asarray(z), np.eye(5, dtype=dtype))
near(np.tril(np.asarray(t), -2), np.zeros((5, 5), dtype))
""",
    "hessenberg": """
h, q = jax.jit(lambda x: jax.scipy.linalg.hessenberg(x, calc_q=True))(general[0])
near(np.asarray(q) @ np.asarray(h) @ adjoint(q), general[0])
""",
}
DTYPES = ("float32", "float64", "complex64", "complex128")


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_those_of_numpy(jax, dtype):
    """All functions in one child: each is compiled for its type and run on a batch."""
    script = COMMON + "".join(f"{text}\nprint({name!r})\n" for name, text in FUNCTIONS.items())
    ended = jax(script, dtype)
    assert ended.status == 0, ended.errors
    assert ended.printed.split() == list(FUNCTIONS)
    assert ended.errors == ""


def test_gradients_are_those_of_differences(jax):
    ended = jax(
        COMMON
        + """
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
    f = jax.jit(lambda x: list(scalars(x))[number])
    slope = float((jax.jit(jax.grad(f))(x) * step).sum())
    h = 1e-6
    difference = float(f(x + h * step) - f(x - h * step)) / (2 * h)
    assert abs(slope - difference) < 1e-5 * max(1, abs(slope)), (number, slope, difference)
    print(number)
""",
        "float64",
    )
    assert ended.status == 0, ended.errors
    assert ended.printed.split() == list("012345")


def test_jaxs_own_client_keeps_its_functions(jax):
    ended = jax(
        """
        own = jax.local_devices(backend="cpu")[0]
        x = np.array([[4.0, 2.0], [2.0, 3.0]], np.float32)
        for device in (own, jax.devices()[0], own):
            with jax.default_device(device):
                lower = jnp.linalg.cholesky(x)
                [where] = lower.devices()
                print(lower.tolist()[0], is_plugin(where.client))
        """
    )
    assert ended.status == 0, ended.errors
    assert ended.printed.splitlines() == ["[2.0, 0.0] False", "[2.0, 0.0] True", "[2.0, 0.0] False"]


def test_no_page_is_writable_and_executable(jax):
    """Handlers are reached through compiled entry points: no code is made at run time by them."""
    ended = jax(
        """
        jax.block_until_ready(jnp.linalg.cholesky(jnp.eye(3)))
        with open("/proc/self/maps") as maps:
            print([line for line in maps if "rwx" in line.split()[1]])
        """
    )
    assert (ended.status, ended.printed) == (0, "[]\n"), ended.errors


def test_functions_of_the_user_reach_the_plugin(jax):
    """`jax.ffi.register_ffi_target`, before the client is made and after."""
    ended = jax(
        """
        from jaxlib.lapack import _lapack

        _lapack.initialize()
        handler = _lapack.registrations()["lapack_spotrf_ffi"]
        jax.ffi.register_ffi_target("early", handler, platform="cpu")
        call = lambda name: jax.jit(lambda x: jax.ffi.ffi_call(
            name,
            (jax.ShapeDtypeStruct((2, 2), np.float32), jax.ShapeDtypeStruct((), np.int32)),
            input_layouts=[(0, 1)], output_layouts=[(0, 1), ()],
        )(x, uplo=np.uint8(ord("L"))))(x)
        x = jnp.array([[4.0, 2.0], [2.0, 3.0]])
        print(float(call("early")[0][0, 0]))
        jax.ffi.register_ffi_target("late", handler, platform="cpu")
        print(float(call("late")[0][0, 0]), int(call("late")[1]))
        """
    )
    assert ended.status == 0, ended.errors
    assert ended.printed.splitlines() == ["2.0", "2.0 0"]


CALLBACKS = {
    "pure_callback": "jax.pure_callback(lambda y: y, jax.ShapeDtypeStruct((2,), x.dtype), x)",
    "io_callback": "jax.experimental.io_callback(lambda y: y, x, x)",
    "debug.print": "(jax.debug.print('{x}', x=x), x)[1]",
    "debug.callback": "(jax.debug.callback(print, x), x)[1]",
}


def test_python_functions_are_refused_and_said(jax):
    """Their entry point crashes outside jaxlib's own client; the process goes on."""
    tries = "".join(
        f"""
try:
    jax.block_until_ready(jax.jit(lambda x: {text})(jnp.ones(2)))
except Exception as exc:
    lines = str(exc).splitlines()
    print({name!r}, type(exc).__name__, lines[0])
    print(lines[-1])
"""
        for name, text in CALLBACKS.items()
    )
    ended = jax("import jax.experimental\n" + tries + "\nprint(jnp.add(1, 1))")
    assert ended.status == 0, ended.errors
    *refusals, last = ended.printed.splitlines()
    assert last == "2"
    for name, said, hint in zip(CALLBACKS, refusals[::2], refusals[1::2], strict=True):
        assert said.startswith(f"{name} JaxRuntimeError UNIMPLEMENTED:"), said
        assert "a plugin cannot call Python functions of JAX: pure_callback" in said
        assert hint.startswith("hint: leave them out, or run this function on JAX's own CPU client")
