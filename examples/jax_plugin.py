"""JAX on a plugin that pjrt-hub finds, checks and, where it is missing, fetches.

pip install 'pjrt-hub[cpu]' 'jax>=0.10'
python examples/jax_plugin.py
"""

import pjrt_hub.jax

# This registers the plugin, and loads nothing yet.
NAME = pjrt_hub.jax.register("cpu", name="hub", options={"cpu_device_count": 4})

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402


def main():
    """Solves a least squares problem, and sums over four devices."""
    print("devices", jax.devices(NAME))

    x = jnp.linspace(-1, 1, 64)
    y = 2 * x - 0.5

    @jax.jit
    def step(weights):
        def loss(weights):
            return jnp.mean((weights[0] * x + weights[1] - y) ** 2)

        return weights - 0.5 * jax.grad(loss)(weights)

    weights = jnp.zeros(2)
    for _ in range(100):
        weights = step(weights)
    print("weights", weights.round(3).tolist(), "on", next(iter(weights.devices())).platform)

    mesh = jax.make_mesh((4,), ("data",), devices=jax.devices(NAME))
    rows = jax.NamedSharding(mesh, jax.P("data"))
    total = jax.jit(jnp.sum)(jax.device_put(jnp.arange(100.0), rows))
    print("the sum of four shards", total.item())


if __name__ == "__main__":
    main()
