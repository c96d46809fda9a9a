"""What the checks, except those of single ops, say of the XLA CPU plugin."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from known_cpu import BRIEF, CHECKED, DEFECTS, LACKS, NOTES, OVER, of

from pjrt_hub.kit import conformance
from pjrt_hub.kit.conformance import Verdict
from pjrt_hub.kit.conformance.check import checks

pytestmark = pytest.mark.timeout(1200)  # the first test waits for the report


@pytest.fixture(scope="module")
def report():
    return conformance.run("cpu", areas=CHECKED, offline=True)


def test_its_defects_are_found(report):
    defects = list(report.defects)
    if report[BRIEF].verdict == Verdict.PASS:
        defects += conformance.run("cpu", names=[BRIEF], offline=True).defects
    found = {each.name: (each.verdict, each.text) for each in defects}
    known = of(DEFECTS, report.plugin.api_version)
    known = {name: each for name, each in known.items() if name in found or not each.by_chance}
    assert sorted(found) == sorted(known)
    for name, each in known.items():
        assert found[name][0] == each.verdict
        assert each.text in found[name][1]


def test_what_it_lacks_is_unsupported(report):
    version = int(report.plugin.api_version.partition(".")[2])
    newer = {each.name for each in checks() if each.area in CHECKED and each.since > version}
    found = {each.name for each in report.results if each.verdict == Verdict.UNSUPPORTED}
    known = of(LACKS, report.plugin.api_version)
    assert sorted(found) == sorted(newer | known.keys())
    assert [each for each in known.values() if each.text not in report[each.check].text] == []


def test_nothing_is_skipped(report):
    skipped = [each for each in report.results if each.verdict == Verdict.SKIP]
    assert [each.name for each in skipped if each.text != OVER] == []


@pytest.mark.parametrize("name", sorted({each.check for each in NOTES}))
def test_what_is_worth_telling_is_noted(report, name):
    known = of(NOTES, report.plugin.api_version).get(name)
    assert report[name].verdict == Verdict.PASS
    assert (known.text if known else "") in " ".join(report[name].notes)
    assert known or not report[name].notes


def test_every_number_has_a_check():
    assert {each.number for each in checks()} - {0} == {*range(1, 150)}


#: The areas that run programs and move their data.
RUNNING = ("execute", "buffers", "transfers", "events", "donation", "external")
#: Rules that checks break on purpose: they use what was deleted or donated, and unknown types.
MEANT = {"VAL003", "VAL004", "VAL020"}


def test_they_misuse_the_c_api_only_on_purpose():
    cli = [sys.executable, "-m", "pjrt_hub.cli"]
    areas = [word for area in RUNNING for word in ("--area", area)]
    command = [*cli, "trace", "--validate", "--", *cli, "check", "cpu", *areas]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1000)
    assert done.returncode == 1, done.stderr
    assert set(re.findall(r"^VAL[0-9]+", done.stderr, re.MULTILINE)) == MEANT, done.stderr
