"""Programs under JAX on the plugin: OpenXLA's three, and groups of functions, each in a child."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from children import NAME, in_child
from clients import is_plugin


@in_child
def test_the_three_programs_of_the_integration_guide():
    names = {"cpu": "CpuDevice(id=3)]", "discrete": "discrete:3]"}
    assert str(jax.devices()).endswith(names[NAME])
    assert (jax.default_backend(), jax.device_count()) == (NAME, 4)
    assert is_plugin(jax.devices()[0].client)
    assert str(jnp.add(1, 1)) == "2"
    assert str(jax.jit(lambda x: x * 2)(1.0)) == "2.0"
    f = jax.pmap(lambda x: x + jax.lax.psum(x, "i"), axis_name="i")
    assert str(f(jnp.arange(jax.device_count()))) == "[6 7 8 9]"


@in_child
def test_numbers_work_as_on_jaxs_own():
    x = np.linspace(0, 1, 8, dtype=np.float32)

    def f(x):
        y = jnp.sort(-x) + jax.lax.erf_inv(x / 4) + jax.nn.gelu(x) + jnp.cumsum(x)
        y += jax.lax.scan(lambda c, a: (c + a, c * a), 0.0, x)[1]
        y += jnp.abs(jnp.fft.fft(x)) + jax.random.normal(jax.random.key(0), x.shape)
        return y + jnp.convolve(x, x, mode="same") + jax.lax.top_k(x, 8)[0]

    both = []
    for platform in ("hubcpu", "cpu"):
        with jax.default_device(jax.devices(platform)[0]):
            both.append([f(x), jax.jit(f)(x), jax.grad(lambda x: f(x).sum())(x)])
    for mine, theirs in zip(*both, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@in_child
def test_sharding_works_as_on_jaxs_own():
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    x = np.arange(16.0, dtype=np.float32).reshape(4, 4)
    total = jax.jit(
        jax.shard_map(lambda x: jax.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P())
    )(x)
    np.testing.assert_array_equal(total, x.sum(0, keepdims=True))
    split = jax.device_put(x, NamedSharding(mesh, P("i")))
    np.testing.assert_array_equal(jax.jit(lambda x: x @ x.T)(split), x @ x.T)
    np.testing.assert_array_equal(jax.device_put(split, jax.devices()[3]), x)


@pytest.mark.cpu("shares memory with the host")
@in_child
def test_memory_works_as_on_jaxs_own():
    x = jnp.arange(8.0)
    np.testing.assert_array_equal(np.from_dlpack(x), np.arange(8.0, dtype=np.float32))
    np.testing.assert_array_equal(jnp.from_dlpack(np.arange(4.0)), np.arange(4.0))
    y = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert (x.is_deleted(), float(y[0])) == (True, 1.0)
    assert jax.devices()[0].memory_stats() is None


@in_child
def test_forms_work_as_on_jaxs_own():
    from jax import export
    from jax.experimental import serialize_executable

    exported = export.export(jax.jit(lambda x: x + 1))(jnp.ones(2))
    again = export.deserialize(exported.serialize())
    np.testing.assert_array_equal(again.call(jnp.ones(2)), [2, 2])
    compiled = jax.jit(lambda x: x * 3).lower(jnp.ones(2)).compile()
    loaded = serialize_executable.deserialize_and_load(
        *serialize_executable.serialize(compiled), execution_devices=jax.devices()[:1]
    )
    np.testing.assert_array_equal(loaded(jnp.ones(2)), [3, 3])


@in_child
def test_costs_are_those_that_the_plugin_counts(counts_costs):
    """JAX gives None if the plugin counts no costs."""
    costs = jax.jit(lambda x: x * 3).lower(jnp.ones(2)).compile().cost_analysis()
    assert costs["flops"] > 0 if counts_costs else costs is None


@in_child
def test_the_profiler_works_as_on_jaxs_own():
    import tempfile

    with tempfile.TemporaryDirectory() as folder, jax.profiler.trace(folder):
        jax.block_until_ready(jax.jit(lambda x: x @ x)(jnp.ones((8, 8))))


def end_while_programs_run():
    f = jax.jit(lambda x: jnp.tanh(x @ x))
    x = jnp.ones((64, 64))
    for _ in range(10):
        x = f(x)
    print("over")
    return x


@pytest.mark.slow
@pytest.mark.night
def test_twenty_ends_are_clean(child):
    """The processes end while work is in flight."""
    for _ in range(20):
        assert child(end_while_programs_run) == "over\n"


@pytest.mark.cpu("sets the layer itself")
def test_what_an_accelerator_has_no_room_for_is_an_exception(python):
    """JAX asks where a result lies before it is there, and an error would end the process."""
    script = """
        import jax, numpy as np
        from jax.errors import JaxRuntimeError

        def told(ask):
            try:
                return ask()
            except JaxRuntimeError as exc:
                return str(exc).split(":")[0]

        a = jax.numpy.arange(8, dtype=np.float32)
        large = jax.jit(lambda a: jax.numpy.broadcast_to(a, (65536, 8)) * 2)(a)
        print(large.shape, large.dtype, large.sharding.memory_kind, large.is_deleted())
        print(large.format.layout.major_to_minor, *large.devices())
        later = jax.jit(lambda a: a[0])(large)
        for each in (large, later):
            print(told(each.block_until_ready), told(lambda: np.asarray(each)))
        twice = jax.jit(lambda a, b: a + b, donate_argnums=0)
        print(told(lambda: twice(a, a).block_until_ready()))
        print(told(lambda: jax.jit(lambda a: a + 1)(a).tolist()))
    """
    settings = "capacity=1MiB,platform=tpu"
    # The layer `pad` is there because this JAX may be older than the plugin.
    layer = {"PJRT_HUB_LAYERS": "discrete,pad", "PJRT_HUB_DISCRETE": settings}
    done = python(script, PJRT_HUB_JAX="cpu", **layer)
    assert done.status == 0, done.errors
    assert done.printed.splitlines() == [
        "(65536, 8) float32 device False",
        "(0, 1) tpu:0",
        *["RESOURCE_EXHAUSTED RESOURCE_EXHAUSTED"] * 2,
        "INVALID_ARGUMENT",
        str([float(each + 1) for each in range(8)]),
    ]
