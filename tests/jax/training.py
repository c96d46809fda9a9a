"""Trains a small network with JAX on one backend and prints what came of it, as JSON.

python tests/jax/training.py cpu | pjrt_hub
"""

import json
import sys
from functools import partial

from clients import is_plugin

BACKEND = "hubcpu"
STEPS, SAMPLES, WIDTH = 300, 512, 64
LEARNING_RATE, DECAYS, EPSILON = 0.01, (0.9, 0.999), 1e-8


def main():
    """Trains on the backend that the command line names."""
    if sys.argv[1] == "pjrt_hub":
        import pjrt_hub.jax

        pjrt_hub.jax.register("cpu", name=BACKEND)
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_platforms", BACKEND if sys.argv[1] == "pjrt_hub" else "cpu")

    def data(key):
        """Point of a plane, and the waves that the network is to learn: f32[n, 2], f32[n]."""
        x = jax.random.uniform(key, (SAMPLES, 2), minval=-1, maxval=1)
        return x, jnp.sin(3 * x[:, 0]) * jnp.cos(2 * x[:, 1])

    def network(key):
        sizes = [2, WIDTH, WIDTH, 1]
        keys = jax.random.split(key, len(sizes) - 1)
        return [
            {"w": jax.random.normal(k, (i, o)) / jnp.sqrt(i), "b": jnp.zeros(o)}
            for k, i, o in zip(keys, sizes, sizes[1:], strict=False)
        ]

    def predict(layers, x):
        for layer in layers[:-1]:
            x = jnp.tanh(x @ layer["w"] + layer["b"])
        return (x @ layers[-1]["w"] + layers[-1]["b"])[:, 0]

    def loss(layers, x, y):
        return jnp.mean(jnp.square(predict(layers, x) - y))

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(layers, moments, count, x, y):
        """One step of Adam over all samples."""
        value, gradient = jax.value_and_grad(loss)(layers, x, y)
        first, second = DECAYS
        moments = jax.tree.map(
            lambda m, g: (first * m[0] + (1 - first) * g, second * m[1] + (1 - second) * g * g),
            moments,
            gradient,
            is_leaf=lambda m: isinstance(m, tuple),
        )
        rate = LEARNING_RATE * jnp.sqrt(1 - second**count) / (1 - first**count)
        layers = jax.tree.map(
            lambda p, m: p - rate * m[0] / (jnp.sqrt(m[1]) + EPSILON), layers, moments
        )
        return layers, moments, value

    seed, held_out = jax.random.split(jax.random.key(7))
    x, y = data(seed)
    layers = network(seed)
    moments = jax.tree.map(lambda p: (jnp.zeros_like(p), jnp.zeros_like(p)), layers)
    losses = []
    for count in range(1, STEPS + 1):
        layers, moments, value = step(layers, moments, jnp.float32(count), x, y)
        losses.append(float(value))
    [device] = value.devices()
    json.dump(
        {
            "losses": losses,
            "held out": float(loss(layers, *data(held_out))),
            "on a plugin": is_plugin(device.client),
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
