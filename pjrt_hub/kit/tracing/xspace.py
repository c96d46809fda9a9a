"""An XSpace: what the profilers of XLA write (`*.xplane.pb`), read into arrays of times.

Owns the numbers of its fields, which are those of xplane.proto, and the bounds of what is read.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pjrt_hub.errors import FileFormatError
from pjrt_hub.running.capi import wire

#: A message of protobuf has fewer bytes than this.
TOO_MANY_NBYTES = 1 << 31
#: Real profiles have thousands of lines, and of names in a plane.
_MOST_LINES, _MOST_NAMES = 100_000, 1 << 20
#: So many events are decoded together, but fewer than the second number one after the other.
_BATCH, _FEW = 1 << 16, 32
_LATEST_NS = 1 << 61
_EVENT = 4
_EVENT_KEY = _EVENT << 3 | 2

Integers = NDArray[np.int64]


class Line(NamedTuple):
    """A stream of a device, or a thread of a host; the arrays have an element for each event."""

    name: str
    starts_ns: Integers  # Nanoseconds, rounded down: since 1970, or what the profiler counts from.
    durations_ps: Integers  # Picoseconds.
    titles: Integers  # The number of the event's name.


class Plane(NamedTuple):
    """A device or a host."""

    name: str  # Such as "/device:GPU:0" or "/host:CPU".
    lines: tuple[Line, ...]
    names: dict[int, str]  # The name of the events that have the number.
    operations: frozenset[int]  # The numbers of a host's events that are a program's operations.


class Profile(NamedTuple):
    """What one XSpace holds."""

    planes: tuple[Plane, ...]
    messages: tuple[str, ...] = ()  # The profiler's own errors and warnings.


def read(source: bytes | str | os.PathLike[str]) -> Profile:
    """Read an XSpace.

    Args:
        source: the message, as `plugin.profiler().xspace` holds it, or the path of its file.

    Raises:
        FileFormatError: it is not an XSpace, or too large to be one.
        OSError: the file cannot be read.
    """
    path = "the profile" if isinstance(source, bytes) else os.fspath(source)
    nbytes = len(source) if isinstance(source, bytes) else os.stat(source).st_size
    try:
        if nbytes >= TOO_MANY_NBYTES:
            raise ValueError(f"it has {nbytes} bytes, and no message has so many")
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
        return _space(memoryview(data))
    except ValueError as exc:
        raise FileFormatError(
            f"{path} is not an XSpace: {exc}",
            path=path,
            hint="give the *.xplane.pb that a profiler of XLA wrote, as it wrote it",
        ) from exc


def _space(message: memoryview) -> Profile:
    planes, texts, zero, room = list[Plane](), list[str](), 0, _MOST_LINES
    for number, value in wire.fields(message):
        if isinstance(value, int) or number > 4:
            raise ValueError(f"it has the field {number}, which is another message's")
        if number == 1:
            plane, began = _plane(value, room)
            planes.append(plane)
            zero, room = began or zero, room - len(plane.lines)
        elif number in (2, 3):
            texts.append(_text(value))
        if (room := room - 1) < 0:
            raise ValueError("it has too many planes, lines or texts")
    for line in (line for plane in planes for line in plane.lines):
        np.add(line.starts_ns, zero, out=line.starts_ns)
    return Profile(tuple(planes), tuple(texts))


def _plane(message: memoryview, room: int) -> tuple[Plane, int]:
    """Return a plane, and what all times are counted from if this plane says so, or 0."""
    name, zero, lines, stats = "", 0, list[memoryview](), list[memoryview]()
    names, kinds = dict[int, str](), dict[str, int]()
    for number, value in wire.fields(message):
        if isinstance(value, int):
            continue
        if number == 2:
            name = _text(value)
        elif number == 3:
            lines.append(value)
        elif number == 4:
            title, names[title] = _entry(value)
        elif number == 5:
            kind, told = _entry(value)
            kinds[told] = kind
        elif number == 6:
            stats.append(value)
        if len(lines) > room or max(len(names), len(kinds), len(stats)) > _MOST_NAMES:
            raise ValueError(f"its plane {name!r} has too many lines or names")
    # On a host, the stats of an event tell whether it is an operation of a program.
    is_host = "hlo_op" in kinds and not name.startswith("/device:")
    untold, operations, read_lines = set(names if is_host else ()), set[int](), list[Line]()
    for line in lines:
        found, events = _line(line)
        read_lines.append(found)
        for title, event in events.first(untold) if untold else ():
            stats_of = (dict(wire.fields(stat)) for stat in wire.messages(event, 4))
            if any(stat.get(1) == kinds["hlo_op"] for stat in stats_of):
                operations.add(title)
    for stat in map(dict, map(wire.fields, stats)):
        when = stat.get(3, stat.get(4))
        if stat.get(1) == kinds.get("profile_start_time", -1) and isinstance(when, int):
            zero = _nanoseconds(when)
    return Plane(name, tuple(read_lines), names, frozenset(operations)), zero


def _entry(message: memoryview) -> tuple[int, str]:
    """Read an entry of a plane's maps: a number, and the name that it stands for."""
    key, texts = 0, {2: "", 4: ""}
    for number, value in wire.fields(message):
        if number == 1 and isinstance(value, int):
            key = value
        elif number == 2 and isinstance(value, memoryview):
            for inner, told in wire.fields(value):
                if inner in texts and isinstance(told, memoryview):
                    texts[inner] = _text(told)
    # On TPUs, operations are called by their HLO, "%add.1 = f32[8]...", and shown by their names.
    return key, texts[4] if texts[4] and texts[2].startswith("%") else texts[2]


def _line(view: memoryview) -> tuple[Line, _Events]:
    name, zero, places = "", 0, array("q")
    message = bytes(view)  # It is indexed faster than a view.
    at, end = 0, len(message)
    while at < end:
        # Nearly all are events of less than 128 or 16384 bytes, which this passes over quickly.
        if message[at] == _EVENT_KEY and end - at > 2:
            size, body = message[at + 1], at + 2
            if size > 0x7F and message[body] <= 0x7F:
                size, body = size & 0x7F | message[body] << 7, body + 1
            if size <= 0x7F or body == at + 3:
                places.append(at)
                at = body + size
                continue
        number, value, field = next(wire.encoded_fields(view[at:]))
        if number == _EVENT and isinstance(value, memoryview):
            places.append(at)
        elif number == 3 and isinstance(value, int):
            zero = _nanoseconds(value)
        elif number == 2 and isinstance(value, memoryview):
            name = _text(value)
        at += len(field)
    if at > end:
        raise ValueError("an event ends after its line")
    events = _Events(view, np.frombuffer(places, np.int64))
    titles, starts, durations = events.columns.values()
    starts //= 1000
    starts += zero
    return Line(name, starts, durations, titles), events


class _Events:
    """The events of a line, which are decoded together: field by field, not one by one."""

    def __init__(self, message: memoryview, places: Integers) -> None:
        self.message = message
        self.data = np.frombuffer(message, np.uint8)
        self.places = places  # Where the key of each event stands.
        #: By the number of the field: the name's number, the beginning and the duration.
        self.columns = {number: np.zeros(len(places), np.int64) for number in (1, 2, 3)}
        for first in range(0, len(places), _BATCH):
            self.decode(np.arange(first, min(first + _BATCH, len(places))))
        for number in (2, 3):
            column = self.columns[number]
            if column.size and not 0 <= column.min() <= column.max() <= _LATEST_NS:
                raise ValueError("an event has an impossible time")

    def decode(self, rows: Integers) -> None:
        """Decode the events of these numbers."""
        sizes, at = self.varints(self.places[rows] + 1, np.full(len(rows), len(self.data)))
        ends = at + sizes
        while True:
            left = at < ends
            rows, at, ends = rows[left], at[left], ends[left]
            if len(rows) < _FEW:
                break
            keys, values_at = self.varints(at, ends)
            numbers, kinds = keys >> 3, keys & 7
            if ((kinds != 0) & (kinds != 2)).any():  # No field of today's events has another form.
                break
            values, at = self.varints(values_at, ends)
            for number, column in self.columns.items():
                chosen = (numbers == number) & (kinds == 0)
                column[rows[chosen]] = values[chosen]
            if ((kinds == 2) & ((values < 0) | (values > ends - at))).any():
                raise ValueError("a field ends after its event")
            at += np.where(kinds == 2, values, 0)
        for row, start, end in zip(rows.tolist(), at.tolist(), ends.tolist(), strict=True):
            for number, value in wire.fields(self.message[start:end]):
                if number in self.columns:
                    [self.columns[number][row]] = wire.integers(value)

    def varints(self, at: Integers, ends: Integers) -> tuple[Integers, Integers]:
        """Return the number that stands at each place, and where each ends."""
        values, at, left = np.zeros(len(at), np.int64), at.copy(), np.arange(len(at))
        for shift in range(0, 70, 7):
            places = at[left]
            if (places >= ends[left]).any():
                break
            found = self.data[places]
            values[left] |= (found & 0x7F).astype(np.int64) << shift
            at[left] = places + 1
            left = left[found > 0x7F]
            if not len(left):
                return values, at
        raise ValueError("a number does not end inside its event")

    def first(self, wanted: set[int]) -> Iterator[tuple[int, memoryview]]:
        """Yield the first event of each name that is wanted, which then is so no more."""
        titles = self.columns[1]
        for start in range(0, len(titles), _BATCH):
            found, rows = np.unique(titles[start : start + _BATCH], return_index=True)
            at = dict(zip(found.tolist(), self.places[start + rows].tolist(), strict=True))
            for title in wanted.intersection(at):
                wanted.remove(title)
                yield title, next(wire.messages(self.message[at[title] :], _EVENT))


def _text(value: memoryview) -> str:
    return str(value, "utf-8", "replace")


def _nanoseconds(value: int) -> int:
    if value > _LATEST_NS:
        raise ValueError("a time is impossible")
    return value
