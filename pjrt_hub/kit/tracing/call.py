"""Calls that were recorded, with the plugin and the thread of each."""

from __future__ import annotations

from dataclasses import dataclass, field

from pjrt_hub.kit.tracing.memory import Memory


@dataclass(frozen=True)
class Thread:
    """A thread that made calls; `number` counts those of its process from 1."""

    pid: int
    number: int
    tid: int
    name: str
    lost: int


@dataclass(frozen=True)
class Plugin:
    """A plugin that was wrapped."""

    pid: int
    number: int
    minor: int
    path: str


@dataclass
class Call:
    """One call of the C API.

    Attributes:
        number: counts the calls of the process from 1.
        function: of C, "PJRT_Client_Create".
        start_ns: since the beginning of the recording.
        duration_ns: None where the call did not return.
        error: the address of the error that it returned, or 0.
        code: of that error, "INVALID_ARGUMENT", where the host asked for it.
        message: of that error, where the host asked for it.
        answered: whether the validation layer answered instead of the plugin.
        given: the memory that the arguments pointed at before the call.
        got: the same after it.
    """

    number: int
    function: str
    thread: Thread
    plugin: int
    start_ns: int
    given: Memory
    duration_ns: int | None = None
    error: int = 0
    code: str = ""
    message: str = ""
    answered: bool = False
    got: Memory = field(default_factory=Memory)

    @property
    def status(self) -> str:
        """The error in words, "INVALID_ARGUMENT: ..."; "" where there is none."""
        words = ": ".join(filter(None, (self.code, self.message)))
        return words or (f"error {self.error:#x}" if self.error else "")


@dataclass
class Upcall:
    """An event's callback: the plugin calls the host; `number` is of the call that registered."""

    number: int
    event: int
    error: int
    thread: Thread
    start_ns: int
    duration_ns: int | None = None
