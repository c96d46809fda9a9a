"""Trains a small network for fifty steps and prints each loss to the last bit."""

import jax
import jax.numpy as jnp
import numpy as np


def loss(weights, x, y):
    hidden, out = weights
    return jnp.mean((jnp.tanh(x @ hidden) @ out - y) ** 2)


@jax.jit
def step(weights, x, y):
    value, gradients = jax.value_and_grad(loss)(weights, x, y)
    return [w - 0.01 * g for w, g in zip(weights, gradients, strict=True)], value


random = np.random.default_rng(0)
weights = [jnp.asarray(random.normal(size=size), jnp.float32) for size in [(8, 32), (32, 1)]]
x = jnp.asarray(random.normal(size=(64, 8)), jnp.float32)
y = jnp.sin(x.sum(1, keepdims=True))
for _ in range(50):
    weights, value = step(weights, x, y)
    print(float(value).hex())
