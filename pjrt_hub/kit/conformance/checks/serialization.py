"""Serialized executables: there and back, in another process, damaged; the optimized program."""

from __future__ import annotations

import base64
from contextlib import suppress
from functools import partial

import numpy as np

from pjrt_hub.errors import PjrtError, PluginInternalError, UnimplementedError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Failed, Skipped, Unsupported, equal, expect, raise_as
from pjrt_hub.kit.conformance.programs import ADD
from pjrt_hub.kit.conformance.separate_process import Died, run
from pjrt_hub.kit.conformance.subject import Subject, a_compiler
from pjrt_hub.running.capi import irregular, table, unchecked, wire
from pjrt_hub.running.program.compile_options import CompileOptions

#: With this many flips, a plugin that dies of every fiftieth flip is found, whatever it wrote.
_FLIPS = 256


@check(number=139)
def round_trip(subject: Subject) -> None:
    """Serialize a + b, deserialize it -> the exact values; a different fingerprint is noted."""
    first = subject.compile(ADD)
    loaded = subject.deserialize(_bytes_of(subject, first))
    subject.expect_add(loaded)
    name = "PJRT_Executable_Fingerprint"
    if subject.api.has(name):
        executables = (subject.executable(each) for each in (first, loaded))
        before, after = [subject.call(name, executable=each) for each in executables]
        if before != after:
            subject.note("the fingerprint is another one after the round trip")


@check(needs="plugin", number=139, seconds=60)
def serialize(subject: Subject) -> None:
    """Serialize an executable -> bytes, which its deleter frees; the executable still works."""
    executable = subject.compile_executable()
    for what in ("of an executable", "when asked again"):
        data = subject.api.call("PJRT_Executable_Serialize", executable=executable)
        expect(bool(data), f"expected bytes {what}, found none")


@check(number=139)
def deleters(subject: Subject) -> None:
    """Ask for each answer that its caller frees -> it comes with a deleter."""
    loaded = subject.compile(ADD)
    asked = 0
    for name, what, address in (
        ("PJRT_Executable_Serialize", "executable", subject.executable(loaded)),
        ("PJRT_Executable_GetCompileOptions", "executable", subject.executable(loaded)),
        ("PJRT_LoadedExecutable_GetDeviceAssignment", "executable", loaded),
        ("PJRT_TopologyDescription_Serialize", "topology", subject.topology),
        ("PJRT_Device_GetAttributes", "device", subject.device),
    ):
        if not subject.api.has(name):
            continue
        with suppress(UnimplementedError):
            has_one = unchecked.has_deleter(subject.api, name, **{what: address})
            expect(has_one, f"{name}: expected the deleter of what it gives, found NULL")
            asked += 1
    if not asked:
        raise Unsupported("the plugin has none of these functions")


@check(number=139, seconds=60)
def new_process(subject: Subject) -> None:
    """Serialize a + b, deserialize it in a new process -> the exact values there."""
    data = _bytes_of(subject, subject.compile(ADD))
    with raise_as(Failed, "expected the exact values in a new process, found that it", Died):
        run(subject, load_and_run, base64.b64encode(data).decode(), seconds=45)


def load_and_run(subject: Subject, data: str) -> None:
    """Run an executable in the new process."""
    subject.expect_add(subject.deserialize(base64.b64decode(data)))


@check(number=140)
def junk(subject: Subject) -> None:
    """Deserialize invalid bytes -> an error."""
    junk = {"no bytes": b"", "bytes of junk": b"\xff" * 64, "text": b"this is no executable"}
    for what, data in junk.items():
        _refuses(subject, data, f"{what} as an executable")


@check(number=140)
def truncated(subject: Subject) -> None:
    """Deserialize the first half and three quarters of an executable -> an error."""
    whole = _bytes_of(subject, subject.compile(ADD))
    for size in (len(whole) // 2, len(whole) * 3 // 4):
        _refuses(subject, whole[:size], f"the first {size} of {len(whole)} bytes")


@check(number=140)
def flipped(subject: Subject) -> None:
    """Deserialize an executable with one byte flipped, 256 times -> no crash; success is noted."""
    whole, taken = _bytes_of(subject, subject.compile(ADD)), 0
    places = range(0, len(whole), -(-len(whole) // _FLIPS))
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        try:
            subject.destroy(subject.deserialize(bytes(damaged)))
        except PjrtError:
            continue
        taken += 1
    if taken:
        subject.note(f"{taken} of {len(places)} flipped bytes are not noticed")
    subject.usable()


@check(needs="devices:2", number=141, since=71)
def overridden_options(subject: Subject) -> None:
    """Deserialize a + b with options that name the second device -> it runs there."""
    data = _bytes_of(subject, subject.compile(ADD))
    second = subject.devices[1]
    options = CompileOptions(device_ids=[[subject.describe(second, "Id")]]).serialize()
    loaded = subject.deserialize(data, overridden_serialized_compile_options=options)
    found = subject.call("PJRT_LoadedExecutable_AddressableDevices", executable=loaded)
    equal(found, [second], "the addressable devices")
    subject.expect_add(loaded, second)


@check(number=142, since=95, seconds=60)
def load_twice(subject: Subject) -> None:
    """Load one executable twice -> both give the exact values."""
    mine = subject.call("PJRT_Client_TopologyDescription", client=subject.client)
    with a_compiler():
        executable = subject.compile_ahead(topology=mine, client=subject.client)
    for _ in range(2):
        subject.expect_add(subject.load(executable))


@check(needs="plugin", number=143, seconds=60)
def optimized_program(subject: Subject) -> None:
    """Ask for the optimized program's size, then for its bytes -> a message, and a format."""
    executable = subject.compile_executable()
    code, form = irregular.optimized_program(subject.api, executable)
    expect(bool(code), "expected a program, found no bytes")
    expect(bool(form), "expected the name of its format, found none")
    if form.startswith("hlo"):
        with raise_as(Failed, f"expected a message in the format {form}, found", ValueError):
            fields = dict(wire.fields(memoryview(code)))
        expect(1 in fields, f"expected the first field of {form}, found {sorted(fields)}")
    again, _ = irregular.optimized_program(subject.api, executable)
    equal(len(again), len(code), "the size, asked again")


@check(needs="plugin", number=143, seconds=60)
def optimized_program_too_small(subject: Subject) -> None:
    """Ask for the optimized program with room for one byte less -> an error, no write past it."""
    executable = subject.compile_executable()
    code, _ = irregular.optimized_program(subject.api, executable)
    if not code:
        raise Skipped("the optimized program has no bytes")
    room = np.full(len(code), 0xA5, np.uint8)
    given = {"code": room.ctypes.data, "code_size": len(code) - 1}
    program = unchecked.Sized("PJRT_Program", table.STRUCT_SIZE["PJRT_Program"], **given)
    ask = partial(subject.call, "PJRT_Executable_OptimizedProgram", executable=executable)
    what = "an optimized program with room for one byte less"
    subject.expect_error(lambda: ask(program=program.address), what)
    equal(int(room[-1]), 0xA5, "the byte behind the room")


def _bytes_of(subject: Subject, loaded: int) -> bytes:
    """Serialize an executable; skip the check if there are no bytes, as `serialize` fails then."""
    executable = subject.executable(loaded)
    data = subject.api.call("PJRT_Executable_Serialize", executable=executable)
    if not data:
        raise Skipped("the plugin serializes an executable to no bytes")
    return data


def _refuses(subject: Subject, data: bytes, what: str) -> None:
    load = partial(subject.deserialize, data)
    subject.expect_refusal(load, what, code=PluginInternalError.code)
