"""Functions of numbers to 400 bits, rounded once: right results, whatever the type."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import elements
import ml_dtypes
import mpmath
import numpy as np

from pjrt_hub.kit.conformance.corpus import CorpusTensor, dtype_of

mpmath.mp.prec = 400
mp = mpmath.mp
Exact = Callable[..., Any]


def rounded(value: Any, element: str) -> float:
    """The number of a floating-point type that is nearest to an mpf, ties to even.

    Beyond the largest number it is the next one that the format would have.
    """
    info = ml_dtypes.finfo(dtype_of(element))
    return to_precision(value, int(info.nmant), int(info.minexp))


def to_precision(value: Any, mantissa: int, least_exponent: int) -> float:
    """The nearest number of a format without a largest exponent, ties to even."""
    if not value or not mp.isfinite(value):
        return float(value)
    exponent = max(mp.frexp(value)[1] - 1, least_exponent)
    unit = mp.mpf(2) ** (exponent - mantissa)
    nearest = float(mp.nint(value / unit) * unit)
    return math.copysign(nearest, -1.0 if value < 0 else 1.0)


def real(function: Exact, edges: Exact, columns: Sequence[Sequence[float]], element: str) -> Any:
    """A function of real numbers for each row.

    Args:
        function: of mpf, for finite numbers that are not zero.
        edges: the same for infinity, NaN and zero, by numpy in f64; also where `function` raises.
        columns: the arguments.
        element: the type that the results are rounded to.

    Returns:
        f64, not limited to the range of the type.
    """
    results = []
    for row in zip(*columns, strict=True):
        result = None
        if all(math.isfinite(value) and value for value in row):
            result = _exactly(function, row)
        with np.errstate(all="ignore"):
            special = float(edges(*(np.float64(value) for value in row)))
        if result is None or math.isnan(special):
            results.append(special)
        else:
            results.append(rounded(result, element) if result else math.copysign(0.0, special))
    return np.array(results)


def _exactly(function: Exact, row: Sequence[float]) -> Any:
    try:
        return function(*(mp.mpf(value) for value in row))
    except (ZeroDivisionError, ValueError):
        return None


def complex_(function: Exact, columns: Sequence[Sequence[complex]], element: str) -> Any:
    """A function of finite complex numbers for each row; NaN where it has a pole.

    Args:
        function: of mpc.
        columns: the arguments.
        element: the type of the results: a complex one, or the parts' where they are real.
    """
    part = elements.part_of(element)
    results = []
    for row in zip(*columns, strict=True):
        try:
            value = function(*(mp.mpc(number) for number in row))
        except (ZeroDivisionError, ValueError):
            results.append(complex("nan"))
            continue
        results.append(complex(rounded(value.real, part), rounded(value.imag, part)))
    values = np.array(results)
    return (values if element in elements.COMPLEX else values.real).astype(dtype_of(element))


def integer(function: Callable[..., int], columns: Sequence[Sequence[int]], element: str) -> Any:
    """A function of Python's integers for each row, modulo 2**bits."""
    values = [function(*(int(value) for value in row)) for row in zip(*columns, strict=True)]
    return elements.wrapped(values, element)


def usable(columns: Sequence[CorpusTensor], values: Any, element: str) -> np.ndarray[Any, Any]:
    """Which rows say something: StableHLO leaves open what a type without infinity or NaN gives.

    Args:
        columns: the arguments.
        values: the results before their type limits them.
        element: the type.
    """
    if element in elements.COMPLEX or any(each.element in elements.COMPLEX for each in columns):
        return np.isfinite(values)
    everything = np.ones(values.shape, bool)
    if element not in elements.FLOATS or element in elements.WITH_INFINITY:
        return everything
    info = ml_dtypes.finfo(dtype_of(element))
    too_large = np.abs(values) > float(info.max)
    if element in elements.WITHOUT_NAN:
        return ~(too_large | np.isnan(values))
    for column in columns:
        too_large &= np.isfinite(column.array.astype(float))
    return ~too_large
