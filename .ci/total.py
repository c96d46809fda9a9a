"""Adds up pytest's reports in a folder; fails where a test failed, or none passed."""

import sys
from pathlib import Path
from xml.etree import ElementTree

suites = [
    suite
    for report in sorted(Path(sys.argv[1]).glob("*.xml"))
    for suite in ElementTree.parse(report).iter("testsuite")
]
count = {
    name: sum(int(suite.get(name, 0)) for suite in suites)
    for name in ("tests", "failures", "errors", "skipped")
}
failed = count["failures"] + count["errors"]
passed = count["tests"] - failed - count["skipped"]
print(f"{passed} passed, {failed} failed, {count['skipped']} skipped")
sys.exit(bool(failed or not passed))
