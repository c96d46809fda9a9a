"""Serialized executables: there and back, in another process, damaged; the optimized program."""

from __future__ import annotations

import base64

import numpy as np

from pjrt_hub._capi import irregular, table, unchecked, wire
from pjrt_hub.conformance import part
from pjrt_hub.conformance.check import check
from pjrt_hub.conformance.finding import Failed, equal, expect, refused
from pjrt_hub.conformance.programs import ADD, adds, compiled
from pjrt_hub.conformance.refusal import refuses
from pjrt_hub.conformance.subject import Subject
from pjrt_hub.errors import PjrtError, PluginInternalError
from pjrt_hub.runtime.compile_options import CompileOptions

_FLIPS = 16


@check(number=139)
def round_trip(subject: Subject) -> None:
    """Serialize a + b, deserialize it -> the exact values; another fingerprint is told."""
    first = subject.compile(ADD)
    loaded = _load(subject, _serialized(subject, first))
    adds(subject, loaded)
    name = "PJRT_Executable_Fingerprint"
    if subject.api.has(name):
        before, after = (
            subject.call(name, executable=subject.executable(each)) for each in (first, loaded)
        )
        if before != after:
            subject.note("the fingerprint is another one after the round trip")


@check(needs="plugin", number=139, seconds=60)
def serialize(subject: Subject) -> None:
    """Serialize an executable -> bytes, which its deleter frees; the executable goes on."""
    executable = compiled(subject)
    data = irregular.serialized(subject.api, "PJRT_Executable_Serialize", executable=executable)
    expect(bool(data), "expected bytes of an executable, found none")
    again = irregular.serialized(subject.api, "PJRT_Executable_Serialize", executable=executable)
    expect(bool(again), "expected bytes when asked again, found none")


@check(number=139, seconds=60)
def new_process(subject: Subject) -> None:
    """Serialize a + b, deserialize it in a new process -> the exact values there."""
    data = _serialized(subject, subject.compile(ADD))
    try:
        part.run(subject, load_and_run, base64.b64encode(data).decode(), seconds=45)
    except part.Died as exc:
        raise Failed(f"expected the exact values in a new process, found that it {exc}") from exc


def load_and_run(subject: Subject, data: str) -> None:
    """What the new process does."""
    adds(subject, _load(subject, base64.b64decode(data)))


@check(number=140)
def junk(subject: Subject) -> None:
    """Deserialize what is no executable -> an error."""
    for what, data in {
        "no bytes": b"",
        "bytes of junk": b"\xff" * 64,
        "text": b"this is no executable",
    }.items():
        _refuses(subject, data, f"{what} as an executable")


@check(number=140)
def truncated(subject: Subject) -> None:
    """Deserialize an executable that lacks its second half, or a quarter -> an error."""
    whole = _serialized(subject, subject.compile(ADD))
    for size in (len(whole) // 2, len(whole) * 3 // 4):
        _refuses(subject, whole[:size], f"the first {size} of {len(whole)} bytes")


@check(number=140)
def flipped(subject: Subject) -> None:
    """Deserialize an executable with one byte flipped, at 16 places -> no crash; told if taken."""
    whole, taken = _serialized(subject, subject.compile(ADD)), 0
    for place in range(0, len(whole), -(-len(whole) // _FLIPS)):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        try:
            subject.destroy(_load(subject, bytes(damaged)))
        except PjrtError:
            continue
        taken += 1
    if taken:
        subject.note(f"{taken} of {_FLIPS} flipped bytes are not noticed")
    subject.usable()


@check(needs="devices:2", number=141, since=71)
def overridden_options(subject: Subject) -> None:
    """Deserialize a + b with options that name the second device -> it runs there."""
    data = _serialized(subject, subject.compile(ADD))
    second = subject.devices[1]
    options = CompileOptions(device_ids=[[subject.describe(second, "Id")]]).serialize()
    loaded = _load(subject, data, overridden_serialized_compile_options=options)
    found = subject.call("PJRT_LoadedExecutable_AddressableDevices", executable=loaded)
    equal(found, [second], "the addressable devices")
    adds(subject, loaded, second)


@check(number=142, since=95, seconds=60)
def load_twice(subject: Subject) -> None:
    """Load one executable twice -> both give the exact values."""
    options = CompileOptions().serialize()
    made = subject.call(
        "PJRT_Compile",
        topology=subject.call("PJRT_Client_TopologyDescription", client=subject.client),
        program={"code": ADD, "format": "mlir"},
        compile_options=options,
        client=subject.client,
    )
    executable = subject.own("Executable", made)
    for _ in range(2):
        loaded = subject.call(
            "PJRT_Client_Load",
            client=subject.client,
            executable=executable,
            compile_options=options,
        )
        adds(subject, subject.own("LoadedExecutable", loaded))


@check(needs="plugin", number=143, seconds=60)
def optimized_program(subject: Subject) -> None:
    """The optimized program: ask for its size, then for that many bytes -> a message, a format."""
    executable = compiled(subject)
    code, form = irregular.optimized_program(subject.api, executable)
    expect(bool(code), "expected a program, found no bytes")
    expect(bool(form), "expected the name of its format, found none")
    if form.startswith("hlo"):
        try:
            fields = dict(wire.fields(memoryview(code)))
        except ValueError as exc:
            raise Failed(f"expected a message in the format {form}, found {exc}") from exc
        expect(1 in fields, f"expected the first field of {form}, found {sorted(fields)}")
    again, _ = irregular.optimized_program(subject.api, executable)
    equal(len(again), len(code), "the size, asked again")


@check(needs="plugin", number=143, seconds=60)
def optimized_program_too_small(subject: Subject) -> None:
    """The optimized program with room for one byte less -> an error, nothing written behind."""
    executable = compiled(subject)
    code, _ = irregular.optimized_program(subject.api, executable)
    room = np.full(len(code), 0xA5, np.uint8)
    program = unchecked.Sized(
        "PJRT_Program",
        table.STRUCT_SIZE["PJRT_Program"],
        code=room.ctypes.data,
        code_size=len(code) - 1,  # after the address, which counts nothing
    )
    refused(
        lambda: subject.call(
            "PJRT_Executable_OptimizedProgram", executable=executable, program=program.address
        ),
        what="an optimized program with room for one byte less",
    )
    equal(int(room[-1]), 0xA5, "the byte behind the room")


def _serialized(subject: Subject, loaded: int) -> bytes:
    executable = subject.executable(loaded)
    return irregular.serialized(subject.api, "PJRT_Executable_Serialize", executable=executable)


def _load(subject: Subject, data: bytes, **more: bytes) -> int:
    loaded = subject.call(
        "PJRT_Executable_DeserializeAndLoad",
        client=subject.client,
        serialized_executable=data,
        **more,
    )
    return subject.own("LoadedExecutable", loaded)


def _refuses(subject: Subject, data: bytes, what: str) -> None:
    refuses(subject, lambda: _load(subject, data), what, code=PluginInternalError.code)
