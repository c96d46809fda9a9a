"""What the checks, except those of ops, say of the CPU plugin through the layer `discrete`.

The last test is of a device whose memory has tiles.
"""

from __future__ import annotations

import json

import pytest
from known_cpu import BRIEF, CHECKED, DEFECTS, LACKS, OVER, of

from pjrt_hub.kit import conformance
from pjrt_hub.kit.conformance import Verdict

pytestmark = pytest.mark.timeout(1200)  # the first test waits for the report

#: Defects that the layer mends: older plugins die if nobody waits for work that is running.
MENDED = {BRIEF}
#: Checks that need counts of memory, which the layer keeps and the plugin does not.
COUNTED = {
    "devices.memory_in_use",
    "devices.memory_stats",
    "plugin.older_device_memory_stats",
}


@pytest.fixture(scope="module")
def report():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PJRT_HUB_LAYERS", "discrete")
        patch.setenv("PJRT_HUB_DISCRETE", "seed=5")
        return conformance.run("cpu", areas=CHECKED, offline=True)


def test_it_says_through_what(report):
    plugin = report.plugin
    assert (plugin.name, plugin.layers) == ("cpu", "discrete (seed=5)")
    assert (plugin.platform, set(plugin.devices)) == ("discrete", {"discrete"})


def test_the_layer_has_no_defect_of_its_own(report):
    found = {each.name: each.verdict for each in report.defects}
    known = of(DEFECTS, report.plugin.api_version)
    expected = {
        name: each.verdict
        for name, each in known.items()
        if name not in MENDED and (name in found or not each.by_chance)
    }
    if "buffers.error_buffer_with_payload" in found:  # the layer loses the payload
        assert report["buffers.error_buffer_with_payload"].text.endswith("found {}")
        expected["buffers.error_buffer_with_payload"] = Verdict.FAIL
    assert found == expected
    assert {report[name].verdict for name in MENDED | COUNTED} == {Verdict.PASS}


def test_it_takes_nothing_away(report):
    found = {each.name for each in report.results if each.verdict == Verdict.UNSUPPORTED}
    known = of(LACKS, report.plugin.api_version)
    assert {name for name in known if report[name].verdict != Verdict.UNSUPPORTED} == COUNTED
    version = int(report.plugin.api_version.partition(".")[2])
    newer = {each.name for each in conformance.check.checks() if each.since > version}
    assert found - newer == known.keys() - COUNTED


def test_what_is_skipped_is_about_the_hosts_memory(report):
    skipped = [each for each in report.results if each.verdict == Verdict.SKIP]
    told = {each.text for each in skipped} - {OVER}
    assert told == {"the device's memory is not the host's to read"}
    assert {each.area for each in skipped} <= {"external", "devices"}


def test_the_reports_say_through_what(check, row, tmp_path):
    files = ["--output", "r.json", "--junit", "r.xml", "--html", "r.html"]
    held = {"PJRT_HUB_LAYERS": "discrete", "PJRT_HUB_DISCRETE": "hold"}
    ended = check("cpu", "--check", "events.ready", *files, **held)
    assert ended.returncode == 0, ended.stderr
    told = f"cpu through discrete (hold), PJRT API {row.api_version}, "
    assert ended.stdout.splitlines()[-1].startswith(told)
    assert json.loads((tmp_path / "r.json").read_text())["plugin"]["layers"] == "discrete (hold)"
    assert 'name="layers" value="discrete (hold)"' in (tmp_path / "r.xml").read_text()
    assert "<th>through</th><td>discrete (hold)</td>" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"PJRT_HUB_LAYERS": "discreet"}, "there is no layer 'discreet'"),
        (
            {"PJRT_HUB_LAYERS": "discrete", "PJRT_HUB_DISCRETE": "speed=1"},
            "the layer discrete has no setting 'speed=1'",
        ),
    ],
)
def test_wrong_layers_are_no_defect_of_the_plugin(check, env, said):
    ended = check("cpu", "--check", "events.ready", **env)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert said in ended.stderr
    assert "\nhint: " in ended.stderr


#: Checks that read or write a device's bytes as they lie in its memory.
RAW = ("buffers.layout", "buffers.on_device_size*", "transfers.parts*", "transfers.raw*")
TILED = {"buffers.layout", "transfers.parts_with_layout", "transfers.raw_of_running_work"}


def test_bytes_in_tiles_are_no_defect(monkeypatch):
    monkeypatch.setenv("PJRT_HUB_LAYERS", "discrete")
    monkeypatch.setenv("PJRT_HUB_DISCRETE", "tiled")
    report = conformance.run("cpu", names=RAW, offline=True)
    assert report.defects == ()
    tiled = [each for each in report.results if each.text == "the layout is of tiles"]
    assert {each.name for each in tiled} == TILED
    assert {each.verdict for each in tiled} == {Verdict.UNSUPPORTED}
    assert report.counts[Verdict.PASS] > 10
