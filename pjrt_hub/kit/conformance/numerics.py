"""How far a result may be from the right one: distances in ULP, and tolerances by op.

Owns the tolerances and the reason for each; none follows from what some plugin does.
Must not run anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

#: A number that is further off is wrong in every digit, so larger distances are cut to this.
FAR = 2**62


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far each element may be from the right value.

    With `of_largest`, the unit is that of the largest right element instead of each element's own:
    for ops in which every output depends on every input.
    """

    ulps: int = 0  # Units in the last place (ULP) of the element type.
    of_largest: bool = False


#: Ops that round once are exact by IEEE 754. Other functions must be as good as OpenCL C 3.0
#: demands of a device (full profile, table of relative errors; half precision has a column of its
#: own). Types of 8 bits and less may be computed in f16 or f32 and rounded.
_F32_F64 = {
    "atan2": 6,
    "cbrt": 2,
    "cosine": 4,
    "exponential": 3,
    "exponential_minus_one": 3,
    "log": 3,
    "log_plus_one": 2,
    # The table has no logistic: 1/(1+exp(-x)) carries the 3 ULP of exp and rounds twice by half an
    # ULP, which doubles if the result is in the binade below.
    "logistic": 8,
    "power": 16,
    "rsqrt": 2,
    "sine": 4,
    "tan": 5,
    "tanh": 5,
}
_F16_BF16 = dict.fromkeys(_F32_F64, 2) | {"power": 4, "rsqrt": 1, "logistic": 2}
_NARROW = dict.fromkeys(_F32_F64, 1)

#: OpenCL has no complex functions; each consists of real functions, sums and products. The unit is
#: that of the larger part, because the smaller part may be a difference of much larger terms.
_COMPLEX = dict.fromkeys(_F32_F64, 16) | {
    "abs": 4,  # This is hypot in OpenCL.
    "divide": 6,  # Each part has two products, a sum, and a division by a rounded norm.
    "multiply": 2,  # Two products and a sum are rounded.
    "sign": 6,  # This is abs, then a division.
    "sqrt": 8,
}

#: Each output is a sum of n products, which rounds n times; the unit is that of the largest
#: element, because terms may cancel.
_SUMS = {
    "batch_norm_grad": Tolerance(64, of_largest=True),
    "batch_norm_inference": Tolerance(16, of_largest=True),
    "batch_norm_training": Tolerance(64, of_largest=True),
    "cholesky": Tolerance(8, of_largest=True),
    # An FFT has log2(n) stages of rounded roots and products, with n <= 16.
    "fft": Tolerance(16, of_largest=True),
    "triangular_solve": Tolerance(16, of_largest=True),
}


def tolerance(
    op: str, dtype: np.dtype[Any], *, complex_: bool = False, terms: int = 0
) -> Tolerance:
    """Say how far an op's results of a type may be from the right values.

    An output that is a sum of so many `terms`, all of the same sign, may be off by one unit for
    each term. `complex_` is for complex arguments.
    """
    if terms:
        return Tolerance(terms)
    if op in _SUMS:
        return _SUMS[op]
    if complex_:
        return Tolerance(_COMPLEX.get(op, 0))
    if dtype in (np.float32, np.float64):
        return Tolerance(_F32_F64.get(op, 0))
    if dtype in (np.float16, ml_dtypes.bfloat16):
        return Tolerance(_F16_BF16.get(op, 0))
    return Tolerance(_NARROW.get(op, 0))


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a result is not what it should be."""

    ulps: int  # The largest distance; `FAR` if NaN, infinity or the sign of zero differs.
    allowed: int
    count: int  # How many elements are too far off.
    size: int
    index: tuple[int, ...]  # The index of the first wrong value.
    wanted: Any  # The right value at `index`.
    found: Any

    def __str__(self) -> str:
        far = "differs" if self.ulps >= FAR else f"is {self.ulps} ULP off"
        return (
            f"{self.count} of {self.size} elements differ by more than {self.allowed} ULP, the "
            f"worst {far}; at {list(self.index)} expected {self.wanted!r}, found {self.found!r}"
        )


def difference(found: Array, wanted: Array, within: Tolerance) -> Difference | None:
    """Compare a result with the right one; None if each element is near enough.

    All NaNs count as equal. The sign of zero counts only if the tolerance is 0.
    """
    distance = ulps(found, wanted, of_largest=within.of_largest)
    if not within.ulps:
        distance = np.where((distance == 0) & _other_zero(found, wanted), FAR, distance)
    far = distance > within.ulps
    if not far.any():
        return None
    first = tuple(int(place) for place in np.argwhere(far)[0])
    return Difference(
        int(distance.max()),
        within.ulps,
        int(far.sum()),
        found.size,
        first,
        wanted[first].item(),
        found[first].item(),
    )


def ulps(found: Array, wanted: Array, *, of_largest: bool = False) -> Array:
    """Measure the distance of each element from the right one, as int64, at most `FAR`.

    For floating-point numbers it counts the numbers of the type between the two; for integers it is
    the difference; for complex numbers a step is that of the right one's larger part. With
    `of_largest`, a step is that of the largest right value.
    """
    if found.dtype.kind == "c":
        parts = [_norm_ulps(_part(found, i), _part(wanted, i), wanted, of_largest) for i in (0, 1)]
        return np.asarray(np.maximum(*parts))
    if is_float(found.dtype):
        if of_largest:
            return _norm_ulps(found, wanted, wanted, True)
        steps = np.abs(_place(found) - _place(wanted))
        return _with_specials(steps, found, wanted)
    exact = found.astype(object) - wanted.astype(object)
    return np.asarray(np.minimum(np.abs(exact), FAR).astype(np.int64))


def is_float(dtype: np.dtype[Any]) -> bool:
    """Say whether a dtype is a real floating-point type of numpy or ml_dtypes."""
    return bool(dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name))


def is_subnormal(values: Array) -> Array:
    """Find the elements that are smaller than the smallest normal number, and not zero."""
    if values.dtype.kind == "c":
        return np.asarray(is_subnormal(_part(values, 0)) | is_subnormal(_part(values, 1)))
    if not is_float(values.dtype):
        return np.zeros(values.shape, bool)
    smallest = float(ml_dtypes.finfo(values.dtype).smallest_normal)  # type: ignore[no-untyped-call]
    size = np.abs(values.astype(np.float64))
    return np.asarray((size > 0) & (size < smallest))


def flush(values: Array) -> Array:
    """Replace subnormal numbers by zeros of the same sign."""
    if values.dtype.kind == "c":
        both = np.stack([flush(_part(values, 0)), flush(_part(values, 1))], -1)
        return np.asarray(both.view(values.dtype)[..., 0])
    if not is_float(values.dtype):
        return values
    zeros = np.copysign(0.0, values.astype(np.float64)).astype(values.dtype)
    return np.where(is_subnormal(values), zeros, values)


def _part(values: Array, index: int) -> Array:
    return np.asarray((values.real, values.imag)[index])


def _place(values: Array) -> Array:
    """Return each number's place in the order of its type: neighbours differ by one."""
    bits = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").reshape(values.shape)
    width = {"float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}.get(
        values.dtype.name, 8 * values.dtype.itemsize
    )
    if values.dtype.name == "float8_e8m0fnu":  # Only this type has no sign.
        return bits.astype(np.int64)
    sign = np.uint64(1) << np.uint64(width - 1)
    size = (bits.astype(np.uint64) & (sign - np.uint64(1))).astype(np.int64)
    return np.where(bits.astype(np.uint64) & sign != 0, -size, size)


def _with_specials(steps: Array, found: Array, wanted: Array) -> Array:
    """Set the distance of a NaN or an infinity from any other number to `FAR`."""
    nans = np.isnan(found), np.isnan(wanted)
    apart = (nans[0] != nans[1]) | (
        (np.isinf(found) | np.isinf(wanted)) & (found != wanted) & ~nans[0] & ~nans[1]
    )
    capped = np.where(nans[0] & nans[1], 0, np.minimum(steps, FAR))
    return np.where(apart, FAR, capped).astype(np.int64)


def _norm_ulps(found: Array, wanted: Array, whole: Array, of_largest: bool) -> Array:
    """Measure in steps of a larger number: the whole complex one, or the tensor's largest."""
    info = ml_dtypes.finfo(found.dtype)  # type: ignore[no-untyped-call]
    wide = np.longdouble if found.dtype == np.float64 else np.float64
    with np.errstate(all="ignore"):
        size = (
            np.maximum(abs(whole.real), abs(whole.imag)).astype(wide)
            if whole.dtype.kind == "c"
            else np.abs(whole.astype(wide))
        )
        if of_largest and size.size:
            size = np.full(size.shape, np.max(size[np.isfinite(size)], initial=0))
        size = np.maximum(np.where(np.isfinite(size), size, 0), wide(info.smallest_normal))
        step = np.exp2(np.floor(np.log2(size))) * wide(info.eps)
        error = np.abs(found.astype(wide) - wanted.astype(wide)) / step
    equal = found == wanted
    error = np.where(equal | ~np.isfinite(error), 0, np.minimum(np.ceil(error), FAR))
    return _with_specials(error.astype(np.int64), found, wanted)


def _other_zero(found: Array, wanted: Array) -> Array:
    if not is_float(found.dtype):
        return np.zeros(found.shape, bool)
    zero = (found == 0) & (wanted == 0)
    return np.asarray(zero & (np.signbit(found) != np.signbit(wanted)))
