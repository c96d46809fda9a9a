"""A recording as trace events for Perfetto and chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pjrt_hub.kit.tracing.arguments import as_json, inputs, results
from pjrt_hub.kit.tracing.call import Call, Upcall
from pjrt_hub.kit.tracing.recording import Recording

Event = dict[str, Any]


def events(recording: Recording, calls: Iterable[Call]) -> dict[str, Any]:
    """Return the trace as a JSON object, with a track for each thread.

    Arrows lead from an execution to the moment when the host learned that a result was ready.

    Args:
        recording: the recording that has the calls.
        calls: the calls to show; arrows are shown for all calls.
    """
    shown = [
        *_tracks(recording),
        *(_slice(recording, call) for call in calls),
        *(_upcall(upcall) for upcall in recording.upcalls),
        *_arrows(recording),
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
