"""JAX on a plugin that lacks something: what every user does, and what must come of it."""

from __future__ import annotations

import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import walk

A = np.arange(6, dtype=np.float32).reshape(2, 3)
PRODUCT = (A @ A.T).tolist()


def devices(at: Any) -> None:
    at.devices = jax.devices()
    assert [device.id for device in at.devices] == list(range(len(at.devices)))
    assert all("id=" in repr(device) for device in at.devices)


def put(at: Any) -> None:
    at.a = jax.device_put(A)
    assert at.a.shape == (2, 3)


def get(at: Any) -> None:
    assert np.asarray(at.a).tolist() == A.tolist()


def jit(at: Any) -> None:
    at.product = jax.jit(lambda a: a @ a.T)(A)


def result(at: Any) -> None:
    assert np.asarray(at.product.block_until_ready()).tolist() == PRODUCT


def operations(at: Any) -> None:
    total = jnp.sum(jnp.arange(4.0) * 2) + 1
    assert float(total) == 13
    assert jnp.ones((2, 2))[1].tolist() == [1, 1]


def gradient(at: Any) -> None:
    found = jax.grad(lambda w: jnp.sum(w**2))(jnp.float32(3))
    assert float(found) == 6


def random(at: Any) -> None:
    assert jax.random.uniform(jax.random.PRNGKey(0), (3,)).shape == (3,)


def show(at: Any) -> None:
    x = jnp.arange(3.0)
    assert str(x) == "[0. 1. 2.]"
    assert "Array" in repr(x)
    assert len(x.addressable_shards) == 1
    assert "Sharding" in repr(x.sharding)


def donate(at: Any) -> None:
    x = jnp.arange(4.0)
    y = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert np.asarray(y).tolist() == [1, 2, 3, 4]


def delete(at: Any) -> None:
    x = jnp.arange(4.0)
    x.delete()
    assert x.is_deleted()


def copy(at: Any) -> None:
    there = jax.device_put(jnp.arange(4.0), at.devices[1])
    assert np.asarray(there).tolist() == [0, 1, 2, 3]
    assert there.devices() == {at.devices[1]}


def split(at: Any) -> None:
    mesh = jax.sharding.Mesh(np.array(at.devices[:2]), ("x",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    x = jax.device_put(np.arange(4, dtype=np.float32), sharding)
    assert float(jax.jit(lambda x: (x * 2).sum())(x)) == 12


def analyse(at: Any) -> None:
    compiled = jax.jit(lambda a: a @ a.T).lower(A).compile()
    assert "dot" in compiled.as_text()
    assert compiled.cost_analysis() is not None
    compiled.memory_analysis()


def memory_stats(at: Any) -> None:
    at.devices[0].memory_stats()  # This returns None if the plugin has no statistics.


def memories(at: Any) -> None:
    assert at.devices[0].default_memory().kind


def cache(at: Any) -> None:
    """The cache of compiled programs, which a second function of the same text is read from."""
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        for _ in range(2):
            assert np.asarray(jax.jit(lambda a: a * 3)(A)).tolist() == (A * 3).tolist()
        jax.config.update("jax_compilation_cache_dir", None)


STEPS: walk.Steps = {
    devices: (),
    put: ("devices",),
    get: ("put",),
    jit: ("devices",),
    result: ("jit",),
    operations: ("devices",),
    gradient: ("devices",),
    random: ("devices",),
    show: ("devices",),
    donate: ("devices",),
    delete: ("devices",),
    copy: ("devices",),
    split: ("devices",),
    analyse: ("devices",),
    memory_stats: ("devices",),
    memories: ("devices",),
    cache: ("devices",),
}
#: The functions that JAX calls only of plugins with a trait, according to JAX's source.
ASKED_OF = {
    "on_cpu": [
        "PJRT_Buffer_IncreaseExternalReferenceCount",
        "PJRT_Buffer_DecreaseExternalReferenceCount",
        "PJRT_Buffer_OpaqueDeviceMemoryDataPointer",
    ],
    "ffi": ["PJRT_ExecuteContext_Create", "PJRT_ExecuteContext_Destroy"],
    "compile_cache": ["PJRT_TopologyDescription_Serialize"],
}

if __name__ == "__main__":
    walk.main(jax.__version__, STEPS, ASKED_OF)
