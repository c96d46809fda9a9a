"""PyTorch through pjrt-hub: training steps against torch's CPU, programs against JAX's.

It needs `pip install 'pjrt-hub[torch,cpu]' jax==0.11.2`, whose XLA is as old as the plugin's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

import jax
import rounds
import torch
from jax import numpy as jnp

import pjrt_hub.jax
import pjrt_hub.torch

ROUNDS, CALLS = 25, 20
SIZES, ROWS = (784, 512, 512, 10), 128


def main() -> None:
    """Print the medians of what takes turns in this process."""
    device = pjrt_hub.torch.register("cpu")
    pjrt_hub.jax.register("cpu", name="ours")
    jax.config.update("jax_platforms", "ours")
    steps = {place: step(place) for place in ("cpu", device)}
    show("a training step of an MLP, eager", "torch's CPU", *timed(steps))
    jit = {"jit": compiled_by_jax(False), "compile": compiled_by_torch(device, False)}
    show("an MLP, compiled", "jax.jit", *timed(jit))
    jit = {"jit": compiled_by_jax(True), "compile": compiled_by_torch(device, True)}
    show("its loss and gradients, compiled", "jax.jit", *timed(jit))


def show(what: str, beside: str, theirs: float, ours: float) -> None:
    """Print one row."""
    print(f"{what}: {ours * 1e3:.2f} ms, {ours / theirs:.2f} of {beside}")


def timed(calls: dict[str, Callable[[], float]]) -> list[float]:
    """The medians of some calls, of which each gives its own seconds."""
    return [median(each) for each in rounds.interleave(calls, ROUNDS).values()]


def repeat(call: Callable[[], Any], read: Callable[[Any], Any]) -> float:
    """Give the seconds of a call, of many of which the last one's result is awaited."""
    start = perf_counter()
    for _ in range(CALLS):
        result = call()
    read(result)
    return (perf_counter() - start) / CALLS


def step(place: str) -> Callable[[], float]:
    """A step of SGD in eager mode."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(*each) for each in pairwise(SIZES)]
    model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
    model = model.to(place)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    x, y = torch.randn(ROWS, SIZES[0]).to(place), torch.arange(ROWS).to(place) % SIZES[-1]

    def train() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return partial(repeat, train, torch.Tensor.item)


def compiled_by_torch(device: str, has_gradients: bool) -> Callable[[], float]:
    """A program of torch.compile."""
    weights = [
        (torch.randn(out, size).mul(0.05).to(device), torch.zeros(out, device=device))
        for size, out in pairwise(SIZES)
    ]
    x, y = torch.randn(ROWS, SIZES[0]).to(device), torch.arange(ROWS).to(device) % SIZES[-1]

    def mlp(weights: Any) -> torch.Tensor:
        (a, b), (c, d), (e, f) = weights
        return ((x @ a.T + b).relu() @ c.T + d).relu() @ e.T + f

    def loss(weights: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(mlp(weights), y)

    function = torch.func.grad_and_value(loss) if has_gradients else mlp
    call = torch.compile(function)
    return partial(repeat, partial(call, weights), partial(jax.tree.map, torch.Tensor.cpu))


def compiled_by_jax(has_gradients: bool) -> Callable[[], float]:
    """The same program of `jax.jit`."""
    key = jax.random.PRNGKey(0)
    weights = [
        (jax.random.normal(key, (out, size)) * 0.05, jnp.zeros(out))
        for size, out in pairwise(SIZES)
    ]
    x, y = jax.random.normal(key, (ROWS, SIZES[0])), jnp.arange(ROWS) % SIZES[-1]

    def mlp(weights: Any) -> jax.Array:
        (a, b), (c, d), (e, f) = weights
        hidden = jax.nn.relu(jax.nn.relu(x @ a.T + b) @ c.T + d)
        return hidden @ e.T + f

    def loss(weights: Any) -> jax.Array:
        return -jax.nn.log_softmax(mlp(weights))[jnp.arange(ROWS), y].mean()

    call = jax.jit(jax.value_and_grad(loss) if has_gradients else mlp)
    return partial(repeat, partial(call, weights), partial(jax.tree.map, jax.device_get))


if __name__ == "__main__":
    main()
