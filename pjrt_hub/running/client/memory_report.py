"""Memory reports: what holds a client's memory, and the hint of errors that say it ran out.

Keeps no reference to a buffer. A hint asks the plugin nothing that it may answer only once earlier
work is done, because that work may wait for the very function that failed.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from pjrt_hub.base import frames
from pjrt_hub.base.listing import Listing, cell, size_text
from pjrt_hub.errors import PjrtError, PjrtHubError, ResourceExhaustedError
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.array.shape_spec import ShapeSpec
from pjrt_hub.running.buffer.buffer import Buffer
from pjrt_hub.running.capi import handle, hotpath
from pjrt_hub.running.device.device import Device
from pjrt_hub.running.device.event import Event

#: The most rows of a table, and the most holders that an error names.
_SHOWN, _NAMED = 20, 5
#: The line that made each buffer, and when, by the buffer's id; None if that is not recorded. A new
#: buffer takes the place of a dead one, so there are no more than buffers ever lived at once.
_origins: dict[int, tuple[str, float]] | None = None
#: Whether buffers are asked now, some of which may answer with an error of their own.
_is_asking = False

T = TypeVar("T")


class Holder(NamedTuple):
    """Living buffers that are alike: of one type, in one place, made by one line.

    Attributes:
        nbytes: the bytes of all of them on the device, with padding.
        number: how many they are.
        type: as in programs, "f32[1024,8]".
        device: the device's name, "cuda:0".
        memory: the memory's name, "device:0"; "" if the plugin does not tell.
        order: the place of the oldest among the client's living buffers, 1 for the oldest of all.
        seconds: the age of the oldest; None if it was not recorded.
        origin: path and line outside of pjrt-hub that made them; "" if that was not recorded.
    """

    nbytes: int
    number: int
    type: str
    device: str
    memory: str
    order: int
    seconds: float | None
    origin: str

    def _row(self) -> dict[str, str]:
        row = {"size": _size(self.nbytes), "count": str(self.number), "type": self.type}
        row |= {"device": self.device, "memory": self.memory, "order": str(self.order)}
        if _origins is not None:
            age = "" if self.seconds is None else f"{self.seconds:.3g} s"
            row |= {"age": age, "origin": self._line}
        return row

    @property
    def _line(self) -> str:
        """The origin with the file's name and folder alone."""
        return os.sep.join(self.origin.split(os.sep)[-2:])


class MemoryReport(NamedTuple):
    """What holds a client's memory; prints as a table, in notebooks of HTML.

    Attributes:
        holders: the client's buffers, grouped, the largest group first.
        devices: what `Device.memory_stats` tells of each device, by its name.
    """

    holders: Listing[Holder]
    devices: dict[str, dict[str, int]]

    def to_json(self) -> str:
        """Return it as JSON: an object of the attributes, the holders a list of objects."""
        rows = [each._asdict() for each in self.holders]
        return json.dumps({"holders": rows, "devices": self.devices}, indent=1) + "\n"

    def _words(self) -> str:
        number, left = sum(each.number for each in self.holders), len(self.holders) - _SHOWN
        size = _size(sum(each.nbytes for each in self.holders))
        more = f", {left} smaller kinds not shown" if left > 0 else ""
        lines = [f"{number} buffer{'s' * (number != 1)}, {size}{more}"]
        for name, stats in self.devices.items():
            of = {"": "bytes_in_use", " at most": "peak_bytes_in_use", " there": "bytes_limit"}
            told = [f"{_size(stats[key])}{what}" for what, key in of.items() if key in stats]
            lines += [f"in use on {name}: {', '.join(told)}"] if told else []
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"{self._words()}\n{self.holders[:_SHOWN] or ''}".rstrip()

    def _repr_html_(self) -> str:
        table = self.holders[:_SHOWN]._repr_html_() if self.holders else ""
        return f"<table><tr>{cell(self._words())}</tr></table>{table}"


Holder.__module__ = "pjrt_hub"  # Type checkers refuse these assignments in a NamedTuple.
MemoryReport.__module__ = "pjrt_hub"


def of(client: Any) -> MemoryReport:
    """Ask a client's plugin about each buffer and device."""
    held = _group([client], is_asked=True)
    stats = {str(each): _answer(each.memory_stats) or {} for each in client.devices}
    return MemoryReport(Listing(held), stats)


def hint(api: int) -> str:
    """Name what holds most in the clients of a plugin, by the address of its `PJRT_Api`.

    Garbage is collected first, so that none is named and the user's next try may succeed.
    """
    if _is_asking:  # The error is that of a failed buffer, which was asked whether it has failed.
        return ""
    gc.collect()
    mine = [each for each in tuple(handle.clients.values()) if each.api.address == api]
    try:
        held = _group((each for each in mine if not each.closed), is_asked=False)
    except Exception:  # The error that is to be explained must not be replaced.
        held = []
    if not held:
        return ""
    lines = (
        f"\n  {_size(each.nbytes)}: {each.number} x {each.type} on {each.device}"
        + (f", made by {each._line}" if each.origin else "")
        for each in held[:_NAMED]
    )
    more = "\nPJRT_HUB_BUFFER_ORIGINS=1 shows the line of each" if _origins is None else ""
    return f"{ResourceExhaustedError.next_step}; most is held by{''.join(lines)}{more}"


def record_origins() -> None:
    """Record the line that makes each buffer of this process from now on, and when.

    What the steps of a stepper make is of the line that made the stepper.
    """
    global _origins
    if _origins is None:
        _origins = {}
        hotpath.note_origins(_note)


def _note(buffer: int) -> None:
    assert _origins is not None
    frame = frames.outside(sys._getframe(1))
    line = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
    _origins[buffer] = line, time.monotonic()


def _group(clients: Iterable[Any], *, is_asked: bool) -> list[Holder]:
    """Group the living buffers of clients, the largest group first, without those that failed.

    If the plugin is not asked, sizes are without padding, and memories unknown.
    """
    global _is_asking
    now, groups = time.monotonic(), dict[tuple[str, ...], Holder]()
    _is_asking = True
    try:
        for client in clients:
            for order, each in enumerate(client._holders(), 1):
                line, made = (_origins or {}).get(id(each), ("", None))
                age = None if made is None else now - made
                for spec, device, nbytes, memory in _held(each, is_asked=is_asked):
                    key = (str(spec), str(device), memory, line)
                    held = groups.get(key) or Holder(0, 0, *key[:3], order, age, line)
                    nbytes = held.nbytes + (spec.nbytes if nbytes is None else nbytes)
                    groups[key] = held._replace(nbytes=nbytes, number=held.number + 1)
    finally:
        _is_asking = False
    return sorted(groups.values(), key=lambda each: -each.nbytes)


def _held(
    holder: Buffer | hotpath.Stepper, *, is_asked: bool
) -> Iterator[tuple[ShapeSpec, Device, int | None, str]]:
    """Yield what an object holds: its type, its place, and what the plugin tells of it."""
    if isinstance(holder, Buffer):
        if not _has_failed(holder):
            spec = ShapeSpec(holder.shape, dtypes.of_code(holder._dtype))
            yield spec, holder.device, *(_measure(holder) if is_asked else (None, ""))
        return
    executable = holder.executable
    for parameter in holder._hidden():  # A state without a Buffer has the type that it becomes.
        slot = executable.signature.parameters[parameter]
        if slot.shape is not None:
            spec = ShapeSpec(slot.shape, dtypes.of_code(slot.code))
            yield spec, executable.devices[0], None, ""


def _has_failed(buffer: Buffer) -> bool:
    """Return whether the value is known to have failed, so that it holds no memory."""
    try:
        event = getattr(buffer, "_ready", None)
        if event is None:  # The property `ready` would leave an event with each buffer.
            with buffer.client._in_call():
                event = Event.of(buffer.client, buffer._ask("PJRT_Buffer_ReadyEvent"))
        if event.is_ready():
            event.wait(0)
    except PjrtHubError as exc:  # Another than PjrtError says that the plugin does not tell.
        return isinstance(exc, PjrtError)
    return False


def _measure(buffer: Buffer) -> tuple[int | None, str]:
    return _answer(lambda: buffer.on_device_nbytes), str(_answer(lambda: buffer.memory) or "")


def _size(nbytes: int) -> str:
    return size_text(nbytes, of_memory=True)


def _answer(ask: Callable[[], T]) -> T | None:
    """Return an answer, or None if there is none, whatever the reason."""
    with suppress(PjrtHubError):
        return ask()
    return None
