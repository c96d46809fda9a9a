"""The simplest use of what every other area relies on. A failure here hides what depends on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance import programs
from pjrt_hub.kit.conformance.artifact import ARTIFACT, BYTECODE, TEXT
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Failed, Unsupported, equal, expect, some_text, text
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.program.program import Program

_NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)
#: A step that takes more seconds than this is noted as slow.
_SLOW = 5


@check(needs="plugin", seconds=60, number=23, proves=("PJRT_Client_Create",))
def client(subject: Subject) -> None:
    """Create a client -> a client, not NULL."""
    expect(subject.client != 0, "expected a PJRT_Client, found NULL")
    _note_slow(subject, "PJRT_Client_Create")


@check(needs="plugin", number=27, proves=("PJRT_Client_PlatformName",))
def platform(subject: Subject) -> None:
    """Ask the client for its platform's name -> a name."""
    some_text(_ask_client(subject, "PlatformName"), "the platform's name")


@check(needs="plugin", proves=("PJRT_Client_PlatformVersion",))
def platform_version(subject: Subject) -> None:
    """Ask the client for its platform's version -> text."""
    text(_ask_client(subject, "PlatformVersion"), "the platform's version")


@check(needs="plugin", number=37, proves=("PJRT_Client_AddressableDevices",))
def devices(subject: Subject) -> None:
    """Ask the client for the devices of this process -> each has an address."""
    found = subject.devices
    expect(all(found), f"expected the addresses of devices, found {found}")


@check(needs="plugin", number=39, proves=("PJRT_Device_GetDescription",))
def description(subject: Subject) -> None:
    """Ask the first device for its description -> a description, not NULL."""
    found = subject.call("PJRT_Device_GetDescription", device=subject.device)
    expect(bool(found), "expected a PJRT_DeviceDescription, found NULL")


@check(needs="plugin", number=40, proves=("PJRT_DeviceDescription_Kind",))
def device_kind(subject: Subject) -> None:
    """Ask the description of the first device for its kind -> a name."""
    some_text(subject.describe(subject.device, "Kind"), "the kind of the first device")


@check(number=92, proves=("PJRT_Client_BufferFromHostBuffer",))
def put(subject: Subject) -> None:
    """Put an f32[2,3] on the device -> a buffer, and its events fire."""
    subject.put(_NUMBERS)


@check(number=95, proves=("PJRT_Buffer_ElementType",))
def element_type(subject: Subject) -> None:
    """Ask a buffer of f32[2,3] for its element type -> f32."""
    found = subject.call("PJRT_Buffer_ElementType", buffer=subject.put(_NUMBERS))
    equal(found, dtypes.of_numpy(_NUMBERS.dtype).code, "the element type of f32[2,3]")


@check(number=95, proves=("PJRT_Buffer_Dimensions",))
def dimensions(subject: Subject) -> None:
    """Ask a buffer of f32[2,3] for its dimensions -> 2 and 3."""
    found = subject.call("PJRT_Buffer_Dimensions", buffer=subject.put(_NUMBERS))
    equal(list(found), [2, 3], "the dimensions of f32[2,3]")


@check(number=103, proves=("PJRT_Buffer_ToHostBuffer",))
def read(subject: Subject) -> None:
    """Put an f32[2,3] on the device and copy it back -> the same values."""
    found = subject.get(subject.put(_NUMBERS))
    equal(found.tolist(), _NUMBERS.tolist(), "the values that come back")


@check(number=114, proves=("PJRT_Event_IsReady",))
def is_ready(subject: Subject) -> None:
    """Await a buffer's ready event, then ask IsReady -> true."""
    event = subject.ready(subject.put(_NUMBERS))
    subject.call("PJRT_Event_Await", event=event)
    subject.expect_ready(event, "after Await")


@check(number=115, proves=("PJRT_Event_OnReady",))
def callback(subject: Subject) -> None:
    """Call OnReady on a buffer's ready event -> the callback is called."""
    called = subject.on_ready(subject.ready(subject.put(_NUMBERS)))
    expect(len(called.wait()) > 0, "a callback on a ready event: expected a call, found none")


@check(number=59, seconds=60, proves=("PJRT_Client_Compile",))
def compile(subject: Subject) -> None:
    """Compile a + b of f32[4] in some form that the plugin takes -> a loaded executable."""
    _require_taken(subject, TEXT, ARTIFACT, BYTECODE)
    _note_slow(subject, "PJRT_Client_Compile")


@check(number=60, seconds=60, proves=(ARTIFACT,))
def artifact(subject: Subject) -> None:
    """Compile a + b as the portable artifact that JAX sends -> a loaded executable."""
    try:
        _require_taken(subject, ARTIFACT)
    except (PjrtError, Unsupported) as exc:
        words = str(getattr(exc, "message", exc))
        raise Failed(f"JAX sends portable artifacts: expected success, found: {words}") from None
    version = Program(subject.add(ARTIFACT), "mlir").stablehlo_version or ()
    subject.note(f"takes portable artifacts, here of StableHLO {'.'.join(map(str, version))}")


@check(seconds=60)
def bytecode(subject: Subject) -> None:
    """Compile a + b as MLIR bytecode, which plugins may refuse -> a loaded executable."""
    _may_refuse(subject, BYTECODE)


@check(number=59, seconds=60, proves=(TEXT,))
def stablehlo_text(subject: Subject) -> None:
    """Compile a + b as StableHLO text, which plugins may refuse -> a loaded executable."""
    _may_refuse(subject, TEXT)


@check(number=69, proves=("PJRT_LoadedExecutable_GetExecutable", "PJRT_Executable_NumOutputs"))
def outputs(subject: Subject) -> None:
    """Ask a + b how many outputs it has -> one."""
    equal(subject.num_outputs(subject.compile(programs.ADD)), 1, "the outputs of a + b")


@check(number=74, proves=("PJRT_LoadedExecutable_Execute",))
def execute(subject: Subject) -> None:
    """Run a + b of f32[4] -> the exact values."""
    subject.expect_add(subject.compile(programs.ADD))


def _require_taken(subject: Subject, form: str, *others: str) -> None:
    """Compile a + b in the first form that the plugin takes, or raise its error for the last."""
    try:
        subject.compile(subject.add(form))
    except (PjrtError, Unsupported):
        if not others:
            raise
        _require_taken(subject, *others)


def _may_refuse(subject: Subject, form: str) -> None:
    try:
        _require_taken(subject, form)
    except PjrtError as exc:
        subject.note(f"takes no {form}")
        raise Unsupported(f"the plugin does not take {form}: {exc.message}") from exc


def _ask_client(subject: Subject, what: str) -> Any:
    return subject.call(f"PJRT_Client_{what}", client=subject.client)


def _note_slow(subject: Subject, function: str) -> None:
    if (seconds := subject.took.get(function, 0)) > _SLOW:
        subject.note(f"{function} took {seconds:.0f} s")
