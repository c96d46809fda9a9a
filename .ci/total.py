"""Adds up pytest's reports in a folder and names what failed; fails then, or where none passed."""

import sys
from pathlib import Path
from xml.etree import ElementTree

suites = []
for report in sorted(Path(sys.argv[1]).glob("*.xml")):
    tree = ElementTree.parse(report)
    suites += tree.iter("testsuite")
    for case in tree.iter("testcase"):
        for fault in (*case.findall("failure"), *case.findall("error")):
            print(f"{report.stem}: {case.get('classname')} {case.get('name')}")
            print((fault.text or fault.get("message", ""))[-2000:], "\n")
count = {
    name: sum(int(suite.get(name, 0)) for suite in suites)
    for name in ("tests", "failures", "errors", "skipped")
}
failed = count["failures"] + count["errors"]
passed = count["tests"] - failed - count["skipped"]
print(f"{passed} passed, {failed} failed, {count['skipped']} skipped")
sys.exit(bool(failed or not passed))
