"""Derivatives in reverse: from one number back to what it was made of, by each value's rule."""

from functools import wraps

import numpy as np

from minijit.operations import broadcast_to
from minijit.stablehlo import ordered
from minijit.tensor import Tensor, constant, kind
from minijit.trees import flatten, unflatten


def value_and_grad(function):
    """Give what a function gives, one float, and its slope for each leaf of its first argument."""
    name = getattr(function, "__name__", "a function")

    @wraps(function)
    def both(at, *others, **static):
        leaves = []
        structure = flatten(at, leaves)
        if not all(isinstance(leaf, Tensor) and kind(leaf) == "f" for leaf in leaves):
            what = f"grad of {name} at {leaves}"
            raise TypeError(f"{what}: it needs traced floats, so call it within a @jit")
        # The leaves become new values, so that other uses of the same leaf do not count.
        leaves = [leaf.reshape(leaf.shape) for leaf in leaves]
        value = function(unflatten(structure, iter(leaves)), *others, **static)
        if not isinstance(value, Tensor) or value.shape or kind(value) != "f":
            raise TypeError(f"grad of {name}: it gave {value}, and not one float")
        slopes = {value.number: constant(np.ones((), value.dtype))}
        ends = {leaf.number for leaf in leaves}
        for each in reversed(ordered([value])):
            if each.number in slopes and each.number not in ends and each.rule:
                parts = each.rule(slopes[each.number], each, *each.inputs)
                for one, part in zip(each.inputs, parts, strict=True):
                    if part is not None:
                        so_far = slopes.get(one.number)
                        slopes[one.number] = part if so_far is None else so_far + part
        nothing = (broadcast_to(np.zeros((), leaf.dtype), leaf.shape) for leaf in leaves)
        found = (slopes.get(leaf.number, zero) for leaf, zero in zip(leaves, nothing, strict=True))
        return value, unflatten(structure, found)

    return both


def grad(function):
    """Give the slope alone; of a function that is itself a gradient, the second derivative."""
    both = value_and_grad(function)
    return wraps(function)(lambda *arguments, **static: both(*arguments, **static)[1])
