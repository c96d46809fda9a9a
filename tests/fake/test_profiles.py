"""The layer `device`: profiles of plugins that have a profiler, ends of executions of others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from xspaces import GPU

from pjrt_hub.cli.__main__ import run
from pjrt_hub.errors import PjrtHubError
from pjrt_hub.kit import tracing
from pjrt_hub.kit.tracing.arguments import inputs, results
from pjrt_hub.kit.tracing.recording import read

PROFILER = "EXTENSIONS=&profiler.base"
ALL = "Create Start Stop CollectData{} Destroy"


@pytest.fixture
def record(host, tmp_path):
    """Run the host under the layer and return what it said; the recording is in `tmp_path`."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "profile").write_bytes(GPU)

    def go(name: str, *macros: str, layers: str = "trace,device", **env: str) -> str:
        own = {"PJRT_HUB_LAYERS": layers, "PJRT_HUB_TRACE": str(tmp_path / "kept")}
        own["STUB_PROFILED"] = str(tmp_path / "told")
        ended = host(name, *macros, **own, **{"STUB_PROFILE": str(tmp_path / "profile"), **env})
        assert ended.returncode == 0
        return ended.stderr

    return go


def kept(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.glob("kept/*.xplane.pb"))


@pytest.mark.parametrize("name", ["nothing", "left", "client_gone"])
def test_a_profile_lasts_from_the_first_client_to_the_end_of_the_last(record, tmp_path, name):
    assert record(name, PROFILER) == ""
    assert (tmp_path / "told").read_text() == ALL.format("")
    [path] = kept(tmp_path)
    assert path.read_bytes() == GPU
    recording = read(tmp_path / "kept")
    assert path.name == f"{recording.threads[0].pid}-0.xplane.pb"
    assert (path.stat().st_mode & 0o777, recording.ends) == (0o600, [])


def test_a_plugin_that_wants_the_hosts_memory_is_asked_again(record, tmp_path):
    assert record("nothing", PROFILER, "ASKS_TWICE") == ""
    assert (tmp_path / "told").read_text() == ALL.format(" CollectData")
    assert [path.read_bytes() for path in kept(tmp_path)] == [GPU]


def test_two_clients_have_one_profile(record, tmp_path):
    record("another_client", PROFILER)
    assert len(kept(tmp_path)) == 1


def test_where_the_profiler_is_busy_the_program_goes_on(record, tmp_path):
    said = record("use_after_donation", PROFILER, STUB_PROFILE="/nowhere")
    assert kept(tmp_path) == []
    assert said == "pjrt-hub: there is no profile: another profiler is busy\n"
    assert (tmp_path / "told").read_text() == "Create Start Error_Destroy Destroy"
    assert [end.device for end in read(tmp_path / "kept").ends] == [0]


@pytest.mark.parametrize("name", ["ended", "forked"])
def test_a_process_that_ends_at_once_leaves_no_profile(record, tmp_path, name):
    """A forked child ends nothing of its parent's."""
    record(name, PROFILER)
    assert len(kept(tmp_path)) == (name == "forked")
    assert (tmp_path / "told").exists() == (name == "forked")


def test_without_a_profiler_the_end_of_each_execution_is_recorded(record, tmp_path):
    assert record("use_after_donation") == ""
    recording = read(tmp_path / "kept")
    [first, failed] = [call for call in recording.calls if call.function.endswith("_Execute")]
    [end] = recording.ends
    assert (end.number, end.device, end.pid) == (first.number, 0, first.thread.pid)
    assert (end.name, failed.error != 0) == ("stub_program", True)
    assert first.start_ns < end.time_ns < first.start_ns + first.duration_ns
    # The host did not ask for an event, and gets none.
    assert "device_complete_events" not in inputs(first) | results(first, 117)


def test_the_host_sees_no_other_calls(record, tmp_path):
    record("nothing", layers="validate,trace,device")
    names = [call.function for call in read(tmp_path / "kept").calls]
    assert "PJRT_Executable_Name" not in names
    assert read(tmp_path / "kept").findings == []


def test_the_command_shows_devices(record, tmp_path, capsys):
    record("nothing", PROFILER)
    assert run(["trace", "--device", "--from", str(tmp_path / "kept"), "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)["devices"]
    assert (told["name"], told["busy"]) == ("/device:GPU:0", 134_000)
    assert told["operations"][1] == {"name": "MemcpyH2D", "runs": 1, "total": 20_000}
    path = tmp_path / "a.json"
    words = ["trace", "--device", "--timeline", str(path), "--from", str(kept(tmp_path)[0])]
    assert run(words) == 0
    lines = capsys.readouterr().out.splitlines()
    process = kept(tmp_path)[0].name.partition("-")[0]
    assert lines[0] == f"/device:GPU:0 of process {process}: busy for 34.1 % of 393 us"
    assert lines[1].split() == ["OPERATION", "RUNS", "MEAN", "TOTAL", "SHARE"]
    assert lines[2].split() == ["fusion", "40", "3", "us", "120", "us", "30.5", "%"]
    spans = [each for each in json.loads(path.read_text())["traceEvents"] if each["ph"] == "X"]
    assert (len(spans), spans[0]["ts"], spans[0]["dur"]) == (41, 0, 3)


def test_what_holds_no_profile_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_bytes(b"<html>")
    assert run(["trace", "--device", "--from", str(tmp_path / "file")]) == 1
    assert "is not an XSpace: " in capsys.readouterr().err
    for words in (["--device"], []):
        (tmp_path / "empty").mkdir(exist_ok=True)
        assert run(["trace", *words, "--from", str(tmp_path / "empty")]) == 1
        assert "holds no recording" in capsys.readouterr().err


def test_the_layer_needs_a_folder():
    with pytest.raises(PjrtHubError, match=re.escape("the layer device has no folder")):
        tracing.wrap(0, "device")
