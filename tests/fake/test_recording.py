"""Recordings of a host in C: what is in them, and that they are there however the process ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from stubbed import ONE_TO_FOUR, func, number, path, release, soon

from pjrt_hub.cli.__main__ import run
from pjrt_hub.errors import PjrtHubError
from pjrt_hub.kit import tracing
from pjrt_hub.kit.tracing import call_log, timeline, wrap
from pjrt_hub.kit.tracing.arguments import inputs, results
from pjrt_hub.kit.tracing.recording import Recording, read
from pjrt_hub.kit.tracing.summary import summary
from pjrt_hub.running.capi import table
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin
from pjrt_hub.running.interpose import layers

PUT = ["Client_BufferFromHostBuffer", "Event_Destroy", "Buffer_Destroy"]
BEGIN = ["Client_Create", "Client_AddressableDevices"]
END = ["Client_Destroy"]


@pytest.fixture
def record(host, tmp_path):
    """Run the host under the layer `trace` and read what it recorded."""

    def run(name: str, returncode: int = 0, **env: str) -> Recording:
        ended = host(name, PJRT_HUB_LAYERS="trace", PJRT_HUB_TRACE=str(tmp_path), **env)
        assert (ended.returncode, ended.stderr) == (returncode, "")
        return read(tmp_path)

    return run


def names(recording: Recording, thread: int | None = None) -> list[str]:
    return [
        call.function.removeprefix("PJRT_")
        for call in recording.calls
        if thread in (None, call.thread.number)
    ]


def test_every_call_is_there_in_order_with_its_arguments(record, stub):
    recording = record("nothing")
    assert [call.number for call in recording.calls] == list(range(1, len(recording.calls) + 1))
    assert names(recording)[:2] == BEGIN
    assert names(recording)[-1:] == END
    (plugin,) = recording.plugins.values()
    assert (Path(plugin.path), plugin.minor) == (stub(), 117)
    by_name = {call.function: call for call in reversed(recording.calls)}

    create = by_name["PJRT_Client_Create"]
    client = results(create, 117)["client"]
    assert inputs(create) == {}
    put = by_name["PJRT_Client_BufferFromHostBuffer"]
    taken, made = inputs(put), results(put, 117)
    assert taken["client"] == client
    assert (taken["type"], taken["dims"]) == ("F32", [4])
    assert taken["host_buffer_semantics"] == "kImmutableOnlyDuringCall"
    assert set(made) == {"done_with_host_buffer", "buffer"}

    compiled = by_name["PJRT_Client_Compile"]
    program = {"code": b"func donate later", "format": b"mlir"}
    assert inputs(compiled) == {"client": client, "program": program}
    execute = by_name["PJRT_LoadedExecutable_Execute"]
    assert inputs(execute)["argument_lists"] == [[made["buffer"]]]
    assert inputs(execute)["executable"] == results(compiled, 117)["executable"]
    assert all(0 <= call.duration_ns < 60e9 for call in recording.calls)


def test_a_failed_call_says_its_error_and_what_the_host_asked_about_it(record):
    (failed,) = [call for call in record("nothing").calls if call.error]
    assert failed.function == "PJRT_LoadedExecutable_Execute"
    assert failed.status == f"error {failed.error:#x}"  # the host did not ask for its message
    assert results(failed, 117) == {}
    (*_, failed) = [call for call in record("another_plugin").calls if call.error]
    assert failed.status == "word"


@pytest.mark.parametrize(("name", "status"), [("killed", -signal.SIGKILL), ("ended", 0)])
def test_a_process_that_ends_at_once_leaves_what_it_did(record, name, status):
    recording = record(name, status)
    assert names(recording) == BEGIN + PUT
    assert all(call.duration_ns is not None for call in recording.calls)


def test_a_call_that_ends_the_process_did_not_return(host, tmp_path):
    host("use_after_destroy", PJRT_HUB_LAYERS="trace", PJRT_HUB_TRACE=str(tmp_path))
    recording = read(tmp_path)
    last = recording.calls[-1]
    assert (last.function, last.duration_ns) == ("PJRT_Buffer_IsDeleted", None)
    assert next(call_log.lines(recording, [last])).endswith(" did not return")


def test_a_thread_has_its_own_file_and_may_end(record):
    recording = record("threads")
    assert [thread.number for thread in recording.threads] == [1, 2, 3, 4]
    assert names(recording, 1) == BEGIN + END
    assert [names(recording, number) for number in (2, 3, 4)] == [PUT, PUT, PUT]


def test_a_forked_child_has_its_own_file(record):
    recording = record("forked")
    parent, child = recording.threads
    assert parent.pid != child.pid
    assert names(recording).count("Buffer_IsDeleted") == 1
    (call,) = [call for call in recording.calls if call.thread.pid == child.pid]
    assert call.function == "PJRT_Buffer_IsDeleted"


def test_a_long_recording_is_whole(record):
    recording = record("many")
    assert names(recording).count("Buffer_IsDeleted") == 20000
    assert [call.number for call in recording.calls] == list(range(1, len(recording.calls) + 1))
    row = next(row for row in summary(recording.calls) if row.function == "PJRT_Buffer_IsDeleted")
    assert (row.count, row.errors) == (20000, 0)
    assert row.p50 <= row.p99 <= row.max <= row.total
    assert row.total == pytest.approx(row.mean * 20000)


def test_where_there_is_no_room_the_program_goes_on(record):
    recording = record("many", PJRT_HUB_TRACE_NBYTES="200000")
    assert 2000 < names(recording).count("Buffer_IsDeleted") < 20000
    assert sum(thread.lost for thread in recording.threads) > 20000


def test_what_the_plugin_did_wrong_has_a_part_of_its_own(host, tmp_path, capsys):
    layers = {"PJRT_HUB_LAYERS": "validate,trace", "PJRT_HUB_TRACE": str(tmp_path)}
    host("listens", "TWICE=1", **layers)
    assert run(["trace", "--from", str(tmp_path), "--validate"]) == 1
    title, line = capsys.readouterr().out.splitlines()
    assert title == "what the plugin did wrong:"
    assert re.match(r"VAL024 thread \d+: called back a second time: #\d+ PJRT_Event_OnReady", line)
    assert line.endswith("; the host was called once")
    assert run(["trace", "--from", str(tmp_path), "--validate", "--json"]) == 1
    [told] = json.loads(capsys.readouterr().out)["findings"]
    assert (told["code"], told["by"]) == ("VAL024", "plugin")


def test_findings_are_part_of_the_recording(host, tmp_path):
    ended = host("double_destroy", PJRT_HUB_LAYERS="validate,trace", PJRT_HUB_TRACE=str(tmp_path))
    assert (ended.returncode, ended.stderr) == (0, "")
    recording = read(tmp_path)
    (finding,) = recording.findings
    assert (finding.code, finding.call) == ("VAL001", 6)
    call = next(call for call in recording.calls if call.number == 6)
    assert call.answered
    assert call.function == finding.function == "PJRT_Buffer_Destroy"
    assert inputs(call)["buffer"] == finding.handle


def release_once_heard():
    soon(lambda: number("stub_callbacks"))
    release()


def execute(folder):
    plugin = Plugin(load(path, through=lambda table: wrap(table, "trace", folder)))
    with plugin.client() as client:
        exe = client.compile(func("held"))
        threading.Thread(target=release_once_heard).start()
        exe(client.buffer_from_host(ONE_TO_FOUR)).ready.wait()


def test_the_callback_of_an_event_is_recorded(check, stub, tmp_path):
    check(stub(), execute, tmp_path)
    recording = read(tmp_path)
    (upcall,) = recording.upcalls
    (registered,) = [call for call in recording.calls if call.number == upcall.number]
    assert registered.function == "PJRT_Event_OnReady"
    assert inputs(registered)["event"] == upcall.event
    assert upcall.thread != registered.thread  # the plugin calls from a thread of its own
    events = timeline.events(recording, recording.calls)["traceEvents"]
    slices = [event["name"] for event in events if event["ph"] == "X"]
    assert len(slices) == len(recording.calls) + 1
    assert slices[-1] == "event ready"


@pytest.mark.parametrize(
    ("names", "folder", "said"),
    [
        ("trace,nosuch", True, "there is no layer 'nosuch'"),
        ("trace", False, "the layer trace has no folder to record to"),
    ],
)
def test_layers_that_cannot_be_are_refused(tmp_path, names, folder, said):
    place = tmp_path if folder else tmp_path / "nowhere"
    with pytest.raises(PjrtHubError, match=said):
        tracing.wrap(0, names, place)


def test_no_layer_is_the_table_itself():
    assert tracing.wrap(1 << 20, " , ") == 1 << 20
    assert tracing.preload_path().is_file()


def test_functions_have_the_numbers_of_the_tables():
    names = layers.function_names()
    assert names[: len(table.FUNCTIONS)] == tuple(table.FUNCTIONS)
    assert len(set(names)) == len(names)
    assert all(f"{name}_Args" in table.FIELDS for name in names)


def test_what_is_no_recording_is_refused(tmp_path):
    (tmp_path / "1-1.pjrt").write_bytes(b"something else")
    with pytest.raises(PjrtHubError, match="is not a recording"):
        read(tmp_path)
    (tmp_path / "1-1.pjrt").write_bytes(b"PJRTREC\0" + bytes([9]) + bytes(8000))
    with pytest.raises(PjrtHubError, match="another version of pjrt-hub"):
        read(tmp_path)


def test_a_damaged_recording_is_refused_and_a_cut_one_read(record, tmp_path):
    whole = len(record("nothing").calls)
    [path] = tmp_path.glob("*.pjrt")
    data = path.read_bytes()
    begin = 4096  # the first record begins here; its bytes 2 and 3 count its words
    path.write_bytes(data[: begin + 2] + b"\0\0" + data[begin + 4 :])
    with pytest.raises(PjrtHubError, match="is damaged"):
        read(tmp_path)
    path.write_bytes(data[: begin + 1000])
    assert 0 < len(read(tmp_path).calls) < whole


def test_a_folder_without_a_recording_is_refused(tmp_path, capsys):
    assert run(["trace", "--from", str(tmp_path)]) == 1
    assert "holds no recording\n\nhint: give the folder that" in capsys.readouterr().err


def test_who_ends_the_command_ends_the_program():
    words = ["-m", "pjrt_hub.cli", "trace", "--", "sh", "-c", "echo; exec sleep 60"]
    command = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE)
    assert command.stdout is not None
    with command.stdout as printed:
        printed.read(1)
        command.terminate()
        assert printed.read() == b""  # no process has the pipe open any more
    assert command.wait() == 128 + signal.SIGTERM


def test_where_the_timeline_cannot_be_written_the_program_is_not_run(tmp_path, capsys):
    words = ["trace", "--timeline", str(tmp_path / "none" / "t.json"), "--", "touch"]
    assert run([*words, str(tmp_path / "ran")]) == 2
    assert "There is no folder" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
