"""The pytest plugin inside each test process: makes JAX run on the plugin, and writes what happens.

Each test is written when it starts and when it ends, so that whoever reads the file knows which
test a dead process died in.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: The name by which JAX knows the plugin; "cpu" stays JAX's own backend.
NAME = "hub"
LONGEST = 8000


def pytest_addoption(parser: pytest.Parser) -> None:
    """What the parent tells."""
    parser.addoption("--hub-platform", help="what pjrt_hub.jax.register takes")
    parser.addoption("--hub-record", type=Path, help="the file to write to, a JSON object a line")
    parser.addoption("--hub-one-in", type=int, default=1, help="of how many tests one runs")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin before any test file imports JAX's test library, which asks for it."""
    platform = config.getoption("hub_platform")
    if platform is None:
        return
    import jax

    import pjrt_hub.jax

    pjrt_hub.jax.register(platform, name=NAME)
    jax.config.update("jax_platforms", f"{NAME},cpu")
    config.pluginmanager.register(Recorder(config.getoption("hub_record")), "hub-recorder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what an earlier process has done, and what the sample has not."""
    done = {row["test"] for row in read(config.getoption("hub_record"))}
    one_in = config.getoption("hub_one_in")
    kept = [
        item
        for item in items
        # Names decide, so that the sample stays the same when tests come and go.
        if test_name(item.nodeid) not in done and zlib.crc32(item.name.encode()) % one_in == 0
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def test_name(nodeid: str) -> str:
    """A test's class and name, without where its file lies."""
    return nodeid.partition("::")[2]


def read(path: Path) -> list[dict[str, Any]]:
    """The rows so far; a row that a dying process cut short is none."""
    rows = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


class Recorder:
    """Writes a row when a test starts, and one when it has ended."""

    def __init__(self, path: Path) -> None:
        """Append to `path`."""
        self.file = path.open("a", encoding="utf-8")
        self.outcome = "passed"
        self.text = ""

    def write(self, row: dict[str, Any]) -> None:
        """Hand a row to the system at once, which keeps it whatever becomes of this process."""
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Write both rows."""
        name = test_name(item.nodeid)
        self.outcome, self.text = "passed", ""
        self.write({"test": name, "outcome": None})
        result = yield
        self.write({"test": name, "outcome": self.outcome, "text": self.text[-LONGEST:]})
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The worst of set-up, call and tear-down is the test's outcome."""
        if report.failed:
            self.outcome = "failed"
        elif report.skipped and self.outcome == "passed":
            self.outcome = "skipped"
        if not report.passed:
            self.text += report.longreprtext
