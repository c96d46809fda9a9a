"""The element types of StableHLO, and the values that programs are given of each."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from pjrt_hub.kit.conformance.corpus import CorpusTensor, dtype_of
from pjrt_hub.running.array import dtypes

BOOLEAN = ("i1",)
SIGNED = ("i2", "i4", "i8", "i16", "i32", "i64")
UNSIGNED = ("ui2", "ui4", "ui8", "ui16", "ui32", "ui64")
INTEGERS = SIGNED + UNSIGNED
NARROW = (
    "f4E2M1FN",
    "f6E2M3FN",
    "f6E3M2FN",
    "f8E3M4",
    "f8E4M3",
    "f8E4M3B11FNUZ",
    "f8E4M3FN",
    "f8E4M3FNUZ",
    "f8E5M2",
    "f8E5M2FNUZ",
)
WIDE = ("bf16", "f16", "f32", "f64")
FLOATS = NARROW + WIDE
WITH_INFINITY = (*WIDE, "f8E5M2", "f8E4M3", "f8E3M4")
WITHOUT_NAN = ("f4E2M1FN", "f6E2M3FN", "f6E3M2FN")
SCALE = ("f8E8M0FNU",)  # Powers of two without sign or zero, which are only moved and converted.
COMPLEX = ("complex<f32>", "complex<f64>")
NUMBERS = INTEGERS + FLOATS + COMPLEX
ALL = BOOLEAN + NUMBERS + SCALE

#: The sum of this many ones is exact in every type but those of 2 bits, where it wraps.
FEW = 3


def kind_of(element: str) -> str:
    """The element type in the name of a check, where complex types are called as in XLA."""
    return {"complex<f32>": "c64", "complex<f64>": "c128"}.get(element, element)


def part_of(element: str) -> str:
    """The type of the parts of a complex type."""
    return element.removeprefix("complex<").removesuffix(">")


def bits_of(element: str) -> int:
    """The bits of one element; one for i1."""
    return 1 if element == "i1" else dtypes.of_type(element).bits


def limits(element: str) -> tuple[int, int]:
    """The smallest and the largest value of an integer type."""
    bits = bits_of(element)
    return (0, 2**bits - 1) if element in UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def wrapped(values: Any, element: str) -> np.ndarray[Any, Any]:
    """Python's integers modulo 2**bits, in the range of an integer type."""
    low, high = limits(element)
    size = high - low + 1
    exact = np.asarray(values, dtype=object)
    flat = [(int(value) - low) % size + low for value in exact.reshape(-1)]
    return np.array(flat, np.uint64 if low == 0 else np.int64).reshape(exact.shape)


def samples(element: str) -> list[Any]:
    """Values to try: all of a type of a byte or less, else the edges and some between.

    Integers as int, real numbers as float, complex ones as complex; each is exact in its type. No
    subnormal numbers of the wide types.
    """
    chance = random.Random(f"samples of {element}")
    if element == "i1":
        return [False, True]
    if element in INTEGERS:
        low, high = limits(element)
        if bits_of(element) <= 8:
            return list(range(low, high + 1))
        edges = [0, 1, 2, 3, 5, 7, 10, 100, high, high - 1, high // 3, low, low + 1]
        some = [chance.randint(low, high) >> chance.randrange(bits_of(element)) for _ in range(24)]
        return edges + ([-1, -2, -3, -7] if low else []) + some
    if element in WIDE:
        return [float(value) for value in _wide(element, chance)]
    if element in COMPLEX:
        reals = [chance.uniform(-4, 4) for _ in range(48)]
        parts = np.array(reals, dtype_of(part_of(element))).astype(float)
        pure = [0j, 1 + 0j, -1 + 0j, 1j, -1j, 2 + 1j]
        return pure + [complex(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    every = np.arange(2 ** bits_of(element), dtype=np.uint8).view(dtype_of(element))
    return [float(value) for value in every]


def _wide(element: str, chance: random.Random) -> np.ndarray[Any, Any]:
    info = ml_dtypes.finfo(dtype_of(element))
    least, most, eps = (float(x) for x in (info.smallest_normal, info.max, info.eps))
    edges = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), most, -most, least, -least]
    near = [1.0, -1.0, 1 + eps, 1 - eps / 2, 0.5, -0.5, 1.5, 2.5, -2.5, 2.0, 3.0, 10.0, -0.75]
    spread = [chance.choice((-1, 1)) * 2 ** chance.uniform(-6, 6) for _ in range(36)]
    far = [chance.choice((-1, 1)) * 2 ** chance.uniform(info.minexp / 2, 12) for _ in range(8)]
    return np.array(edges + near + spread + far).astype(dtype_of(element))


def subnormals(element: str) -> list[float]:
    """Some subnormal numbers of a wide type, and a few normal ones beside them."""
    info = ml_dtypes.finfo(dtype_of(element))
    least, smallest = float(info.smallest_normal), float(info.smallest_subnormal)
    return [smallest, -smallest, least / 2, -least / 2, least - smallest, least, 1.0, 2.0, -3.0]


def combinations(
    values: Sequence[Any], count: int, name: str, most: int = 96
) -> list[tuple[Any, ...]]:
    """Every combination of `count` values, or `most` of them where there are more."""
    if len(values) ** count <= 256:
        return list(itertools.product(values, repeat=count))
    chance = random.Random(f"combinations for {name}")
    return [tuple(chance.choice(values) for _ in range(count)) for _ in range(most)]


def pattern(element: str, *shape: int) -> CorpusTensor:
    """A tensor of values that differ as far as the type allows, none of them NaN."""
    values = [value for value in samples(element) if value == value]
    chance = random.Random(f"pattern of {element} {shape}")
    chance.shuffle(values)
    size = int(np.prod(shape, dtype=int))
    cycle = list(itertools.islice(itertools.cycle(values), size))
    return tensor(cycle, element, *shape)


def few(element: str, *shape: int, start: int = 0) -> CorpusTensor:
    """A tensor of -1, 0 and 1, or of 0 and 1: sums and products of `FEW` of them are exact."""
    ones = (1, 0, 1, 1, 0, 1, 0, 0) if element in (*UNSIGNED, "i1") else (1, 0, -1, 1, -1, 0, 0, 1)
    size = int(np.prod(shape, dtype=int))
    cycle = list(itertools.islice(itertools.cycle(ones), start, start + size))
    if element in COMPLEX:
        turned = cycle[1:] + cycle[:1]
        return tensor([complex(a, b) for a, b in zip(cycle, turned, strict=True)], element, *shape)
    return tensor(cycle, element, *shape)


def tensor(values: Any, element: str, *shape: int) -> CorpusTensor:
    """A tensor of values that the type can hold; without a shape it is a vector."""
    if element in INTEGERS:
        array = wrapped(values, element).astype(dtype_of(element))
    else:
        with np.errstate(over="ignore", invalid="ignore"):  # Overflow is infinity; NaN stays NaN.
            array = np.asarray(values).astype(dtype_of(element))
    return CorpusTensor.of(array.reshape(shape) if shape else array, element)


def numbers(given: CorpusTensor) -> np.ndarray[Any, Any]:
    """The elements as Python's numbers, which round less or not at all."""
    if given.element in COMPLEX:
        return given.array.astype(complex).astype(object)
    if given.element in FLOATS + SCALE:
        return given.array.astype(float).astype(object)
    return np.array([int(value) for value in given.array.reshape(-1)], object).reshape(given.shape)
