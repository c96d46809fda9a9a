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


def test_each_check_is_a_test(run):
    names = ["events.ready", "extensions.raw_buffer", "compile.empty_options"]
    chosen = [word for name in names for word in ("--pjrt-check", name)]
    ended = run("--pjrt-plugin", "cpu", *chosen)
    assert ended.returncode == 1, ended.stderr
    assert "1 failed, 2 passed, 1 skipped" in ended.stdout
    assert "FAILED cpu::compile.empty_options" in ended.stdout
    assert "the process died of SIGABRT" in ended.stdout
    assert "Check failed: replica_count > 0" in ended.stdout
    assert "unsupported: the plugin has no extension RawBuffer" in ended.stdout


def test_pytest_chooses_among_them(run):
    ended = run("--pjrt-plugin", "cpu", "--pjrt-area", "events", "-k", "events.ready")
    assert ended.returncode == 0
    assert "1 passed" in ended.stdout
    assert "deselected" in ended.stdout


def test_create_options_reach_the_plugin(run):
    option = ["--pjrt-option", "cpu_device_count=0"]  # no client can be made with this
    ended = run("--pjrt-plugin", "cpu", "--pjrt-check", "execute.add", *option)
    assert ended.returncode == 0, ended.stdout
    assert "1 passed, 1 skipped" in ended.stdout


def test_it_stops_in_the_middle(run):
    ended = run("--pjrt-plugin", "cpu", "--pjrt-area", "compile", "-x")
    assert ended.returncode == 1
    assert "1 failed" in ended.stdout


def test_without_the_option_nothing_is_added(run):
    ended = run()
    assert ended.returncode == 0
    assert "1 passed" in ended.stdout


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
