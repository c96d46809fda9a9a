"""How checks are run: what kills a worker ends only the check that the worker runs."""

from __future__ import annotations

import os
import shutil
import sys
import time

import pytest

import pjrt_hub
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import InternalError
from pjrt_hub.kit import conformance
from pjrt_hub.kit.conformance import Report, Suite, Verdict
from pjrt_hub.kit.conformance.check import AREAS, check, checks, select
from pjrt_hub.running.sandbox import watch

CRASHES, WORKS = "compile.empty_options", "events.ready"


def verdicts(report: Report) -> dict[str, Verdict]:
    return {each.name: each.verdict for each in report.results}


def test_a_crash_is_the_verdict_of_its_check_only():
    report = conformance.run("cpu", names=[CRASHES, "client.platform", WORKS], jobs=1)
    right = dict.fromkeys(["client.platform", WORKS], Verdict.PASS)
    assert verdicts(report) == {**right, CRASHES: Verdict.CRASH}
    crash = report[CRASHES]
    assert crash.text == "the process died of SIGABRT in PJRT_Client_Compile"
    assert "Check failed: replica_count > 0" in crash.words
    assert crash.words.splitlines()[-1].startswith("called from checks/compile.py, line ")
    assert crash.notes == ()
    assert [each.name for each in report.defects] == [CRASHES]


def test_a_hang_ends_at_the_time_limit_with_all_that_was_started(answering):
    function, hangs_in = "PJRT_Client_DefaultDeviceAssignment", "client.assignment_zero"
    plugin = answering(function, "HANGS")
    before = set(watch.children())
    begin = time.monotonic()
    report = conformance.run(plugin, names=[hangs_in, WORKS], jobs=1, seconds=2)
    assert verdicts(report) == {hangs_in: Verdict.TIMEOUT, WORKS: Verdict.PASS}
    hangs = report[hangs_in]
    assert hangs.text == f"it did not end within 2 s in {function}"
    assert hangs.function == function
    assert 2 <= time.monotonic() - begin < 60
    assert set(watch.children()) <= before


def test_results_come_as_they_are_found_and_are_reported_in_order():
    wanted = select(areas=["events", "memories"])
    suite = Suite("cpu", jobs=2)
    results = list(suite.results(wanted))
    assert sorted(each.name for each in results) == sorted(each.name for each in wanted)
    report = suite.report(results)
    assert [each.name for each in report.results] == [each.name for each in wanted]
    assert [area for area, _ in report.areas()] == ["basics", "memories", "events"]


def test_a_report_says_whose_it_is(library, row):
    report = conformance.run("cpu", names=[WORKS], options={"cpu_device_count": 3})
    plugin = report.plugin
    assert (plugin.name, plugin.path) == ("cpu", library.name)
    assert plugin.api_version == str(row.api_version)
    assert (plugin.platform, plugin.devices) == ("cpu", ("cpu",) * 3)
    assert plugin.options == {"cpu_device_count": 3}
    assert plugin.extensions["Layouts"] == (72 if row.api_version < ApiVersion(0, 106) else 80)
    assert plugin.attributes["xla_version"] == 2
    assert plugin.sha256 == conformance.run(library, names=[WORKS]).plugin.sha256
    assert len(plugin.sha256) == 64
    assert (report.pjrt_hub, report.counts[Verdict.PASS]) == (pjrt_hub.__version__, 1)
    assert Report.from_json(report.to_json()) == report


def test_what_is_no_library_fails_where_it_would_be_loaded_whatever_is_wanted(tmp_path):
    path = tmp_path / "pjrt_text.so"
    path.write_text("not a library")
    report = conformance.run(path, names=["plugin.loads", "plugin.attributes", WORKS])
    skipped = dict.fromkeys(["plugin.attributes", WORKS], Verdict.SKIP)
    assert verdicts(report) == {"plugin.loads": Verdict.FAIL, **skipped}
    assert report[WORKS].text.startswith("the plugin cannot be loaded: ")
    assert report.plugin.api_version == ""
    report = conformance.run(path, names=["events.*", "buffers.delete"])
    assert report.counts[Verdict.FAIL] == 1
    assert report.counts[Verdict.SKIP] == len(report.results) - 1 > 0
    (defect,) = report.defects
    others = (each for each in report.results if each is not defect)
    assert report.hidden(defect.name) == tuple(others)


def test_what_is_cut_short_fails_without_being_loaded(tmp_path, library):
    path = tmp_path / library.name
    shutil.copyfile(library, path)
    os.truncate(path, path.stat().st_size // 2)
    report = conformance.run(path, areas=["plugin", "events"])
    (failed,) = (each for each in report.results if each.verdict != Verdict.SKIP)
    assert (failed.name, failed.verdict) == ("plugin.loads", Verdict.FAIL)
    assert "truncated" in failed.text


def test_a_client_that_cannot_be_made_skips_what_needs_one(library, tmp_path):
    """Of a library without a manifest, options are not checked."""
    other = shutil.copy(library, tmp_path / "libother.so")
    names = ["plugin.attributes", WORKS, "execute.add"]
    report = conformance.run(other, names=names, options={"cpu_device_count": 0})
    assert report["plugin.attributes"].verdict is Verdict.PASS
    skips = [report[name] for name in (WORKS, "execute.add")]
    assert [each.verdict for each in skips] == [Verdict.SKIP] * 2
    assert len({each.text for each in skips}) == 1


def test_a_worker_that_does_not_start_is_our_fault(monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(InternalError, match="exited with status 1 in starting"):
        conformance.run("cpu", names=[WORKS])


def test_what_a_loop_leaves_early_leaves_no_worker():
    suite = Suite("cpu", jobs=2)
    results = suite.results(select(areas=["events"]))
    before = set(watch.children())
    next(results)
    assert set(watch.children()) > before
    results.close()
    assert set(watch.children()) <= before


def test_every_check_is_well_described():
    known = checks()
    assert len({each.name for each in known}) == len(known) > 300
    for each in known:
        assert " -> " in each.title, each.name
        assert not each.title.endswith("."), each.name
        assert each.area in AREAS, each.name
        needs = ("process", "library", "plugin", "client", "topology")
        assert each.needs in needs or each.num_devices > 1, each.name
        assert 0 < each.seconds <= 120, each.name
        assert 0 <= each.number <= 149, each.name


def test_checks_are_selected_by_area_and_name():
    assert {each.area for each in select(areas=["events"])} == {"basics", "events"}
    assert [each.name for each in select(names=["events.read*"])] == ["events.ready"]
    devices = select(names=["devices.*"])
    assert len(select(["events"], ["devices.*"])) == len(select(["events"])) + len(devices)
    assert select() == checks()


def test_two_checks_of_one_name_are_refused():
    checks()  # this loads events.ready
    with pytest.raises(ValueError, match=r"two checks called events\.ready"):
        check(area="events", name="ready")(lambda subject: None)


@pytest.mark.parametrize("how", [{"jobs": 0}, {"jobs": -1}, {"seconds": 0}])
def test_no_workers_and_no_time_are_refused(library, how):
    with pytest.raises(ValueError, match="must be above 0"):
        Suite(library, **how)


def test_an_empty_name_is_not_the_best_plugin_here():
    with pytest.raises(ValueError, match="name is empty"):
        Suite("")
