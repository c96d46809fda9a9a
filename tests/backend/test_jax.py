"""JAX on the StableHLO reference plugin: what OpenXLA's integration guide asks, and more."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from children import in_child
from jax._src import xla_bridge
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pjrt_hub.kit import authoring
from pjrt_hub.kit.authoring.reference import Reference
from pjrt_hub.running.program.compile_options import CompileOptions


def register(asynchronous=False):
    """Make the reference plugin JAX's default, with four devices."""
    backend = Reference()
    backend.asynchronous = asynchronous
    capsule = authoring.capsule(backend)
    options = {"devices": 4}
    xla_bridge.register_plugin("stablehlo", priority=500, c_api=capsule, options=options)


@in_child
def test_the_three_programs_of_the_integration_guide():
    register()
    names = [str(each) for each in jax.devices()]
    assert names == ["stablehlo:0", "stablehlo:1", "stablehlo:2", "stablehlo:3"]
    assert str(jnp.add(1, 1)) == "2"
    assert str(jax.jit(lambda x: x * 2)(1.0)) == "2.0"
    sums = jax.pmap(lambda x: x + jax.lax.psum(x, "i"), axis_name="i")(np.arange(4))
    assert str(sums) == "[6 7 8 9]"


@in_child(JAX_PLATFORMS="stablehlo,cpu")
def test_functions_gradients_and_random_numbers_are_those_of_the_cpu():
    register()

    def f(x):
        y = jnp.power(x, 2) + jnp.sort(x)[::-1] + jax.lax.erf_inv(x / 4) + jax.nn.gelu(x)
        y += jax.lax.scan(lambda c, a: (c + a, c * a), 0.0, x)[1]
        return y + jax.random.normal(jax.random.key(0), x.shape) + jnp.cumsum(x)

    x = np.linspace(0, 1, 5, dtype=np.float32)
    both = []
    for platform in ("stablehlo", "cpu"):
        with jax.default_device(jax.devices(platform)[0]):
            both.append([f(x), jax.jit(f)(x), jax.grad(lambda x: f(x).sum())(x)])
    for mine, theirs in zip(*both, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-6, atol=1e-6)


@in_child(JAX_PLATFORMS="stablehlo,cpu")
def test_a_network_learns_as_on_the_cpu():
    register()

    def loss(weights, x, y):
        hidden = jnp.tanh(x @ weights["in"] + weights["bias"])
        return jnp.mean((hidden @ weights["out"] - y) ** 2)

    @jax.jit
    def step(weights, x, y):
        value, slopes = jax.value_and_grad(loss)(weights, x, y)
        return value, jax.tree.map(lambda w, s: w - 0.2 * s, weights, slopes)

    def losses(platform):
        with jax.default_device(jax.devices(platform)[0]):
            first, second = jax.random.split(jax.random.key(0))
            weights = {
                "in": jax.random.normal(first, (3, 8)),
                "bias": jnp.zeros(8),
                "out": jax.random.normal(second, (8,)) / 4,
            }
            x = jax.random.normal(jax.random.key(1), (16, 3))
            values = []
            for _ in range(10):
                value, weights = step(weights, x, x.sum(1))
                values.append(float(value))
            return values

    mine, theirs = losses("stablehlo"), losses("cpu")
    assert mine[-1] < mine[0] / 2, mine
    np.testing.assert_allclose(mine, theirs, rtol=1e-5)


@in_child
def test_what_is_split_by_hand_runs_on_all_devices():
    register()
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    def f(part):
        total = jax.lax.psum(part, ("x", "y"))
        turned = jax.lax.ppermute(part, "x", [(0, 1), (1, 0)])
        return total + turned + jax.lax.axis_index("y") + jax.lax.all_gather(part, "y").sum()

    x = np.arange(16, dtype=np.int32).reshape(4, 4)
    quarters = x.reshape(2, 2, 2, 2).transpose(0, 2, 1, 3)
    want = np.empty((2, 2, 2, 2), np.int32)
    for i in range(2):
        for j in range(2):
            total = quarters.sum((0, 1)) + quarters[1 - i, j] + j
            want[i, j] = total + quarters[i].sum()
    np.testing.assert_array_equal(f(x), want.transpose(0, 2, 1, 3).reshape(4, 4))


@in_child
def test_what_the_compiler_would_have_to_split_is_refused():
    register()
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jax.device_put(np.arange(4), NamedSharding(mesh, P("x")))
    said = "^UNIMPLEMENTED: several devices run programs that are split by hand.*"
    with pytest.raises(Exception, match=f"{said}stablehlo.reverse is left to the compiler"):
        jax.jit(lambda x: x[::-1])(x)


@in_child
def test_what_the_interpreter_lacks_is_said_and_leaves_it_usable():
    register()
    said = "^UNIMPLEMENTED: the reference plugin has no stablehlo.fft\n"
    with pytest.raises(Exception, match=said):
        jnp.fft.fft(jnp.ones(4))
    assert jnp.add(1, 1) == 2


def end_while_programs_run(way):
    register(way == "asynchronous")
    f = jax.jit(lambda x: jnp.tanh(x @ x))
    x = jnp.ones((32, 32))
    for _ in range(5):
        x = f(x)
    print("over")
    return x


@pytest.mark.parametrize("way", ["at once", "asynchronous"])
def test_the_end_is_clean_while_programs_run(child, way):
    for _ in range(5):
        printed = child(end_while_programs_run, way)
        assert printed == "over\n"


@in_child
def test_an_array_keeps_its_values_beside_its_changed_copy():
    register()
    changed, kept = jax.jit(lambda x, i, v: (x.at[i].add(v), x))(jnp.arange(3), 1, 5)
    image, kernel = jnp.full((1, 2, 2, 1), 10, jnp.int8), jnp.full((2, 2, 1, 1), 15, jnp.int8)
    sums = jax.lax.conv_general_dilated(
        image,
        kernel,
        (1, 1),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        preferred_element_type=jnp.int32,
    )
    assert (changed.tolist(), kept.tolist(), sums.item()) == ([0, 6, 2], [0, 1, 2], 600)


class Listening(Reference):
    """Hears JAX, which donates on platforms that it knows to reuse memory."""

    platform_name = "neuron"
    options_heard, kept_heard = [], []

    def compile(self, program):
        self.options_heard.append(CompileOptions.parse(program.options))
        executable = super().compile(program)
        execute = executable.execute

        def listen(arguments, *, non_donatable):
            self.kept_heard.append((executable.signature.donated, non_donatable))
            return execute(arguments)

        executable.execute = listen
        return executable


@in_child(JAX_PLATFORMS="neuron")
def test_a_backend_hears_what_jax_says():
    """Its compile options, whatever this release sends, and what it gives up in a call."""
    listening = Listening()
    xla_bridge.register_plugin("neuron", priority=600, c_api=authoring.capsule(listening))
    given, kept = jnp.ones(3), jnp.ones(3)
    jax.jit(lambda a, b: (a + b, a * b), donate_argnums=0)(given, kept)[0].block_until_ready()
    options = listening.options_heard[-1]
    assert options.allow_spmd_sharding_propagation_to_parameters == (True, True)
    assert (options.num_replicas, options.profile_version) == (1, -1)
    assert listening.kept_heard[-1] == ((0,), ())
    assert (given.is_deleted(), kept.is_deleted()) == (True, False)
