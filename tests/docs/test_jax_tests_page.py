"""docs/jax_tests.md is what its figures say, and its failures are those that are known."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNNER = ROOT / "tools" / "jax_tests"
FIGURES = json.loads((RUNNER / "figures.json").read_text("utf-8"))
BAD = ("failed", "error", "crash", "timeout")

#: In a child: the runner's modules have names as short as those of tests.
PAGE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import page
sys.stdout.write(page.page(json.loads(page.FIGURES.read_text("utf-8"))))
"""


def test_the_page_is_written_from_its_figures():
    done = subprocess.run(
        [sys.executable, "-c", PAGE, RUNNER], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (ROOT / "docs" / "jax_tests.md").read_text("utf-8")


def test_every_failure_is_known_with_its_cause():
    known = json.loads((RUNNER / "known.json").read_text("utf-8"))[FIGURES["platform"]]
    of_file = {}
    for name, what in known.items():
        causes = of_file.setdefault(name.partition("::")[0], {})
        cause = what.partition(": ")[2]
        causes[cause] = causes.get(cause, 0) + 1
    assert of_file == {row["file"]: row["causes"] for row in FIGURES["files"] if row["causes"]}
    assert "unexplained" not in {cause for causes in of_file.values() for cause in causes}


@pytest.mark.parametrize("row", FIGURES["files"], ids=lambda row: row["file"])
def test_a_row_counts_each_failure_once(row):
    assert sum(row[outcome] for outcome in BAD) == sum(row["causes"].values())
    assert row["passed"] > 0
