"""What is known to be wrong in the ops of the CPU plugin: found, and how, in each generation."""

from __future__ import annotations

import pytest

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.kit import conformance
from pjrt_hub.kit.conformance import Verdict

FAIL, CRASH = Verdict.FAIL, Verdict.CRASH

#: The check -> its verdict, and what its text says.
KNOWN = {
    # True + True is folded to False: booleans are added as numbers of one bit.
    "ops.add.i1": (FAIL, "of constants: 1 of 4"),
    # By 1/3 rounded to the type, so that the error grows with the exponent.
    "ops.cbrt.f32": (FAIL, "of arguments"),
    "ops.cbrt.f64": (FAIL, "the worst is 75 ULP off"),
    # The flag xla_cpu_enable_fast_min_max, on by default, loses the NaN of one of the sides.
    "ops.clamp.f32.nan": (FAIL, "expected nan"),
    "ops.maximum.f32.nan": (FAIL, "expected nan"),
    "ops.minimum.f64.nan": (FAIL, "expected nan"),
    # Folded as if the total order were that of the values.
    "ops.compare.f32.total-order": (FAIL, "of constants"),
    "ops.concatenate.i2": (CRASH, "SIGABRT"),
    # By way of f32, which rounds first.
    "ops.convert.f64_to_bf16.near-a-half": (FAIL, "of arguments: 2 of 6"),
    "ops.convert.f8E8M0FNU_to_f32": (FAIL, "of constants: 1 of 255"),
    # Folded as numbers of 64 bits.
    "ops.count_leading_zeros.i32": (FAIL, "expected 0, found -32"),
    "ops.popcnt.i4": (FAIL, "of arguments: 8 of 16"),
    # Divided by zero while it is folded.
    "ops.divide.i32.zero-divisor": (CRASH, "SIGFPE"),
    "ops.remainder.ui64.zero-divisor": (CRASH, "SIGFPE"),
    "ops.round_nearest_even.f8E3M4": (FAIL, "of constants: 222 of 256"),
    "ops.sort.i2": (FAIL, "Inputs must have the same shape"),
    "ops.sqrt.f8E3M4": (FAIL, "expected 0.96875, found 1.0"),
}
#: Those that are right since some PJRT API.
MENDED = {
    "ops.cbrt.f32": "0.106",
    "ops.cbrt.f64": "0.106",
    "ops.convert.f8E8M0FNU_to_f32": "0.115",
    "ops.count_leading_zeros.i32": "0.115",
    "ops.divide.i32.zero-divisor": "0.115",
    "ops.remainder.ui64.zero-divisor": "0.115",
}
#: What the types that came with 0.114 do since; older plugins lack them.
SIX_BITS = {
    "ops.abs.f6E2M3FN": (CRASH, "SIGABRT"),
    "ops.add.f6E3M2FN": (FAIL, "expected an executable, found the error"),
    "ops.transpose.f6E3M2FN": (CRASH, "SIGABRT"),
}
#: The same where LLVM finds no better way on this processor, and what the text then says.
ON_SOME_PROCESSORS = {"ops.convert.f64_to_f16.near-a-half": "of arguments: 2 of 6"}
#: Their neighbours, which are right.
RIGHT = ("ops.add.i8", "ops.divide.i32", "ops.maximum.f32", "ops.convert.f32_to_bf16.near-a-half")


@pytest.fixture(scope="module")
def report():
    return conformance.run(
        "cpu", names=[*KNOWN, *SIX_BITS, *ON_SOME_PROCESSORS, *RIGHT], offline=True
    )


def is_since(report, version):
    return ApiVersion.parse(report.plugin.api_version) >= ApiVersion.parse(version)


@pytest.mark.parametrize("name", KNOWN)
def test_it_is_found(report, name):
    verdict, said = KNOWN[name]
    if name in MENDED and is_since(report, MENDED[name]):
        verdict, said = Verdict.PASS, ""
    assert report[name].verdict is verdict
    assert said in report[name].text


@pytest.mark.parametrize("name", SIX_BITS)
def test_types_of_six_bits_are_new(report, name):
    verdict, said = SIX_BITS[name]
    if not is_since(report, "0.114"):
        verdict, said = Verdict.UNSUPPORTED, ""
    assert report[name].verdict is verdict
    assert said in report[name].text


@pytest.mark.parametrize("name", ON_SOME_PROCESSORS)
def test_it_is_found_where_it_is(report, name):
    result = report[name]
    if result.verdict is not Verdict.PASS:
        assert (result.verdict, ON_SOME_PROCESSORS[name] in result.text) == (FAIL, True)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_beside_it_passes(report, name):
    assert report[name].verdict is Verdict.PASS
