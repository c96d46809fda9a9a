"""A recording: a folder of files that the layer `trace` wrote, read into calls.

Owns the format, which docs/tracing.md describes and `interpose/layers/recording.h` declares.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from pjrt_hub.errors import PjrtHubError
from pjrt_hub.kit.tracing.arguments import results, value
from pjrt_hub.kit.tracing.call import (
    ARGS,
    Call,
    End,
    RecordedMemory,
    RecordedPlugin,
    Thread,
    Upcall,
)
from pjrt_hub.running.capi import table
from pjrt_hub.running.interpose import layers

VERSION = 1
MAGIC = b"PJRTREC\0"
HEADER_NBYTES = 4096
_HEADER = struct.Struct("<8s6I 3Q 4Q 16s Q")
_RECORD = struct.Struct("<HHHBBQ")
_REGION = struct.Struct("<QII")


Clock = Callable[[int], int]


class Type(IntEnum):
    """The type of a record."""

    PLUGIN = 1
    ENTER = 2
    LEAVE = 3
    FAILED = 4
    ANSWERED = 5
    FINDING = 6
    UPCALL = 7
    RETURN = 8
    END = 9


#: Findings from this number on are mistakes of the plugin; lower numbers are the host's.
_FIRST_OF_PLUGIN = "VAL024"


@dataclass(frozen=True)
class Finding:
    """What the validation layer says about one call; `call` is its number."""

    code: str
    call: int
    function: str
    handle: int
    thread: Thread
    text: str

    @property
    def is_plugins(self) -> bool:
        """Whether the mistake is the plugin's, not the host's."""
        return self.code >= _FIRST_OF_PLUGIN


@dataclass
class Recording:
    """All that one folder holds; calls and upcalls in the order of their beginning."""

    threads: list[Thread] = field(default_factory=list)
    plugins: dict[tuple[int, int], RecordedPlugin] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    upcalls: list[Upcall] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    zero_ns: int = 0  # When the recording began, in nanoseconds since 1970.

    def minor(self, call: Call) -> int:
        """Return the minor PJRT API version of a call's plugin, or 0 if it is unknown.

        Args:
            call: one of `calls`.
        """
        plugin = self.plugins.get((call.thread.pid, call.plugin))
        return plugin.minor if plugin else 0


def files_of(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a recording; none if the program reached no plugin.

    Args:
        folder: the folder that `pjrt-hub trace` wrote.
    """
    return sorted(Path(folder).glob("*-*.pjrt"))


def profiles_of(source: str | os.PathLike[str]) -> list[Path]:
    """Return the files of profiles in a folder, each `*.xplane.pb` at any depth.

    Args:
        source: the folder, or one such file.
    """
    return sorted(Path(source).rglob("*.xplane.pb")) if os.path.isdir(source) else [Path(source)]


def read(folder: str | os.PathLike[str]) -> Recording:
    """Read every file of a recording, complete or truncated.

    Args:
        folder: the folder that `pjrt-hub trace` wrote.

    Raises:
        PjrtHubError: a file is not a recording, is damaged, or is of another version.
    """
    recording = Recording()
    files = [_File(path) for path in files_of(folder)]
    clock = _clock([moment for file in files for moment in file.moments])
    recording.zero_ns = min(((file.moments[0], file.realtime) for file in files), default=(0, 0))[1]
    for file in files:
        file.read(recording, clock)
    recording.calls.sort(key=lambda call: (call.start_ns, call.number))
    recording.upcalls.sort(key=lambda upcall: upcall.start_ns)
    recording.ends.sort(key=lambda end: end.time_ns)
    recording.findings.sort(key=lambda finding: (finding.thread.pid, finding.call))
    _ask_errors(recording.calls)
    return recording


def _clock(moments: list[tuple[int, int]]) -> Clock:
    """Return a function from ticks to nanoseconds since the first moment that any thread noted."""
    first, last = min(moments, default=(0, 0)), max(moments, default=(1, 1))
    rate = (last[1] - first[1]) / ((last[0] - first[0]) or 1)
    return lambda ticks: round((ticks - first[0]) * rate)


class _File:
    """The file of one thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = memoryview(path.read_bytes())
        if len(self.data) < HEADER_NBYTES or bytes(self.data[:8]) != MAGIC:
            raise PjrtHubError(
                f"{path} is not a recording",
                hint="give the folder that `pjrt-hub trace --output` wrote",
            )
        fields = _HEADER.unpack_from(self.data)
        _, version, self.window, count, pid, tid, number = fields[:7]
        self.logged, self.window_from, lost, *clocks, name, self.realtime = fields[7:]
        self.names = layers.function_names()
        if (version, count) != (VERSION, len(self.names)):
            raise PjrtHubError(
                f"{path} was recorded by another version of pjrt-hub",
                hint="read it with the version that recorded it",
            )
        self.moments = [(clocks[0], clocks[1]), (clocks[2], clocks[3])]
        title = name.partition(b"\0")[0].decode("utf-8", "replace")
        self.thread = Thread(pid, number, tid, title, lost)
        self.open: list[Call | Upcall] = []

    def read(self, recording: Recording, clock: Clock) -> None:
        """Add what the file holds to the recording."""
        recording.threads.append(self.thread)
        try:
            self.add(recording, clock)
        except (struct.error, ValueError, IndexError) as exc:
            # The record is damaged or of another form.
            raise PjrtHubError(
                f"{self.path} is damaged: {exc}", hint="record again; nothing else may write there"
            ) from None

    def add(self, recording: Recording, clock: Clock) -> None:
        for record in self.records():
            time, name = clock(record.ticks), self.names[record.function]
            match record.type:
                case Type.ENTER:
                    self.enter(recording, record, name, time)
                case Type.LEAVE | Type.FAILED | Type.ANSWERED:
                    self.leave(record, name, time)
                case Type.UPCALL:
                    registered, event, error = record.words()
                    upcall = Upcall(registered, event, error, self.thread, time)
                    recording.upcalls.append(upcall)
                    self.open.append(upcall)
                case Type.RETURN:
                    self.close("", time)
                case Type.END:
                    number, device = record.words()
                    ended = End(number, self.thread.pid, device, record.text(), time)
                    recording.ends.append(ended)
                case Type.PLUGIN:
                    whose = self.thread.pid, record.plugin
                    known = RecordedPlugin(*whose, record.words()[1], record.text())
                    recording.plugins[whose] = known
                case Type.FINDING:
                    call, code, handle = record.words()
                    word = f"VAL{code:03}"
                    found = Finding(word, call, name, handle, self.thread, record.text())
                    recording.findings.append(found)

    def enter(self, recording: Recording, record: _Record, name: str, time: int) -> None:
        first = min(layers.offsets(f"{name}_Args").values(), default=0)
        args = (ARGS + first, record.fixed[8:])
        number = int.from_bytes(record.fixed[:8], "little")
        memory = RecordedMemory([args, *record.regions()])
        call = Call(number, name, self.thread, record.plugin, time, memory)
        recording.calls.append(call)
        self.open.append(call)

    def leave(self, record: _Record, name: str, time: int) -> None:
        call = self.close(name, time)
        if not isinstance(call, Call):
            return
        call.answered = record.type == Type.ANSWERED
        if record.type == Type.FAILED:
            (call.error,) = record.words()
        elif record.fixed:
            rows = table.FIELDS[f"{name}_Args"]
            first = next(row.name for row in rows if row.direction != "in")
            place = ARGS + layers.offsets(f"{name}_Args")[first]
            call.got = RecordedMemory([(place, record.fixed), *record.regions()])

    def close(self, name: str, time: int) -> Call | Upcall | None:
        """End the last open call of this name, "" for an upcall; later open calls get no end."""
        while self.open:
            ended = self.open.pop()
            if (ended.function if isinstance(ended, Call) else "") == name:
                ended.duration_ns = max(time - ended.start_ns, 0)
                return ended
        return None

    def records(self) -> Iterator[_Record]:
        """Yield every record, those of the log first."""
        log = HEADER_NBYTES + self.window
        yield from self.records_between(log, min(log + self.logged, len(self.data)))
        # Records in the window that are also in the log are passed over.
        known = max(self.logged - self.window_from, 0)
        yield from self.records_between(HEADER_NBYTES + known, min(log, len(self.data)))

    def records_between(self, at: int, end: int) -> Iterator[_Record]:
        while at + _RECORD.size <= end:
            nbytes, fixed, function, plugin, kind, ticks = _RECORD.unpack_from(self.data, at)
            if nbytes < _RECORD.size or at + nbytes > end or function >= len(self.names):
                return
            body = bytes(self.data[at + _RECORD.size : at + nbytes])
            yield _Record(kind, function, plugin, ticks, body[:fixed], body[fixed:])
            at += nbytes


@dataclass(frozen=True)
class _Record:
    """One record: words that are always there, then regions of memory."""

    type: int
    function: int
    plugin: int
    ticks: int
    fixed: bytes
    rest: bytes

    def words(self) -> tuple[int, ...]:
        """Return the fixed part as numbers."""
        return struct.unpack(f"<{len(self.fixed) // 8}Q", self.fixed)

    def regions(self) -> Iterator[tuple[int, bytes]]:
        """Yield each region's address and the bytes kept, which may be fewer than it had."""
        at = 0
        while at + _REGION.size <= len(self.rest):
            address, nbytes, _ = _REGION.unpack_from(self.rest, at)
            at += _REGION.size
            yield address, self.rest[at : at + nbytes]
            at += -(-nbytes // 8) * 8

    def text(self) -> str:
        """Return the only region, as text."""
        regions = list(self.regions())
        return regions[0][1].decode("utf-8", "replace") if regions else ""


def _ask_errors(calls: list[Call]) -> None:
    """Give failed calls the code and message that the host asked for later."""
    failed: dict[tuple[int, int], Call] = {}
    for call in calls:
        pid = call.thread.pid
        if call.error:
            failed[pid, call.error] = call
        if call.function in ("PJRT_Error_GetCode", "PJRT_Error_Message"):
            if about := failed.get((pid, value(call, "error") or 0)):
                told = results(call, 0)
                about.code = told.get("code", about.code)
                message = told.get("message", about.message.encode())
                about.message = message.decode("utf-8", "replace")
        elif call.function == "PJRT_Error_Destroy":
            failed.pop((pid, value(call, "error") or 0), None)
