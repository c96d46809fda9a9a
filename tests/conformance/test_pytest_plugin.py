"""`pytest --pjrt-plugin`: the checks as tests of somebody's plugin."""

from __future__ import annotations

import sys

import finished
import pytest

PLUGIN = "pjrt_hub.kit.pytest_plugin"


@pytest.fixture
def run(tmp_path):
    """`run(*words)` runs pytest in a folder with one test of its own."""
    (tmp_path / "test_own.py").write_text("def test_of_their_own():\n    pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -rsf\n")

    def pytest_(*words):
        plugins = ["-p", "no:randomly", "-p", PLUGIN]
        command = [sys.executable, "-m", "pytest", *plugins, *words]
        return finished.run(*command, seconds=120, cwd=tmp_path)

    return pytest_


CPU = ("--pjrt-plugin", "cpu")
CHECKS = ("--pjrt-check=events.ready", "--pjrt-check=extensions.raw_buffer")
FOUND = (
    *("1 failed, 2 passed, 1 skipped", "FAILED cpu::compile.empty_options"),
    *("the process died of SIGABRT", "Check failed: replica_count > 0"),
    "unsupported: the plugin has no extension RawBuffer",
)
#: What a run shows -> the words behind `pytest`, its status, and parts of what it prints.
RUNS = {
    "each check is a test": ((*CPU, *CHECKS, "--pjrt-check=compile.empty_options"), 1, FOUND),
    "pytest chooses among them": (
        (*CPU, "--pjrt-area", "events", "-k", "events.ready"),
        *(0, ("1 passed", "deselected")),
    ),
    "create options reach the plugin": (  # no client can be made with this one
        (*CPU, "--pjrt-check=execute.add", "--pjrt-option", "cpu_device_count=0"),
        *(0, ("1 passed, 1 skipped",)),
    ),
    "it stops in the middle": ((*CPU, "--pjrt-area", "compile", "-x"), 1, ("1 failed",)),
    "without the option nothing is added": ((), 0, ("1 passed",)),
}


@pytest.mark.slow
@pytest.mark.night
@pytest.mark.parametrize("what", RUNS)
def test_checks_are_tests(run, what):
    words, status, printed = RUNS[what]
    ended = run(*words)
    assert ended.returncode == status, ended.stderr
    assert [text for text in printed if text not in ended.stdout] == []


@pytest.mark.slow
@pytest.mark.night
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--pjrt-plugin", "nobody"], "nobody"),
        (["--pjrt-plugin", "cpu", "--pjrt-area", "event"], "did you mean 'events'?"),
        (["--pjrt-plugin", "cpu", "--pjrt-option", "a"], "'a' is not NAME=VALUE"),
        (["--pjrt-plugin", "cpu", "--pjrt-option", "cpu_device_count=two"], "cpu_device_count"),
    ],
)
def test_a_wrong_option_is_an_error_of_usage(run, words, text):
    ended = run(*words)
    assert ended.returncode == 4
    assert text in ended.stderr
