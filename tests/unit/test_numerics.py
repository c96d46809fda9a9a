"""Distances between results, and the largest error that each op may have."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjrt_hub.kit.conformance import numerics
from pjrt_hub.kit.conformance.numerics import FAR, Tolerance, difference, flush, tolerance, ulps

NARROW = ["bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e3m4"]
NARROW += ["float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"]
FLOATS = [np.float64, np.float32, np.float16, *(getattr(ml_dtypes, name) for name in NARROW)]
EXACT = Tolerance()


def array(*values: float, dtype: type = np.float32) -> np.ndarray:
    return np.array(values, dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda each: each.__name__)
def test_neighbours_are_one_apart_and_signs_two_numbers_from_zero(dtype):
    one = np.array([1.0], dtype)
    above = np.nextafter(one, np.array([2.0], dtype))
    assert above > one
    assert ulps(above, one).tolist() == [1]
    least = np.array([float(ml_dtypes.finfo(dtype).smallest_subnormal)], dtype)
    assert ulps(-least, least).tolist() == [2 if -least < 0 else 0]


@given(st.floats(width=32, allow_nan=False), st.floats(width=32, allow_nan=False))
def test_the_distance_counts_the_numbers_between(x, y):
    forth, back = (ulps(*pair) for pair in ((array(x), array(y)), (array(y), array(x))))
    assert forth == back
    assert (forth == 0) == (x == y)
    if np.isfinite([x, y]).all() and 0 < forth[0] < 2**40:
        towards = np.nextafter(array(x), array(y))
        assert ulps(towards, array(y)) == forth - 1


@pytest.mark.parametrize(
    ("found", "wanted", "dtype", "distance"),
    [
        (np.nan, np.nan, np.float32, 0),
        (np.nan, 1.0, np.float32, FAR),
        (1.0, np.nan, np.float32, FAR),
        (np.inf, np.inf, np.float32, 0),
        (-np.inf, np.inf, np.float32, FAR),
        (np.finfo(np.float32).max, np.inf, np.float32, FAR),
        (0.0, -0.0, np.float32, 0),
        (2**64 - 1, 0, np.uint64, FAR),
        (-128, 127, np.int8, 255),
        (1 + 2e-9j, 1 + 1e-9j, np.complex64, 1),  # the larger error of both parts counts
        (1 + 2.0**-10 * 1j, 1, np.complex64, 8192),
        (complex(1, np.nan), 1, np.complex64, FAR),
    ],
)
def test_special_numbers_integers_and_complex_numbers(found, wanted, dtype, distance):
    assert ulps(array(found, dtype=dtype), array(wanted, dtype=dtype)).tolist() == [distance]


def test_the_sign_of_zero_counts_where_all_must_be_exact():
    assert difference(array(0.0), array(-0.0), EXACT).ulps == FAR
    assert difference(array(0.0), array(-0.0), Tolerance(1)) is None
    assert difference(array().reshape(0, 3), array().reshape(0, 3), EXACT) is None


def test_a_tensor_may_be_measured_by_its_largest_element():
    wanted, found = array(1024.0, 1e-6), array(1024.0, 1.1e-6)
    assert difference(found, wanted, Tolerance(4)).index == (1,)
    assert difference(found, wanted, Tolerance(4, of_largest=True)) is None


def test_a_difference_says_the_first_and_the_worst():
    wanted = array(1, 2, 3, 4).reshape(2, 2)
    found = np.nextafter(wanted, 9)
    found[1, 1] = 5
    off = difference(found, wanted, Tolerance(1))
    assert (off.count, off.size, off.index, off.wanted, off.found) == (1, 4, (1, 1), 4.0, 5.0)
    assert str(off) == (
        "1 of 4 elements differ by more than 1 ULP, the worst is 2097152 ULP off; "
        "at [1, 1] expected 4.0, found 5.0"
    )


def test_subnormal_numbers_become_zeros_of_their_sign():
    values = array(1e-40, -1e-40, 1.0, -0.0, np.inf)
    assert numerics.is_subnormal(values).tolist() == [True, True, False, False, False]
    assert np.array_equal(flush(values), array(0, 0, 1, 0, np.inf))
    assert np.signbit(flush(values)).tolist() == [False, True, False, True, False]
    both = np.array([1e-40 - 1j], np.complex64)
    assert flush(both).tolist() == [-1j]


@pytest.mark.parametrize(
    ("op", "dtype", "more", "wanted"),
    [
        ("add", np.float32, {}, EXACT),
        ("divide", np.float32, {}, EXACT),
        ("sqrt", np.float64, {}, EXACT),
        ("tanh", np.float32, {}, Tolerance(5)),
        ("tanh", np.float16, {}, Tolerance(2)),
        ("tanh", ml_dtypes.bfloat16, {}, Tolerance(2)),
        ("tanh", ml_dtypes.float8_e5m2, {}, Tolerance(1)),
        ("abs", np.float32, {}, EXACT),
        ("abs", np.float32, {"complex_": True}, Tolerance(4)),
        ("dot_general", np.float32, {"terms": 24}, Tolerance(24)),
        ("fft", np.complex64, {"complex_": True}, Tolerance(16, of_largest=True)),
        ("add", np.int32, {}, EXACT),
    ],
)
def test_tolerances(op, dtype, more, wanted):
    assert tolerance(op, np.dtype(dtype), **more) == wanted
