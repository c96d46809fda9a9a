"""Conversions between element types, of the values that the other type can hold.

What StableHLO leaves open is left out: integers that do not fit, NaN and infinity to types that
have none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import elements
import exact
import ml_dtypes
import numpy as np
from draft import Draft, draft
from elements import COMPLEX, FLOATS, INTEGERS, SCALE, kind_of, tensor
from exact import mp

from pjrt_hub.kit.conformance import numerics
from pjrt_hub.kit.conformance.corpus import CorpusTensor, dtype_of

#: These are converted to each other; all other types, from and to f32 only.
EVERY_PAIR = ("i1", "i8", "i32", "i64", "ui8", "ui32", "f16", "bf16", "f32", "f64", "complex<f32>")


def drafts() -> Iterator[Draft]:
    """Every program of this file."""
    for source in elements.ALL:
        for target in elements.ALL:
            both = {source, target}
            if len(both) == 2 and (both <= set(EVERY_PAIR) or "f32" in both):
                yield _conversion(source, target)
            if source in ("f32", "f64") and target in elements.FLOATS:
                yield from _once_rounded(source, target)


def _conversion(source: str, target: str) -> Draft:
    samples = elements.samples(source)
    if target in SCALE:  # StableHLO does not say how values between powers of two are rounded.
        samples = [2.0**power for power in range(-126, 128, 3)]
    pairs = [(value, result) for value in samples for result in _converted(value, target)]
    values, results = (list(column) for column in zip(*pairs, strict=True))
    given, right = tensor(values, source), tensor(results, target)
    keep = np.ones(len(values), bool)
    for each in (given, right):
        if each.element in elements.WIDE + COMPLEX:
            keep &= ~numerics.is_subnormal(each.array)
    return draft(
        "convert",
        f"{kind_of(source)}_to_{kind_of(target)}",
        [CorpusTensor.of(given.array[keep], source)],
        [CorpusTensor.of(right.array[keep], target)],
        oracle="exact",
        interpreted=source not in SCALE,  # The interpreter turns their NaN into infinity.
    )


def _once_rounded(source: str, target: str) -> Iterator[Draft]:
    """A little more and less than half a step: a step between would make it the half."""
    infos = [ml_dtypes.finfo(dtype_of(each)) for each in (source, target)]
    (fine, step), most = (float(info.eps) for info in infos), float(infos[1].max)
    if fine > step / 64 or most < 2:
        return
    little = 2 * fine
    values = [sign * (1 + step / 2 + off) for off in (-little, 0, little) for sign in (1, -1)]
    right = [exact.rounded(mp.mpf(value), target) for value in values]
    yield draft(
        "convert",
        f"{source}_to_{target}",
        [tensor(values, source)],
        [tensor(right, target)],
        oracle="exact",
        variant="near a half",
    )


def _converted(value: Any, target: str) -> Iterator[Any]:
    """The value as another type has it, or nothing where that is left open."""
    if target in COMPLEX:
        part = elements.part_of(target)
        for real in _converted(value.real, part):
            for imaginary in _converted(value.imag, part):
                yield complex(real, imaginary)
    elif isinstance(value, complex):
        yield from _converted(value.real, target)
    elif target == "i1":
        yield value != 0
    elif target in INTEGERS:
        low, high = elements.limits(target)
        if math.isfinite(value) and low <= math.trunc(value) <= high:
            yield math.trunc(value)
    else:
        yield from _floating(value, target)


def _floating(value: float, target: str) -> Iterator[float]:
    assert target in FLOATS + SCALE
    if math.isnan(value):
        if target not in elements.WITHOUT_NAN:
            yield value
    elif math.isinf(value):
        if target in elements.WITH_INFINITY:
            yield value
    else:
        rounded = exact.rounded(mp.mpf(value), target) if value else float(value)
        largest = float(ml_dtypes.finfo(dtype_of(target)).max)
        if abs(rounded) <= largest or target in elements.WITH_INFINITY:
            yield rounded
