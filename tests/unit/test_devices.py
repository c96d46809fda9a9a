"""What devices did and what they waited for, from made profiles and made calls."""

import pytest
from xspaces import BEGAN, ENVIRONMENT, GPU, HOST, event, line, names, plane

from pjrt_hub.kit.tracing import devices, timeline, xspace
from pjrt_hub.kit.tracing.call import Call, End, RecordedMemory, Thread
from pjrt_hub.kit.tracing.devices import NO_CALL, Operation
from pjrt_hub.kit.tracing.recording import Recording

THREADS = Thread(5, 1, 50, "main", 0), Thread(5, 2, 51, "other", 0), Thread(6, 1, 60, "main", 0)


def call(function, start, end, thread=0, number=1):
    took = None if end is None else end - start
    return Call(number, f"PJRT_{function}", THREADS[thread], 0, start, RecordedMemory(), took)


def waits(found):
    return {wait.function.removeprefix("PJRT_"): round(wait.total) for wait in found.waits}


def test_a_device_is_busy_while_any_stream_is():
    [found] = devices.devices(0, xspace.read(GPU))
    assert (found.name, found.process, found.waits) == ("/device:GPU:0", 0, ())
    assert found.operations == (Operation("fusion", 40, 120_000), Operation("MemcpyH2D", 1, 20_000))
    assert found.span == 393_000
    # The copy fills the pauses after the first kernel from 5 us on, two whole ones, and runs
    # beside two kernels.
    assert found.busy == 40 * 3_000 + 20_000 - 6_000


def test_operations_inside_others_count_once():
    [found] = devices.devices(0, xspace.read(HOST))
    assert found.operations == (Operation("while", 1, 5_000), Operation("add", 1, 4_000))
    assert (found.span, found.busy) == (9_000, 9_000)


def test_of_a_tpu_only_the_operations_count():
    lines = [line("XLA Modules", 0, [event((1, 0, 10**6))]), line("XLA Ops", 0, [event((2, 0, 9))])]
    known = names(4, {1: "module", 2: "add"})
    other = plane("/device:CUSTOM:Megascale Trace", [line("all", 0, [event((1, 0, 9))])], known)
    [found] = devices.devices(0, xspace.read(plane("/device:TPU:0", lines, known) + other))
    assert found.operations == (Operation("add", 1, 0.009),)


#: Operations from 100 to 200 and from 400 to 500 ns.
BUSY = plane(
    "/device:GPU:0",
    [line("Stream", 100, [event((1, 0, 100_000)), event((1, 300_000, 100_000))])],
    names(4, {1: "add"}),
)


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ([], {}),
        ([call("Client_Create", 0, 50)], {NO_CALL: 250}),
        ([call("Client_Compile", 150, 350)], {"Client_Compile": 150, NO_CALL: 50}),
        # Of two calls, the one that began last counts, but a wait only if it is alone.
        (
            [call("Client_Compile", 200, 400), call("Buffer_Delete", 250, 300, thread=1)],
            {"Client_Compile": 150, "Buffer_Delete": 50},
        ),
        (
            [call("Client_Compile", 200, 300), call("Event_Await", 250, 400, thread=1)],
            {"Client_Compile": 100, "Event_Await": 100},
        ),
        ([call("Client_Compile", 300, None)], {"Client_Compile": 100, NO_CALL: 100}),
        ([call("Client_Compile", 0, 900), call("Error_Message", 0, 0)], {"Client_Compile": 200}),
        ([call("Client_Compile", 0, 900, thread=2)], {}),
    ],
)
def test_a_device_waits_for_what_the_host_does(calls, told):
    profile = xspace.read(BUSY)
    [found] = devices.devices(5, profile, Recording(calls=calls))
    # Other clocks make no difference.
    moved = xspace.read(BUSY + ENVIRONMENT)
    assert devices.devices(5, moved, Recording(calls=calls, zero_ns=BEGAN)) == [found]
    assert waits(found) == told
    assert found.busy == 200
    assert found.span - found.busy == (sum(told.values()) or 200)


def test_executions_take_the_place_of_a_profile(tmp_path):
    calls = [call("LoadedExecutable_Execute", 100 * n, 100 * n + 10, number=n) for n in range(3)]
    recording = Recording(threads=[THREADS[0]], calls=calls, zero_ns=7)
    # On device 0, the second one waits for the first; device 1 runs the last one.
    recording.ends = [End(0, 5, 0, "f", 150), End(1, 5, 0, "g", 250), End(2, 5, 1, "f", 290)]
    [(pid, profile)] = devices.profiles(tmp_path, recording)
    assert pid == 5
    first, second = devices.devices(pid, profile, recording)
    assert (first.name, first.busy) == ("device 0", 250)
    assert first.operations == (Operation("f", 1, 150), Operation("g", 1, 100))
    assert (second.name, second.operations) == ("device 1", (Operation("f", 1, 90),))


def test_profiles_are_on_the_clock_of_the_recording(tmp_path):
    (tmp_path / "of_jax").mkdir()
    for name in ("5-0.xplane.pb", "of_jax/vm.xplane.pb"):
        (tmp_path / name).write_bytes(BUSY)
    recording = Recording(threads=[*THREADS], zero_ns=60)
    found = devices.profiles(tmp_path, recording)
    assert [pid for pid, _ in found] == [5, 0]
    events = timeline.events(recording, [], found)["traceEvents"]
    spans = [(e["pid"], e["tid"], e["ts"], e["dur"], e["name"]) for e in events if e["ph"] == "X"]
    one, other = sorted({span[0] for span in spans})
    assert [span[1:] for span in spans[:2]] == [(0, 0.04, 0.1, "add"), (0, 0.34, 0.1, "add")]
    told = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert told == {one: "/device:GPU:0 of process 5", other: "/device:GPU:0"}


def test_a_long_profile_is_shown_by_its_longest_events(monkeypatch):
    monkeypatch.setattr(timeline, "_MOST_EVENTS", 5)
    events = timeline.events(Recording(), [], [(0, xspace.read(GPU))])["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "X"] == ["MemcpyH2D"]
