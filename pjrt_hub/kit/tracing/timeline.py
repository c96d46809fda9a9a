"""A recording, and profiles of devices, as trace events for Perfetto and chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pjrt_hub.kit.tracing.arguments import as_json, inputs, results
from pjrt_hub.kit.tracing.call import Call, Upcall
from pjrt_hub.kit.tracing.recording import Recording

if TYPE_CHECKING:
    from pjrt_hub.kit.tracing.xspace import Profile

Event = dict[str, Any]
#: The tracks of devices get numbers of processes from here on, which Linux does not give.
_FIRST_PID = 1 << 23
#: No more events of a profile are shown, since viewers cannot; they are the longest.
_MOST_EVENTS = 1 << 18


def events(
    recording: Recording, calls: Iterable[Call], profiles: Iterable[tuple[int, Profile]] = ()
) -> dict[str, Any]:
    """Return the trace as a JSON object, with a track for each thread and each stream of a device.

    Arrows lead from an execution to the moment when the host learned that a result was ready.

    Args:
        recording: the recording that has the calls.
        calls: the calls to show; arrows are shown for all calls.
        profiles: processes and profiles, as `devices.profiles` gives them.
    """
    shown = [
        *_tracks(recording),
        *(_slice(recording, call) for call in calls),
        *(_upcall(upcall) for upcall in recording.upcalls),
        *_arrows(recording),
        *_profiles(recording.zero_ns, profiles),
    ]
    return {"traceEvents": shown, "displayTimeUnit": "ns"}


def _tracks(recording: Recording) -> Iterator[Event]:
    for thread in recording.threads:
        place = {"ph": "M", "pid": thread.pid, "tid": thread.number}
        name = f"thread {thread.number} ({thread.name}, {thread.tid})"
        yield {**place, "name": "thread_name", "args": {"name": name}}
    for plugin in recording.plugins.values():
        name = f"PJRT calls to {plugin.path.rpartition('/')[2]} (API 0.{plugin.minor})"
        yield {"ph": "M", "pid": plugin.pid, "name": "process_name", "args": {"name": name}}


def _profiles(zero_ns: int, profiles: Iterable[tuple[int, Profile]]) -> Iterator[Event]:
    import numpy as np  # Recordings without profiles do not need it.

    number = _FIRST_PID
    for pid, profile in profiles:
        lines = [line for plane in profile.planes for line in plane.lines if line.titles.size]
        zero_ns = zero_ns or min((int(line.starts_ns.min()) for line in lines), default=0)
        times = np.concatenate([line.durations_ps for line in lines] or [np.zeros(0, np.int64)])
        beyond = np.sort(times)[-_MOST_EVENTS] if times.size > _MOST_EVENTS else -1
        for plane in profile.planes:
            number += 1
            title = f"{plane.name} of process {pid}" if pid else plane.name
            yield {"ph": "M", "pid": number, "name": "process_name", "args": {"name": title}}
            for tid, line in enumerate(plane.lines):
                place = {"pid": number, "tid": tid}
                yield {**place, "ph": "M", "name": "thread_name", "args": {"name": line.name}}
                kept = line.durations_ps > beyond
                rows = zip(*(each[kept].tolist() for each in line[1:]), strict=True)
                for start, duration, name in rows:
                    span = {"ph": "X", "ts": (start - zero_ns) / 1000, "dur": duration / 1e6}
                    yield {**place, **span, "name": plane.names.get(name, ""), "cat": "device"}


def _at(event: Call | Upcall, kind: str, time_ns: int) -> Event:
    thread = event.thread
    return {"ph": kind, "pid": thread.pid, "tid": thread.number, "ts": time_ns / 1000}


def _span(event: Call | Upcall) -> Event:
    return {**_at(event, "X", event.start_ns), "dur": (event.duration_ns or 0) / 1000}


def _slice(recording: Recording, call: Call) -> Event:
    args = {**inputs(call), **results(call, recording.minor(call))}
    told = {"call": call.number, **as_json(args)}
    if call.error:
        told["error"] = call.status
    if call.duration_ns is None:
        told["returned"] = False
    return {**_span(call), "name": call.function, "cat": "call", "args": told}


def _upcall(upcall: Upcall) -> Event:
    args = {"registered by call": upcall.number, "event": hex(upcall.event)}
    return {**_span(upcall), "name": "event ready", "cat": "callback", "args": args}


def _arrows(recording: Recording) -> Iterator[Event]:
    """Yield both ends of an arrow each time that the host learned of an execution's end."""
    # The key is a pid and a handle; the value is the execution that made the handle.
    origin, number = dict[tuple[int, int], Call](), 0
    history: list[Call | Upcall] = [*recording.calls, *recording.upcalls]
    for happened in sorted(history, key=lambda each: each.start_ns):
        pid = happened.thread.pid
        if isinstance(happened, Upcall):
            heard, end = happened.event, happened.start_ns
        else:
            _follow(happened, pid, origin)
            if happened.function != "PJRT_Event_Await" or happened.duration_ns is None:
                continue
            heard = inputs(happened).get("event", 0)
            end = happened.start_ns + happened.duration_ns
        execution = origin.get((pid, heard))
        if execution is not None and execution.duration_ns is not None:
            number += 1
            start = execution.start_ns + execution.duration_ns
            yield _end("s", number, execution, start)
            yield {**_end("f", number, happened, max(end, start)), "bp": "e"}


def _end(kind: str, number: int, event: Call | Upcall, time_ns: int) -> Event:
    return {**_at(event, kind, time_ns), "id": number, "name": "ready", "cat": "ready"}


def _follow(call: Call, pid: int, origin: dict[tuple[int, int], Call]) -> None:
    """Note the events and buffers of executions that a call makes, and forget reused handles."""
    match call.function:
        case "PJRT_LoadedExecutable_Execute":
            found = results(call, 0)
            rows = [*(found.get("output_lists") or []), found.get("device_complete_events") or []]
            handles = [each for row in rows if isinstance(row, list) for each in row]
            origin |= {(pid, each): call for each in handles if isinstance(each, int)}
        case "PJRT_Buffer_ReadyEvent":
            execution = origin.get((pid, inputs(call).get("buffer", 0)))
            event = results(call, 0).get("event")
            if execution is not None and event:
                origin[pid, event] = execution
        case "PJRT_Client_BufferFromHostBuffer":
            made = results(call, 0)
            for name in ("buffer", "done_with_host_buffer"):
                origin.pop((pid, made.get(name, 0)), None)
