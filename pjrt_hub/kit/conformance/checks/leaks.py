"""What each use of a plugin leaves behind: memory, open files and threads must not grow."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.checks.transfers import Transfer
from pjrt_hub.kit.conformance.finding import Failed, Skipped, Unsupported, raise_as
from pjrt_hub.kit.conformance.programs import ADD, DOUBLE, NUMBERS
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.capi import ambient, unchecked
from pjrt_hub.running.capi.call_counter import CallCounter

#: A `Use` is a function that does one thing once.
Use = Callable[[], object]
#: A `Prepare` is a function that prepares a use and returns it.
Prepare = Callable[[Subject], Use]

#: Growth counts as a leak only if it goes on until one of these times has passed.
_SECONDS = 4.0  # Seconds of processor time.
_LATEST = 45.0  # Seconds of real time, for work that other processes or a device do.
#: Each use must lose more than this to count, because resident memory is counted in pages.
_RESIDENT_NBYTES = 2048
_WORDS = {
    "allocated": "bytes of malloc",
    "resident": "resident bytes",
    "files": "open files",
    "threads": "threads",
}
_PROPERTIES = (
    *("Name", "NumOutputs", "OutputElementTypes", "Fingerprint", "GetCompiledMemoryStats"),
    *("GetCompileOptions", "Serialize"),
)


def _put(subject: Subject) -> Use:
    return lambda: subject.destroy(subject.put(NUMBERS))


def _get(subject: Subject) -> Use:
    buffer = subject.put(NUMBERS)
    return lambda: subject.get(buffer)


def _execute(subject: Subject) -> Use:
    executable, buffer = subject.compile(ADD), subject.put(NUMBERS)

    def run() -> None:
        rows, events = subject.launch(executable, [[buffer, buffer]], events=True, num_outputs=1)
        for event in events:
            subject.await_(event)
        subject.destroy(subject.wait(rows[0][0]))

    return run


def _donate(subject: Subject) -> Use:
    text = DOUBLE.replace("%a: tensor<4xf32>", "%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}")
    executable = subject.compile(text)

    def run() -> None:
        given = subject.put(NUMBERS)
        ((output,),), _ = subject.launch(executable, [[given]], num_outputs=1)
        subject.wait(output)
        subject.destroy(output, given)

    return run


def _compile(subject: Subject) -> Use:
    return lambda: subject.destroy(subject.compile(DOUBLE))


def _deserialize(subject: Subject) -> Use:
    executable = subject.executable(subject.compile(ADD))
    code = subject.call("PJRT_Executable_Serialize", executable=executable)
    return lambda: subject.destroy(subject.deserialize(code))


def _executable(subject: Subject) -> Use:
    loaded = subject.compile(ADD)

    def ask() -> None:
        executable = subject.executable(loaded)
        for name in _PROPERTIES:
            with suppress(Unsupported):
                subject.call(f"PJRT_Executable_{name}", executable=executable)
        subject.destroy(executable)

    return ask


def _copy(subject: Subject) -> Use:
    buffer = subject.put(NUMBERS)

    def copy() -> None:
        subject.destroy(subject.wait(subject.copy(buffer, device=subject.devices[-1])))

    with raise_as(Unsupported, "it makes no copy:"):
        copy()
    return copy


def _event(subject: Subject) -> Use:
    buffer, called = subject.put(NUMBERS), CallCounter()

    def wait() -> None:
        event = subject.ready(buffer)
        subject.call("PJRT_Event_IsReady", event=event)
        subject.on_ready(event, called)
        subject.await_(event)
        with suppress(Unsupported):
            made = subject.own("Event", subject.call("PJRT_Event_Create"))
            subject.call("PJRT_Event_Set", event=made, error_code=0, error_message="")
            subject.await_(made)

    return wait


def _error(subject: Subject) -> Use:
    name, inputs = "PJRT_Client_LookupDevice", {"client": subject.client, "id": -1}

    def fail() -> None:
        with unchecked.provoke(subject.api, name, **inputs) as error:
            if error:
                subject.call("PJRT_Error_Message", error=error)

    return fail


def _refuse(subject: Subject) -> Use:
    def fail() -> None:
        with suppress(PjrtError, Unsupported):
            subject.destroy(subject.compile(b"no program"))
        with suppress(PjrtError, Unsupported):
            client = subject.create_client({"no_such_option_of_pjrt": 1})
            subject.destroy(client)  # The plugin took the unknown option.

    return fail


def _questions(subject: Subject) -> Use:
    buffer = subject.put(NUMBERS)
    names = ("Dimensions", "UnpaddedDimensions", "ElementType", "Memory", "OnDeviceSizeInBytes")

    def ask() -> None:
        for name in names:
            subject.call(f"PJRT_Buffer_{name}", buffer=buffer)
        subject.call("PJRT_Plugin_Attributes")
        with suppress(Unsupported):
            subject.call("PJRT_Device_MemoryStats", device=subject.device)
        subject.describe(subject.device, "Attributes")
        subject.describe(subject.device, "DebugString")

    return ask


def _transfer(subject: Subject) -> Use:
    def send() -> None:
        transfer = Transfer(subject, [4])
        buffer = transfer.buffer(0)
        transfer.send(0, NUMBERS, 0, last=True)
        subject.wait(buffer)
        transfer.end()
        subject.destroy(buffer)

    return send


def _client(subject: Subject) -> Use:
    def live() -> None:
        with raise_as(Skipped, "it makes no second client:"):
            client = subject.create_client()
        subject.destroy(client)

    return live


class _Kind(NamedTuple):
    """A kind of use: its number in a round, and the bytes of malloc for each that are a leak.

    Growth is measured over `rounds`. A pool of threads keeps the last thousand tasks, and
    frees them all at once: fewer uses would show the growth without the freeing.
    """

    prepare: Prepare
    title: str
    uses: int = 200
    rounds: int = 10
    nbytes: int = 24
    since: int = 0


_OF_EVENTS = "Await a buffer's ready event, by a callback too, and one that the host sets"
KINDS = {
    "put": _Kind(_put, "Put an array and destroy the buffer"),
    "get": _Kind(_get, "Copy a buffer to the host"),
    "execute": _Kind(_execute, "Run a program, await its events, destroy its output"),
    "donate": _Kind(_donate, "Run a program that donates its argument"),
    "compile": _Kind(_compile, "Compile a program and destroy it", 3, 4, 1024),
    "copy": _Kind(_copy, "Copy a buffer to a device and destroy the copy"),
    "deserialize": _Kind(_deserialize, "Load a serialized program and destroy it", 3, 4, 1024),
    "executable": _Kind(_executable, "Ask for a program's executable and its properties"),
    "event": _Kind(_event, _OF_EVENTS),
    "error": _Kind(_error, "Provoke an error, read and destroy it"),
    "refused": _Kind(_refuse, "Send junk as a program, and an unknown option", 20, 10, 64),
    "questions": _Kind(_questions, "Ask buffers, the device and the plugin"),
    "transfer": _Kind(_transfer, "Fill a buffer by a transfer manager", 100, 20, since=60),
    "client": _Kind(_client, "Create a client and destroy it", 3, 4, 1024),
}


def _leaks(kind: _Kind, subject: Subject) -> None:
    """Fail if use after use goes on leaving something behind for seconds."""
    use = kind.prepare(subject)
    # If the plugin frees something meanwhile, it can hide a leak, so growth is measured twice.
    for _ in range(2):
        _settle(use, kind)


def _settle(use: Use, kind: _Kind) -> None:
    states = deque([_after(use, kind.uses)], maxlen=kind.rounds + 1)
    limits = {"allocated": kind.nbytes, "resident": _RESIDENT_NBYTES, "files": 0.9, "threads": 0.9}
    end, latest = time.process_time() + _SECONDS, time.monotonic() + _LATEST
    while len(states) <= kind.rounds or (time.process_time() < end and time.monotonic() < latest):
        states.append(_after(use, kind.uses))
        if len(states) <= kind.rounds:
            continue
        number = kind.rounds * kind.uses
        grown = {name: (states[-1][name] - states[0][name]) / number for name in states[0]}
        found = [f"{n:.0f} {_WORDS[name]}" for name, n in grown.items() if n > limits[name]]
        if not found:
            return
    raise Failed(f"expected nothing left of each use, found {' and '.join(found)}")


def _after(use: Use, count: int) -> dict[str, int]:
    """Measure what the process holds after a round of uses and a short pause."""
    for _ in range(count):
        use()
    gc.collect()
    time.sleep(0.005)
    try:
        return ambient.holdings()
    except OSError as exc:  # The process cannot open any more files.
        found = f"in the end {exc.strerror}"
        raise Failed(f"expected nothing left of each use, found {found}") from exc


for _name, _kind in KINDS.items():
    check(
        since=_kind.since,
        name=_name,
        seconds=120,
        title=f"{_kind.title}, repeatedly -> memory, open files and threads do not grow",
    )(partial(_leaks, _kind))
