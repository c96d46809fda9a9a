"""Topologies: descriptions of devices, present or absent, and compiling for them."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance import finding
from pjrt_hub.kit.conformance.artifact import ARTIFACT, artifact_for
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import ask_twice, equal, expect, expect_reason, text
from pjrt_hub.kit.conformance.programs import ADD
from pjrt_hub.kit.conformance.subject import Subject, a_compiler
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.program.signature import Slot, flatten

_F32 = dtypes.of_numpy("float32").code


@check(needs="topology", number=53)
def texts(subject: Subject) -> None:
    """Ask a topology for its platform's name and version -> text; the name is not empty."""
    for name in ("PlatformName", "PlatformVersion"):
        found = text(_ask(subject, name), name)
        expect(bool(found) or name != "PlatformName", "the name: expected text, found none")


@check(number=53)
def of_client(subject: Subject) -> None:
    """Ask for the client's topology -> the client's platform and number of devices."""
    mine = subject.call("PJRT_Client_TopologyDescription", client=subject.client)
    for name in ("PlatformName", "PlatformVersion"):
        wanted = subject.call(f"PJRT_Client_{name}", client=subject.client)
        found = subject.call(f"PJRT_TopologyDescription_{name}", topology=mine)
        if name == "PlatformName":
            equal(found, wanted, "the platform of the topology")
        elif found != wanted:
            subject.note(f"its version is {found!r}, the client's {wanted!r}")
    descriptions = subject.call("PJRT_TopologyDescription_GetDeviceDescriptions", topology=mine)
    devices = subject.call("PJRT_Client_Devices", client=subject.client)
    equal(len(descriptions), len(devices), "device descriptions")


@check(needs="topology", number=53)
def device_descriptions(subject: Subject) -> None:
    """List a topology's device descriptions -> at least one, each with its own id and a kind."""
    found = _ask(subject, "GetDeviceDescriptions")
    expect(bool(found), "expected a device description, found none")
    ids = [subject.call("PJRT_DeviceDescription_Id", device_description=each) for each in found]
    equal(len(set(ids)), len(ids), "different ids")
    kinds = [subject.call("PJRT_DeviceDescription_Kind", device_description=each) for each in found]
    expect(all(kinds), "expected a kind of each device, found none")
    for kind, count in Counter(kinds).items():
        subject.note(f"{count} x {kind.decode(errors='replace')}")


@check(needs="topology", number=54, since=101)
def fingerprint(subject: Subject) -> None:
    """Ask twice for a topology's fingerprint -> the same number; 0 is noted."""
    if ask_twice(lambda: _ask(subject, "Fingerprint"), "the fingerprint") == 0:
        subject.note("the fingerprint is 0, as of a topology that has none")


@check(needs="topology", number=55)
def serialize(subject: Subject) -> None:
    """Serialize a topology twice -> bytes; a difference is noted."""
    first, second = _bytes_of(subject), _bytes_of(subject)
    expect(bool(first), "expected bytes of a topology, found none")
    if first != second:
        subject.note("serialized twice, the bytes are different")


@check(needs="topology", number=55, since=75)
def deserialize(subject: Subject) -> None:
    """Deserialize a serialized topology -> the same platform, fingerprint and number of devices."""
    with a_compiler():
        again = _deserialize(subject, _bytes_of(subject))
    found, wanted = (len(_ask(subject, "GetDeviceDescriptions", each)) for each in (again, 0))
    equal(found, wanted, "device descriptions of what was deserialized")
    for name in ("PlatformName", "Fingerprint"):
        if subject.api.has(f"PJRT_TopologyDescription_{name}"):
            equal(_ask(subject, name, again), _ask(subject, name), f"{name} of it")


@check(needs="topology", number=55, since=75)
def deserialize_junk(subject: Subject) -> None:
    """Deserialize invalid bytes as a topology -> an error."""
    with a_compiler():
        _deserialize(subject, _bytes_of(subject))
    subject.expect_error(lambda: _deserialize(subject, b"\xff" * 64), "a topology of junk")


@check(needs="plugin", number=56)
def create_unnamed(subject: Subject) -> None:
    """Create a topology without a name -> one with devices, or an error that says why not."""
    try:
        topology = _create(subject, "")
    except PjrtError as exc:
        expect_reason(exc)
        subject.note(f"makes none without a name: {exc.message}")
        return
    expect(bool(_ask(subject, "GetDeviceDescriptions", topology)), "expected devices, found none")


@check(needs="plugin", number=56)
def create_by_unknown_name(subject: Subject) -> None:
    """Create a topology by an unknown name -> an error; success is noted."""
    try:
        _create(subject, "no such machine")
    except PjrtError as exc:
        expect_reason(exc)
    else:
        subject.note("takes any name")


@check(needs="topology", number=57, seconds=60)
def compile_for_it(subject: Subject) -> None:
    """Compile a + b for a topology, without a client -> an executable of one output."""
    with a_compiler():
        _has_one_output(subject, subject.compile_ahead())


@check(needs="topology", number=60, seconds=60)
def compile_artifacts(subject: Subject) -> None:
    """Compile artifacts of the minimum and current StableHLO for a topology -> executables."""
    subject.require(ARTIFACT)
    for which in ("minimum", "current"):
        artifact = artifact_for(ADD, subject.stablehlo(which))
        with a_compiler():
            _has_one_output(subject, subject.compile_ahead(artifact))


@check(number=57, since=95, seconds=60)
def load_what_was_compiled(subject: Subject) -> None:
    """Compile a + b for the client's topology, load it -> the exact values."""
    mine = subject.call("PJRT_Client_TopologyDescription", client=subject.client)
    with a_compiler():
        compiled = subject.compile_ahead(topology=mine)
    subject.expect_add(subject.load(compiled))


@check(needs="topology", number=57)
def compile_junk(subject: Subject) -> None:
    """Compile an invalid program for a topology -> an error."""
    with a_compiler():
        subject.compile_ahead()
    subject.expect_error(lambda: subject.compile_ahead(b"this is no program"), "a program of junk")


@check(needs="topology", number=58, since=110)
def memory_kind_ids(subject: Subject) -> None:
    """Ask a topology for the ids of its memory kinds -> at least one, none twice."""
    found = _ask(subject, "GetMemorySpaceKindIds")
    expect(bool(found), "expected a kind of memory, found none")
    equal(len(set(found)), len(found), "different ids")


@check(needs="topology", number=58, since=110)
def canonical_shape(subject: Subject) -> None:
    """Ask for the canonical shape of f32[2,3] in each memory kind -> f32[2,3], row-major."""
    for kind in _ask(subject, "GetMemorySpaceKindIds"):
        equal(_canonical(subject, kind), [Slot.of("f32", (2, 3))], "the canonical shape")


@check(needs="topology", number=58, since=110)
def canonical_shape_of_layout(subject: Subject) -> None:
    """Ask for the canonical shape of f32[2,3] in the layout {0,1} -> that layout."""
    layout = {"type": 0, "tiled": {"minor_to_major": (0, 1)}}
    kind = _ask(subject, "GetMemorySpaceKindIds")[0]
    wanted = Slot.of("f32", (2, 3), layout=(0, 1))
    equal(_canonical(subject, kind, layout=layout), [wanted], "the canonical shape")


def _ask(subject: Subject, name: str, topology: int = 0) -> Any:
    return subject.call(f"PJRT_TopologyDescription_{name}", topology=topology or subject.topology)


def _bytes_of(subject: Subject) -> bytes:
    return subject.api.call("PJRT_TopologyDescription_Serialize", topology=subject.topology)


def _deserialize(subject: Subject, data: bytes) -> int:
    made = subject.call("PJRT_TopologyDescription_Deserialize", serialized_topology=data)
    return subject.own("TopologyDescription", made)


def _create(subject: Subject, name: str) -> int:
    function = "PJRT_TopologyDescription_Create"
    made = subject.call(function, topology_name=name, create_options={})
    return subject.own("TopologyDescription", made)


def _has_one_output(subject: Subject, executable: int) -> None:
    with suppress(finding.Unsupported):  # Some plugins know the number only of a loaded executable.
        equal(subject.call("PJRT_Executable_NumOutputs", executable=executable), 1, "outputs")


def _canonical(subject: Subject, kind: int, **given: Any) -> list[Slot]:
    message = subject.api.call(
        "PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace",
        topology=subject.topology,
        memory_space_kind_id=kind,
        dims=(2, 3),
        element_type=_F32,
        **given,
    )
    return list(flatten(memoryview(message)))
