"""Calls that were recorded, with the plugin, the thread and the memory of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

#: The arguments of a call get addresses from here on, where no process has memory.
ARGS = 256


class RecordedMemory:
    """Regions of memory; a later one hides an earlier one at the same place."""

    def __init__(self, regions: Iterable[tuple[int, bytes]] = ()) -> None:
        """Keep regions: each an address and the bytes kept."""
        self._regions = list(regions)

    def then(self, later: RecordedMemory) -> RecordedMemory:
        """Return this memory and `later`, which hides this memory in the places of both."""
        return RecordedMemory([*self._regions, *later._regions])

    def read(self, address: int, nbytes: int) -> bytes | None:
        """Return the bytes at an address, or None if they were not kept."""
        for start, data in reversed(self._regions):
            at = address - start
            if at >= 0 and at + nbytes <= len(data):
                return data[at : at + nbytes]
        return None

    def prefix(self, address: int, nbytes: int) -> bytes | None:
        """Return the beginning of an array, as far as it was kept, or None."""
        for start, data in reversed(self._regions):
            if start == address:
                return data[:nbytes]
        return None


@dataclass(frozen=True)
class Thread:
    """A thread that made calls; `number` counts the threads of its process from 1."""

    pid: int
    number: int
    tid: int
    name: str
    lost: int


@dataclass(frozen=True)
class RecordedPlugin:
    """A plugin that was wrapped."""

    pid: int
    number: int
    minor: int
    path: str


@dataclass
class Call:
    """One call of the C API."""

    number: int  # The number of the call in its process, from 1.
    function: str  # The name of the C function, such as "PJRT_Client_Create".
    thread: Thread
    plugin: int
    start_ns: int  # Nanoseconds since the recording began.
    given: RecordedMemory  # What the arguments pointed at before the call.
    duration_ns: int | None = None  # None if the call did not return.
    error: int = 0  # The address of the error that it returned, or 0.
    code: str = ""  # The error's code, such as "INVALID_ARGUMENT", if the host asked for it.
    message: str = ""  # The error's message, if the host asked for it.
    answered: bool = False  # Whether the validation layer answered instead of the plugin.
    got: RecordedMemory = field(default_factory=RecordedMemory)  # The arguments' memory afterwards.

    @property
    def status(self) -> str:
        """The error in words, "INVALID_ARGUMENT: ..."; "" if there is none."""
        words = ": ".join(filter(None, (self.code, self.message)))
        return words or (f"error {self.error:#x}" if self.error else "")


@dataclass(frozen=True)
class End:
    """The end of an execution on one device, where the plugin has no profiler."""

    number: int  # That of the call.
    pid: int
    device: int  # The number of the device in its process.
    name: str  # The name of the program, or "".
    time_ns: int


@dataclass
class Upcall:
    """A plugin's call of an event's callback; `number` is that of the call that registered it."""

    number: int
    event: int
    error: int
    thread: Thread
    start_ns: int
    duration_ns: int | None = None
