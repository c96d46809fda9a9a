"""Programs of any number of arguments and results, as StableHLO and as the same in JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

TYPE = "tensor<8xf32>"


def sums(count: int) -> str:
    """Result i is argument i + argument i+1, the last + the first; all f32[8]."""
    lines = [f"%{i} = stablehlo.add %a{i}, %a{(i + 1) % count} : {TYPE}" for i in range(count)]
    return _main(count, lines, [f"%{i}" for i in range(count)])


def total(count: int) -> str:
    """One result, the sum of all arguments; all f32[8]."""
    terms = ["%a0", *(f"%{i}" for i in range(1, count))]
    lines = [f"%{i} = stablehlo.add {terms[i - 1]}, %a{i} : {TYPE}" for i in range(1, count)]
    return _main(count, lines, terms[-1:])


def fan(count: int) -> str:
    """Result i is the one argument + i; all f32[8]."""
    lines = [f"%c{i} = stablehlo.constant dense<{i}.0> : {TYPE}" for i in range(count)]
    lines += [f"%{i} = stablehlo.add %a0, %c{i} : {TYPE}" for i in range(count)]
    return _main(1, lines, [f"%{i}" for i in range(count)])


def sums_in_jax(*arguments: Any) -> object:
    """What `sums` computes."""
    following = arguments[1:] + arguments[:1]
    return tuple(a + b for a, b in zip(arguments, following, strict=True))


def total_in_jax(*arguments: Any) -> object:
    """What `total` computes."""
    return sum(arguments[1:], start=arguments[0])


def fan_in_jax(count: int) -> Callable[..., object]:
    """What `fan` computes."""
    return lambda a: tuple(a + float(i) for i in range(count))


def tanh_in_jax() -> Callable[..., object]:
    """What tests/programs/tanh_mul_add.mlir computes; JAX is imported here."""
    import jax.numpy as jnp

    return lambda a, b: jnp.tanh(a * b + 1.0)


def _main(count: int, lines: Sequence[str], results: Sequence[str]) -> str:
    arguments = ", ".join(f"%a{i}: {TYPE}" for i in range(count))
    types = ", ".join(TYPE for _ in results)
    body = "\n".join(f"  {line}" for line in lines)
    returned = f"return {', '.join(results)} : {types}"
    return f"func.func @main({arguments}) -> ({types}) {{\n{body}\n  {returned}\n}}\n"
