"""Trains a network of three layers to tell two spirals apart, with minijit.

pip install 'pjrt-hub[cpu]'
python examples/minijit/mlp.py
"""

import argparse
import itertools

import numpy as np
from minijit import exp, jit, log, maximum, tanh, value_and_grad

SIZES = (2, 32, 32, 1)


def spirals(rng, count):
    """Give points f32[count, 2], and to which of the spirals each belongs, f32[count]."""
    which = np.arange(count) % 2
    turn = np.sqrt(rng.uniform(0.02, 1, count)) * 2.5 * np.pi
    angle = turn + which * np.pi
    points = turn[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) / 8
    return (points + rng.normal(0, 0.02, points.shape)).astype(np.float32), which.astype(np.float32)


def initial(rng):
    """Give the weights and biases of each layer."""
    return [
        {
            "weights": rng.normal(0, n**-0.5, (n, m)).astype(np.float32),
            "bias": np.zeros(m, np.float32),
        }
        for n, m in itertools.pairwise(SIZES)
    ]


def network(layers, x):
    """Compute a number for each point; above zero it is the second spiral."""
    *hidden, last = layers
    for layer in hidden:
        x = tanh(x @ layer["weights"] + layer["bias"])
    return (x @ last["weights"] + last["bias"]).reshape(-1)


def loss(layers, x, y):
    """The cross entropy, written so that exp never overflows."""
    out = network(layers, x)
    return (maximum(out, 0) - out * y + log(1 + exp(-abs(out)))).mean()


@jit
def step(layers, velocity, x, y, *, rate):
    """One step of gradient descent with momentum."""
    value, slopes = value_and_grad(loss)(layers, x, y)
    for layer, speed, slope in zip(layers, velocity, slopes, strict=True):
        for name in layer:
            speed[name] = 0.9 * speed[name] - rate * slope[name]
            layer[name] = layer[name] + speed[name]
    return value, layers, velocity


@jit
def accuracy(layers, x, y):
    """The part of the points that are told rightly."""
    return ((network(layers, x) > 0) == (y > 0.5)).astype("float32").mean()


def main():
    """Trains, and prints how it goes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    points, which = spirals(rng, 400)
    unseen = spirals(rng, 400)
    layers = initial(rng)
    velocity = [{name: np.zeros_like(array) for name, array in layer.items()} for layer in layers]
    for number in range(options.steps):
        value, layers, velocity = step(layers, velocity, points, which, rate=0.1)
        if number % 200 == 0:
            print(f"step {number:4}  loss {value.item():.4f}")
    print(f"loss {value.item():.4f}, right in {accuracy(layers, *unseen).item():.1%} of new points")
    print(f"{step.cache_info().misses} compilation, {step.cache_info().hits} hits of the cache")


if __name__ == "__main__":
    main()
