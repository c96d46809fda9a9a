"""The known defects in the ops of each generation of the CPU plugin are found.

The causes that docs/cpu_defects.md names for the newest build are still found, too.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from known_cpu import Known, of

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.kit import conformance
from pjrt_hub.kit.conformance import Verdict

KNOWN = [
    # True + True is folded to False: booleans are added as numbers of one bit.
    Known("ops.add.i1", "of constants: 1 of 4"),
    # The power 1/3 is rounded to the type, so the error grows with the number's exponent.
    Known("ops.cbrt.f32", "of arguments", "<0.106"),
    Known("ops.cbrt.f64", "the worst is 75 ULP off", "<0.106"),
    # The flag xla_cpu_enable_fast_min_max, which is on by default, loses the NaN of one side.
    Known("ops.clamp.f32.nan", "expected nan"),
    Known("ops.maximum.f32.nan", "expected nan"),
    Known("ops.minimum.f64.nan", "expected nan"),
    # Constants are folded as if the total order were the order of the values.
    Known("ops.compare.f32.total-order", "of constants"),
    Known("ops.concatenate.i2", "SIGABRT", "", Verdict.CRASH),
    # The conversion goes by way of f32, and so rounds twice.
    Known("ops.convert.f64_to_bf16.near-a-half", "of arguments: 2 of 6"),
    Known("ops.convert.f8E8M0FNU_to_f32", "of constants: 1 of 255", "<0.115"),
    # Constants are folded as numbers of 64 bits.
    Known("ops.count_leading_zeros.i32", "expected 0, found -32", "<0.115"),
    Known("ops.popcnt.i4", "of arguments: 8 of 16"),
    # The compiler divides by zero while it folds constants.
    Known("ops.divide.i32.zero-divisor", "SIGFPE", "<0.115", Verdict.CRASH),
    Known("ops.remainder.ui64.zero-divisor", "SIGFPE", "<0.115", Verdict.CRASH),
    Known("ops.round_nearest_even.f8E3M4", "of constants: 222 of 256"),
    Known("ops.sort.i2", "Inputs must have the same shape"),
    Known("ops.sqrt.f8E3M4", "expected 0.96875, found 1.0"),
    # These types came with PJRT API 0.114, and have failed since then.
    Known("ops.abs.f6E2M3FN", "SIGABRT", "", Verdict.CRASH),
    Known("ops.add.f6E3M2FN", "expected an executable, found the error"),
    Known("ops.transpose.f6E3M2FN", "SIGABRT", "", Verdict.CRASH),
]
#: A check that fails only on processors where LLVM finds no better way -> a part of its text.
ON_SOME_PROCESSORS = {"ops.convert.f64_to_f16.near-a-half": "of arguments: 2 of 6"}
#: Checks that are similar to the known ones, and pass.
RIGHT = ("ops.add.i8", "ops.divide.i32", "ops.maximum.f32", "ops.convert.f32_to_bf16.near-a-half")
NAMES = [*(each.check for each in KNOWN), *RIGHT]


@pytest.fixture(scope="module")
def report():
    return conformance.run("cpu", names=[*NAMES, *ON_SOME_PROCESSORS], offline=True)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_found_and_what_is_beside_it_passes(report, name):
    version = report.plugin.api_version
    known = of(KNOWN, version).get(name)
    verdict, said = (known.verdict, known.text) if known else (Verdict.PASS, "")
    if "f6E" in name and ApiVersion.parse(version) < ApiVersion(0, 114):
        verdict, said = Verdict.UNSUPPORTED, ""
    assert report[name].verdict is verdict
    assert said in report[name].text


@pytest.mark.parametrize("name", ON_SOME_PROCESSORS)
def test_it_is_found_where_it_is(report, name):
    result = report[name]
    if result.verdict is not Verdict.PASS:
        assert result.verdict is Verdict.FAIL
        assert ON_SOME_PROCESSORS[name] in result.text


PAGE = (Path(__file__).parents[2] / "docs" / "cpu_defects.md").read_text("utf-8")
CAUSES = dict(re.findall(r"^`(\w+\.\S+)`, (fail|crash|timeout): ", PAGE, re.MULTILINE))
#: The result of this check depends on what lies in the memory that the plugin reads.
BY_CHANCE = "buffers.type_invalid"


@pytest.mark.slow
def test_each_cause_is_found():
    assert len(CAUSES) == int(re.search(r"the (\d+) causes", PAGE)[1]) <= 20
    report = conformance.run("cpu", names=CAUSES, offline=True)
    if f"`{report.plugin.sha256}`" not in PAGE:
        pytest.skip("the page is about another build")
    found = {each.name: str(each.verdict) for each in report.results}
    assert {**found, BY_CHANCE: CAUSES[BY_CHANCE]} == CAUSES
