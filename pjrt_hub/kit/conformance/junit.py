"""A report as JUnit's XML, which continuous integration reads."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from pjrt_hub.kit.conformance.verdict import Report, Result, Verdict

#: XML 1.0 cannot hold these characters, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_xml(report: Report) -> str:
    """Write the report: a test suite for each area, a test case for each check."""
    root = ElementTree.Element("testsuites", name="pjrt-hub check", **_counts(report.results))
    root.set("time", f"{report.seconds:.3f}")
    for area, results in report.areas():
        suite = ElementTree.SubElement(root, "testsuite", name=area, **_counts(results))
        suite.set("time", f"{sum(each.seconds for each in results):.3f}")
        suite.set("timestamp", report.date)
        suite.set("hostname", report.host)
        properties = ElementTree.SubElement(suite, "properties")
        for name in ("name", "sha256", "api_version", "platform", "layers"):
            value = _legal(getattr(report.plugin, name))
            ElementTree.SubElement(properties, "property", name=name, value=value)
        for each in results:
            _case(suite, each)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, result: Result) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=result.area,
        name=result.name.partition(".")[2],
        time=f"{result.seconds:.3f}",
    )
    message = _legal(result.text)
    match result.verdict:
        case Verdict.FAIL:
            outcome = ElementTree.SubElement(case, "failure", message=message)
            outcome.text = _legal(f"{result.title}\n{result.text}")
        case Verdict.CRASH | Verdict.TIMEOUT:
            outcome = ElementTree.SubElement(case, "error", message=message, type=result.verdict)
            outcome.text = _legal(f"{result.title}\n{result.text}\n{result.words}")
        case Verdict.UNSUPPORTED | Verdict.SKIP:
            ElementTree.SubElement(case, "skipped", message=f"{result.verdict}: {message}")
    if told := [*result.notes, *([f"the cause: {result.cause}"] if result.cause else [])]:
        ElementTree.SubElement(case, "system-out").text = _legal("\n".join(told))


def _counts(results: tuple[Result, ...] | list[Result]) -> dict[str, Any]:
    verdicts = [each.verdict for each in results]
    return {
        "tests": str(len(verdicts)),
        "failures": str(verdicts.count(Verdict.FAIL)),
        "errors": str(verdicts.count(Verdict.CRASH) + verdicts.count(Verdict.TIMEOUT)),
        "skipped": str(verdicts.count(Verdict.SKIP) + verdicts.count(Verdict.UNSUPPORTED)),
    }


def _legal(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
