"""`pjrt-hub check`: what it prints, writes and exits with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from xml.etree import ElementTree

import pytest
from known_cpu import DEFECTS, of

from pjrt_hub.kit.conformance.check import select

AREAS = ["--area", "buffers", "--area", "execute"]
PASSES, CRASHES = "events.ready", "compile.empty_options"


def test_without_defects_it_exits_with_0(check, row):
    ended = check("cpu", "--check", PASSES)
    assert (ended.returncode, ended.stderr) == (0, "")
    first, line, *_, last = ended.stdout.splitlines()
    assert first.split() == ["AREA", "PASS", "FAIL", "UNSUPPORTED", "SKIP", "CRASH", "TIMEOUT"]
    assert line.split() == ["events", "1"]
    assert last.startswith(
        f"cpu, PJRT API {row.api_version}, platform cpu, 1 of 1 checks pass, no defects, "
    )


def test_a_defect_is_told_with_what_was_expected(check, row):
    ended = check("cpu", "--check", "execute.deleted_executable")
    assert ended.returncode == 1
    assert "fail     execute.deleted_executable  (no. 85)\n" in ended.stdout
    known = of(DEFECTS, str(row.api_version))["execute.deleted_executable"]
    assert known.text in ended.stdout


def test_it_writes_a_report_of_each_form(check, tmp_path):
    files = ["--output", "r.json", "--junit", "r.xml", "--html", "r.html"]
    assert check("cpu", "--check", PASSES, "--check", CRASHES, *files).returncode == 1
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert [(each["name"], each["verdict"]) for each in results] == [
        (CRASHES, "crash"),
        (PASSES, "pass"),
    ]
    assert ElementTree.parse(tmp_path / "r.xml").getroot().get("errors") == "1"
    assert "<!doctype html>" in (tmp_path / "r.html").read_text()


def test_json_can_be_all_that_it_prints(check):
    ended = check("cpu", "--check", PASSES, "--json")
    assert json.loads(ended.stdout)["plugin"]["name"] == "cpu"


def test_it_compares_with_a_report_and_with_a_plugin(check, tmp_path):
    words = ["cpu", "--check", PASSES]
    assert check(*words, "--output", "before.json").returncode == 0
    before = json.loads((tmp_path / "before.json").read_text())
    before["results"][0]["verdict"] = "timeout"
    (tmp_path / "before.json").write_text(json.dumps(before))
    ended = check(*words, "--diff", "before.json")
    assert ended.returncode == 0
    assert "0 of 1 checks pass, 1 cause of 1 defect, " in ended.stdout
    assert "better   events.ready\n         timeout -> pass\n" in ended.stdout
    ended = check(*words, "--diff", "cpu")
    assert ended.returncode == 0
    assert ": no differences" in ended.stdout


def test_the_list_names_each_check(check):
    ended = check("--list", "--area", "events")
    assert ended.returncode == 0
    assert ended.stdout.splitlines()[0].split()[:3] == ["CHECK", "NO.", "NEEDS"]
    assert any(line.startswith(f"{PASSES} ") for line in ended.stdout.splitlines())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "Name a plugin"),
        (["cpu", "--area", "event"], "did you mean 'events'?"),
        (["cpu", "--check", "events.redy"], "did you mean 'events.ready'"),
        (["cpu", "--option", "cpu_device_count=many"], "cpu_device_count"),
        (["cpu", "--check", PASSES, "--diff", "none.json"], "none.json"),
        (["cpu", "--seconds", "0"], "--seconds"),
    ],
)
def test_a_wrong_command_line_exits_with_2(check, words, text):
    ended = check(*words)
    assert ended.returncode == 2
    assert text in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize(("plugin", "status"), [("nobody", 3), ("./none.so", 5)])
def test_without_a_plugin_it_exits_as_other_commands_do(check, plugin, status):
    assert check(plugin, "--check", PASSES).returncode == status


@pytest.mark.parametrize("option", ["--output", "--junit", "--html"])
def test_where_a_report_cannot_be_written_nothing_is_checked(check, option):
    ended = check("no plugin", option, "none/report")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "There is no folder 'none'." in ended.stderr


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)],
)
def test_an_interrupted_check_is_resumed(tmp_path, number, status):
    def begin(*words):
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "pjrt_hub.cli", "check", "cpu", *AREAS, *words],
            cwd=tmp_path,
            env={**os.environ, "PJRT_HUB_CACHE": str(tmp_path / "cache")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    begun = begin("--output", "r.json", "--junit", "r.xml", "--html", "r.html")
    journals = tmp_path / "cache" / "v1" / "journals"
    while not any(path.read_bytes().count(b"\n") > 15 for path in journals.glob("*.jsonl")):
        assert begun.poll() is None, begun.communicate()
        time.sleep(0.05)
    begun.send_signal(number)
    _, errors = begun.communicate(timeout=30)
    assert begun.returncode == status
    if number != signal.SIGKILL:
        report = json.loads((tmp_path / "r.json").read_text())
        assert len(report["results"]) > 15
        assert len(report["results"]) + report["left"] == len(select(areas=["buffers", "execute"]))
        assert ElementTree.parse(tmp_path / "r.xml").getroot().get("tests")
        assert f"{report['left']} checks were not made" in (tmp_path / "r.html").read_text()
        assert errors.endswith("hint: the same command with --resume goes on from here\n")
    (journal,) = journals.glob("*.jsonl")
    before = [json.loads(line)["result"] for line in journal.read_text().splitlines()[:15]]
    resumed = begin("--json", "--resume")
    output, _ = resumed.communicate(timeout=120)
    whole = json.loads(output)
    assert (resumed.returncode, whole["left"]) == (1, 0)
    assert len(whole["results"]) == len(select(areas=["buffers", "execute"]))
    assert all(each in whole["results"] for each in before)  # their times agree: none ran again
    assert whole["plugin"]["devices"] == ["cpu"]
    assert list(journals.glob("*.jsonl")) == []
