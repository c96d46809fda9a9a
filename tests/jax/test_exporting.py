"""What this release of JAX exports, run by pjrt-hub in a process without JAX: the same values.

Before 0.10, jaxlib cannot turn symbolic dimensions into numbers. tests/exported runs files with
them that older releases wrote, beside a newer jaxlib. JAX 0.4 exports calls of LAPACK that no
plugin has.
"""

from __future__ import annotations

import sys
from pathlib import Path

import finished
import numpy as np
import pytest
from children import command

import pjrt_hub
from pjrt_hub.errors import NotFoundError, NotRunnableError

#: Names of the functions that `export` writes; each returns a dict.
FUNCTIONS = ("plain", "split", "symbolic", "weights", "donated", "linear_algebra")
DEVICES = 2


def export(folder):
    """Write each function, the arguments of one call, and what JAX gives for them."""
    import jax
    import jax.numpy as jnp
    from jax import export
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("rows",))
    rows, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("rows",), ()))
    random = np.random.default_rng(0)
    x = random.standard_normal((4, 4)).astype(np.float32)
    weights = {"layers": [{"w": x, "b": x[0]}, {"w": x.T, "b": x[1]}], "scale": x[0, 0]}
    (size,) = export.symbolic_shape("n")

    def plain(x, y):
        return {"sine": jnp.sin(x) * 2, "product": x @ y, "integers": (x * 10).astype(jnp.int8)}

    def split(x, y):
        return {"product": x @ y, "total": x.sum()}

    def symbolic(x):
        return {"twice": jnp.concatenate([x, x]), "mean": x.sum(0) / x.shape[0]}

    def layered(weights, x):
        for layer in weights["layers"]:
            x = jnp.tanh(x @ layer["w"] + layer["b"])
        return {"x": x * weights["scale"]}

    def donated(x):
        return {"next": x + 1}

    def linear_algebra(x):
        positive = x @ x.T + 4 * jnp.eye(4)
        values, _ = jnp.linalg.eigh(positive)
        return {"lower": jnp.linalg.cholesky(positive), "values": values}

    shardings = {"in_shardings": (rows, whole), "out_shardings": {"product": rows, "total": whole}}
    of_size = jax.ShapeDtypeStruct((size, 4), np.float32)
    calls = (
        (jax.jit(plain), (x, x.T), None),
        (jax.jit(split, **shardings), (x, x.T), None),
        (jax.jit(symbolic), (x[:3],), (of_size,)),
        (jax.jit(layered), (weights, x), None),
        (jax.jit(donated, donate_argnums=0), (x,), None),
        (jax.jit(linear_algebra), (x,), None),
    )
    for name, (function, arguments, types) in zip(FUNCTIONS, calls, strict=True):
        blob = export.export(function, platforms=("cpu",))(*(types or arguments)).serialize()
        Path(folder, f"{name}.jaxexport").write_bytes(blob)
        given = jax.tree_util.tree_leaves(arguments)
        np.savez(Path(folder, f"{name}-given.npz"), *given)
        np.savez(Path(folder, f"{name}-wanted.npz"), **function(*arguments))


def run(folder):
    """Call each function on a client with as many devices as it needs, and compare the results."""
    from jaxlib.version import __version__

    sys.modules["jax"] = None
    refused = {}
    if tuple(map(int, __version__.split(".")[:2])) < (0, 10):
        refused["symbolic"] = (NotRunnableError, "n must become numbers", "a newer jaxlib may")
    if __version__.startswith("0.4."):
        refused["linear_algebra"] = (NotFoundError, "lapack_spotrf", "JAX 0.6.2 and newer")
    plugin = pjrt_hub.load("cpu", offline=True)
    for name in FUNCTIONS:
        path = Path(folder, f"{name}.jaxexport")
        given = list(np.load(Path(folder, f"{name}-given.npz")).values())
        if name == "weights":  # JAX takes a dict apart by its sorted keys
            b0, w0, b1, w1, scale, x = given
            given = [{"layers": [{"w": w0, "b": b0}, {"w": w1, "b": b1}], "scale": scale}, x]
        options = {"cpu_device_count": DEVICES if name == "split" else 1}
        with plugin.client(options) as client, pjrt_hub.load_exported(path, client=client) as call:
            if name in refused:
                error, said, hint = refused[name]
                with pytest.raises(error, match=said) as caught:
                    call(*given)
                assert hint in caught.value.hint
                continue
            found = {key: np.asarray(each) for key, each in call(*given).items()}
            assert call.nr_devices == options["cpu_device_count"], name
        wanted = np.load(Path(folder, f"{name}-wanted.npz"))
        assert set(found) == set(wanted), name
        for key, value in wanted.items():
            assert found[key].dtype == value.dtype, (name, key)
            np.testing.assert_allclose(
                found[key], value, rtol=1e-4, atol=1e-5, err_msg=f"{name} {key}"
            )
    print(*FUNCTIONS)


def test_they_give_what_jax_gives(environment, tmp_path):
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}"}
    for function, env in ((export, {"JAX_PLATFORMS": "cpu", **flags}), (run, {})):
        words = command(function, str(tmp_path), prepared=False)
        done = finished.run(*words, seconds=250, env={**environment, **env})
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == list(FUNCTIONS)
