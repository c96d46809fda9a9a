"""What a report looks like: as JSON, as a table, as JUnit's XML, as a page, and compared."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from pjrt_hub.errors import FileFormatError
from pjrt_hub.kit.conformance import (
    Identity,
    Report,
    Result,
    Verdict,
    difference,
    junit,
    page,
    table,
)

RESULTS = (
    Result("plugin.entry", "GetPjrtApi -> a table", Verdict.PASS, seconds=0.25, number=2),
    Result("client.create", "create -> a client", Verdict.CRASH, "it died", number=23, words="<&>"),
    Result("client.options", "a wrong option -> an error", Verdict.FAIL, "expected \x00, found 1"),
    Result("client.twice", "two -> both work", Verdict.TIMEOUT, "it did not end within 2 s"),
    Result("ops.add.f32", "add -> the sum", Verdict.PASS, notes=("slow",)),
    Result("ops.add.f32.nan", "add -> the sum", Verdict.FAIL, "1 ULP"),
    Result("ops.add.f64", "add -> the sum", Verdict.UNSUPPORTED, "no f64"),
    Result("ops.abs.f64", "abs -> the value", Verdict.SKIP, "no device"),
    Result("ops.neg.f64", "neg -> the value", Verdict.SKIP, "no device"),
)
PLUGIN = Identity("<b>tpu</b>", "libtpu.so", "0" * 64, "0.81", "tpu", devices=("v5e", "v5e"))
REPORT = Report(PLUGIN, "linux-x86_64", "0.1.0", "2026-11-20T16:00:00Z", 12.0, RESULTS)


def test_it_counts():
    assert " ".join(REPORT.counts) == "pass fail unsupported skip crash timeout"
    assert list(REPORT.counts.values()) == [2, 2, 1, 2, 1, 1]
    names = ["client.create", "client.options", "client.twice", "ops.add.f32.nan"]
    assert [each.name for each in REPORT.defects] == names


def test_json_comes_back_the_same():
    text = REPORT.to_json()
    assert json.loads(text)["form"] == 2
    assert Report.from_json(text) == REPORT


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        (b"{\xff}", "decode"),
        ("[" * 100_000, "recursion"),
        ("[]", "not a JSON object"),
        ("{}", "form"),
        (json.dumps({**json.loads(REPORT.to_json()), "form": 3}), "reads up to 2"),
        (json.dumps({**json.loads(REPORT.to_json()), "more": 1}), "more"),
        (REPORT.to_json().replace('"crash"', '"burnt"'), "burnt"),
    ],
)
def test_what_is_no_report_is_refused(text, why):
    with pytest.raises(FileFormatError, match=why) as caught:
        Report.from_json(text, "some.json")
    assert caught.value.path == "some.json"


def test_what_a_defect_hides_is_told_with_it_and_is_no_other_one():
    hidden = [
        dataclasses.replace(REPORT["client.twice"], cause="ops.add.f32.nan"),
        dataclasses.replace(REPORT["ops.abs.f64"], cause="ops.add.f32.nan"),
    ]
    report = dataclasses.replace(REPORT, results=(*RESULTS[:3], *hidden, *RESULTS[5:7]))
    assert Report.from_json(report.to_json()) == report
    names = ["ops.add.f32.nan", "client.create", "client.options"]
    assert [each.name for each in report.defects] == names
    assert report.hidden("ops.add.f32.nan") == tuple(hidden)
    assert report.hidden("client.create") == ()
    told = next(table.defects(report)).splitlines()
    explained = "explains 2 other checks (1 skip, 1 timeout): client.twice, ops.abs.f64"
    assert told[-1] == f"         {explained}"
    assert list(table.skips(report)) == []
    assert "(1 skip, 1 timeout)</summary><p>client.twice, ops.abs.f64" in page.to_html(report)


def test_what_was_hidden_is_no_news():
    before = dataclasses.replace(REPORT["ops.add.f32"], verdict=Verdict.SKIP, cause="client.create")
    reports = dataclasses.replace(REPORT, results=(before,)), REPORT
    assert [str(each.trend) for each in difference.changes(*reports)] == ["other"]


def test_the_table():
    assert table.COLUMNS == ("area", "pass", "fail", "unsupported", "skip", "crash", "timeout")
    assert table.areas(REPORT) == [
        ["plugin", "1", "", "", "", "", ""],
        ["client", "", "1", "", "", "1", "1"],
        ["ops", "1", "1", "1", "2", "", ""],
    ]
    assert table.narrow_areas(REPORT) == [
        ["plugin", "1 pass"],
        ["client", "1 fail\n1 crash\n1 timeout"],
        ["ops", "1 pass\n1 fail\n1 unsupported\n2 skip"],
    ]
    head, *told = next(table.defects(REPORT)).splitlines()
    assert head == "crash    client.create  (no. 23)"
    assert told == [" " * 9 + line for line in ("create -> a client", "it died", "<&>")]
    head, *told = next(table.defects(REPORT, width=18)).splitlines()
    assert head == "crash    client.create  (no. 23)"
    assert told == [" " * 9 + line for line in ("create ->", "a client", "it died", "<&>")]
    assert list(table.notes(REPORT)) == ["note     ops.add.f32\n         slow"]
    assert list(table.skips(REPORT)) == ["skip     2 checks\n         no device"]
    assert table.headline(REPORT) == (
        "<b>tpu</b>, PJRT API 0.81, platform tpu, 2 of 9 checks pass, 2 skipped, "
        "4 causes of 4 defects, 12 s"
    )


def test_junit():
    root = ElementTree.fromstring(junit.to_xml(REPORT))
    counts = {"tests": "9", "failures": "2", "errors": "2", "skipped": "3"}
    assert {name: root.get(name) for name in counts} == counts
    cases = {f"{case.get('classname')}.{case.get('name')}": case for case in root.iter("testcase")}
    assert [*cases] == [each.name for each in RESULTS]
    assert [*cases["plugin.entry"]] == []
    assert cases["client.create"][0].tag == "error"
    assert cases["client.create"][0].get("type") == "crash"
    assert cases["client.create"][0].text == "create -> a client\nit died\n<&>"
    assert cases["client.options"][0].get("message") == "expected \ufffd, found 1"
    assert cases["ops.add.f64"][0].get("message") == "unsupported: no f64"
    assert root[0].get("hostname") == "linux-x86_64"


class Reader(HTMLParser):
    """Follows the tags of a page, each of which must be closed."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.attributes = [], "", []

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("other", [None, REPORT])
def test_the_page_is_whole_and_asks_for_nothing(other):
    html = page.to_html(REPORT, other)
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    assert not re.search(r"https?:|url\(|<link|<img|src=|@import", html)
    assert "<b>tpu</b>" not in html
    assert "<b>tpu</b>" in reader.text
    for each in RESULTS:
        assert each.name in reader.text
        assert each.title in reader.text
    ids = {value for name, value in reader.attributes if name == "id"}
    assert ids == {"plugin", "client", "ops"}
    assert ("The verdicts of the checks that both have are the same" in reader.text) == bool(other)


def test_the_page_shows_the_worst_of_an_op_and_type():
    html = page.to_html(REPORT)
    assert 'class="cell fail" title="ops.add.f32: pass\nops.add.f32.nan: fail 1 ULP"' in html
    assert 'class="cell skip" title="ops.abs.f64: skip no device"' in html


def test_reports_are_compared_by_what_both_have():
    def with_verdict(name, verdict):
        return dataclasses.replace(REPORT[name], verdict=verdict)

    results = (
        with_verdict("ops.add.f64", Verdict.PASS),
        with_verdict("client.twice", Verdict.PASS),
        with_verdict("client.create", Verdict.FAIL),
        with_verdict("plugin.entry", Verdict.CRASH),
        Result("events.ready", "await -> ready", Verdict.FAIL),
    )
    later = dataclasses.replace(REPORT, results=results)
    found = difference.changes(REPORT, later)
    assert [(each.name, str(each.trend), each.text) for each in found] == [
        ("plugin.entry", "worse", "pass -> crash"),
        ("client.twice", "better", "timeout -> pass: it did not end within 2 s"),
        ("ops.add.f64", "other", "unsupported -> pass: no f64"),
        ("client.create", "other", "crash -> fail: it died"),
    ]
    assert difference.changes(REPORT, REPORT) == []
    assert next(iter(table.differences(found))) == "worse    plugin.entry\n         pass -> crash"
    assert "1 other differences" not in page.to_html(later, REPORT)
    assert "2 other differences" in page.to_html(later, REPORT)
