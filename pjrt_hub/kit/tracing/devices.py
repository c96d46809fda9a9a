"""What each device did, and what it waited for: profiles beside recorded calls, on one clock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pjrt_hub.kit.tracing import xspace
from pjrt_hub.kit.tracing.call import Call
from pjrt_hub.kit.tracing.recording import Recording, profiles_of
from pjrt_hub.kit.tracing.xspace import Line, Plane, Profile

#: What a device waits for while the host is in no call.
NO_CALL = "no call (the program's own work)"
#: A device has these lines, or else all, for its operations; others group the same time anew.
_OPERATION_LINES = ("XLA Ops", "Stream")
_NONE, _NEVER_NS = Recording(), 1 << 60
_Times = NDArray[np.float64]
_Segment = tuple[str, int, int]


class Operation(NamedTuple):
    """The runs of one operation on one device; their time is without operations inside them."""

    name: str
    runs: int
    total: float


class Wait(NamedTuple):
    """The time in which a device had nothing to do and the host was in calls of one function."""

    function: str
    total: float


class Device(NamedTuple):
    """What one device did; times are nanoseconds, operations and waits begin with the longest."""

    name: str
    process: int  # The process, or 0 if that is not known.
    span: float  # From the first client, or else the first operation, to the last operation.
    busy: float  # The part of it in which operations ran.
    operations: tuple[Operation, ...]
    waits: tuple[Wait, ...]


def profiles(
    source: str | os.PathLike[str], recording: Recording = _NONE
) -> list[tuple[int, Profile]]:
    """Read profiles; return each with its process, or 0 if that is not known.

    Where a plugin has no profiler, the ends of recorded executions take its place.

    Args:
        source: the path of a profile, or of a folder: each `*.xplane.pb` there is read, at any
            depth. A profile that a framework wrote may be put into the folder of a recording.
        recording: what else the folder holds.

    Raises:
        FileFormatError: a file is not an XSpace.
        OSError: a file cannot be read.
    """
    pids = sorted({thread.pid for thread in recording.threads})
    found = []
    for path in profiles_of(source):
        word = path.name.partition("-")[0]
        pid = int(word) if word.isdigit() else pids[0] if len(pids) == 1 else 0
        found.append((pid, xspace.read(path)))
    executions = ((pid, tuple(_executions(recording, pid))) for pid in pids)
    return found + [(pid, Profile(planes)) for pid, planes in executions if planes]


def _executions(recording: Recording, pid: int) -> Iterator[Plane]:
    """Yield a plane for each device, on which one execution runs after the other."""
    begun = {call.number: call.start_ns for call in recording.calls if call.thread.pid == pid}
    ends = [end for end in recording.ends if end.pid == pid]
    names = sorted({end.name for end in ends})
    for device in sorted({end.device for end in ends}):
        own = [end for end in ends if end.device == device]
        stops = np.array([end.time_ns for end in own])
        starts = np.array([begun.get(end.number, end.time_ns) for end in own])
        starts[1:] = np.maximum(starts[1:], stops[:-1])
        titles = np.array([names.index(end.name) for end in own])
        line = Line("executions", starts + recording.zero_ns, (stops - starts) * 1000, titles)
        known = dict(enumerate(names))
        yield Plane(f"device {device}", (line,), known, frozenset(known))


def devices(pid: int, profile: Profile, recording: Recording = _NONE) -> list[Device]:
    """Return what each device of a profile did.

    Args:
        pid: the process, or 0.
        profile: a profile.
        recording: the calls made meanwhile; those of other processes are left out.
    """
    calls = [call for call in recording.calls if pid in (0, call.thread.pid)]
    segments = list(_segments(calls))
    found = [(plane, lines) for plane in profile.planes if (lines := operation_lines(plane))]
    begins = [int(line.starts_ns.min()) for _, lines in found for line in lines]
    for call in calls:
        if call.function == "PJRT_Client_Create":
            begins.append(recording.zero_ns + call.start_ns + (call.duration_ns or 0))
    made = (
        _device(plane, lines, min(begins), segments, recording.zero_ns) for plane, lines in found
    )
    return [device._replace(process=pid) for device in made]


def operation_lines(plane: Plane) -> list[Line]:
    """Return the lines that have operations of programs, with these alone.

    Args:
        plane: of a profile. Where it is that of a device, its other lines tell of the same time
            in other words.
    """
    lines = [line for line in plane.lines if line.titles.size]
    if plane.name.startswith("/device:CUSTOM:"):  # This is no device.
        return []
    if plane.name.startswith("/device:"):
        known = ([line for line in lines if line.name.startswith(p)] for p in _OPERATION_LINES)
        return next(filter(None, known), lines)
    operations = np.array([*plane.operations])
    chosen = ((line, np.isin(line.titles, operations)) for line in lines)
    return [
        Line(line.name, *(each[those] for each in line[1:]))
        for line, those in chosen
        if those.any()
    ]


def _device(
    plane: Plane, lines: list[Line], begin: int, segments: list[_Segment], zero_ns: int
) -> Device:
    each = (_intervals(line, begin) for line in lines)
    starts, stops, own = map(np.concatenate, zip(*each, strict=True))
    titles, rows = np.unique(np.concatenate([line.titles for line in lines]), return_inverse=True)
    totals = zip(titles.tolist(), np.bincount(rows).tolist(), np.bincount(rows, own), strict=True)
    operations = [
        Operation(plane.names.get(title, f"operation {title}"), runs, float(total))
        for title, runs, total in totals
    ]
    idle, span = _idle(starts, stops), float(stops.max())
    waited, waits = float(idle(0, span)), dict[str, float]()
    if segments:
        names, since, to = zip(*segments, strict=True)
        shift = zero_ns - begin
        times = idle(*(np.clip(np.array(each) + shift, 0, span) for each in (since, to)))
        for name, time in zip(names, times.tolist(), strict=True):
            waits[name] = waits.get(name, 0) + time
        waits[NO_CALL] = waited - sum(waits.values())
    found = [Wait(*wait) for wait in waits.items() if wait[1] > 0]
    operations.sort(key=lambda each: -each.total)
    found.sort(key=lambda each: -each.total)
    return Device(plane.name, 0, span, span - waited, tuple(operations), tuple(found))


def _intervals(line: Line, begin: int) -> tuple[_Times, _Times, _Times]:
    """Return when the events of a line begin and end, and how long each runs by itself."""
    # Times since 1970 would lose their nanoseconds.
    starts, durations = (line.starts_ns - begin).astype(float), line.durations_ps / 1000
    stops, own, order = starts + durations, durations.copy(), np.lexsort((-durations, starts))
    # A loop of a program contains its operations. The starts are rounded to a nanosecond.
    if (starts[order][1:] + 1 < stops[order][:-1]).any():
        around: list[int] = []
        for row, start in zip(order.tolist(), starts[order].tolist(), strict=True):
            while around and stops[around[-1]] <= start + 1:
                around.pop()
            if around:
                own[around[-1]] -= durations[row]
            around.append(row)
    return starts, stops, np.maximum(own, 0)


def _idle(starts: _Times, stops: _Times) -> Callable[[Any, Any], Any]:
    """Return a function of two moments, or arrays of them: the time between that is not busy."""
    order = np.argsort(starts)
    starts, reached = starts[order], np.maximum.accumulate(stops[order])
    begins = np.append(True, starts[1:] > reached[:-1])
    starts, stops = starts[begins], reached[np.append(begins[1:], True)]
    # The busy time up to each beginning and each end; in between it grows evenly.
    busy = np.repeat(np.append(0, np.cumsum(stops - starts)), 2)[1:-1]
    edges = np.column_stack((starts, stops)).ravel()
    return lambda since, to: (to - since) - np.diff(np.interp((since, to), edges, busy), axis=0)[0]


def _segments(calls: Sequence[Call]) -> Iterator[_Segment]:
    """Yield the segments of time in which the host is in calls, each with a function.

    That is the call that began last, and one that waits for an event only where there is no other.
    """
    moments = [(call.start_ns, number, True) for number, call in enumerate(calls)]
    for number, call in enumerate(calls):
        took = _NEVER_NS if call.duration_ns is None else call.duration_ns
        moments.append((call.start_ns + took, number, False))
    running: list[tuple[bool, int, int]] = []
    over, last = set[int](), 0
    for moment, number, begins in sorted(moments):
        while running and running[0][-1] in over:
            heappop(running)
        if running and moment > last:
            yield calls[running[0][-1]].function, last, moment
        if begins:
            heappush(running, (calls[number].function == "PJRT_Event_Await", -moment, number))
        else:
            over.add(number)
        last = moment
