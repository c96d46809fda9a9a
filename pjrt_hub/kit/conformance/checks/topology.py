"""Topologies: the devices described, whether or not they are there, and compiling for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pjrt_hub.errors import NotFoundError, PjrtError
from pjrt_hub.kit.conformance.artifact import ARTIFACT, labelled
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Unsupported, equal, expect, refused, text
from pjrt_hub.kit.conformance.programs import ADD
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.capi import irregular
from pjrt_hub.running.program.compile_options import CompileOptions
from pjrt_hub.running.program.signature import Slot, flatten

_F32 = dtypes.of_numpy("float32").code


@check(needs="topology", number=53)
def texts(subject: Subject) -> None:
    """The platform's name and version of a topology -> text; the name is not empty."""
    for name in ("PlatformName", "PlatformVersion"):
        found = text(_ask(subject, name), name)
        expect(bool(found) or name != "PlatformName", "the name: expected text, found none")


@check(number=53)
def of_client(subject: Subject) -> None:
    """The topology of the client -> its platform, and as many devices as it has."""
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
    """The device descriptions of a topology -> at least one, each with its own id and a kind."""
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
    """The fingerprint of a topology, twice -> the same number; 0 is told."""
    first, second = _ask(subject, "Fingerprint"), _ask(subject, "Fingerprint")
    equal(second, first, "the fingerprint, asked again")
    if first == 0:
        subject.note("the fingerprint is 0, as of a topology that has none")


@check(needs="topology", number=55)
def serialize(subject: Subject) -> None:
    """Serialize a topology, twice -> bytes; whether they are the same is told."""
    first, second = _serialized(subject), _serialized(subject)
    expect(bool(first), "expected bytes of a topology, found none")
    if first != second:
        subject.note("serialized twice, the bytes are different")


@check(needs="topology", number=55, since=75)
def deserialize(subject: Subject) -> None:
    """Deserialize a serialized topology -> as many devices, the platform, the fingerprint."""
    with _compiler():
        made = _deserialize(subject, _serialized(subject))
    again = subject.own("TopologyDescription", made)
    equal(
        len(_ask(subject, "GetDeviceDescriptions", again)),
        len(_ask(subject, "GetDeviceDescriptions")),
        "device descriptions of what was deserialized",
    )
    for name in ("PlatformName", "Fingerprint"):
        if subject.api.has(f"PJRT_TopologyDescription_{name}"):
            equal(_ask(subject, name, again), _ask(subject, name), f"{name} of it")


@check(needs="topology", number=55, since=75)
def deserialize_junk(subject: Subject) -> None:
    """Deserialize what is no topology -> an error."""
    with _compiler():
        subject.own("TopologyDescription", _deserialize(subject, _serialized(subject)))
    refused(lambda: _deserialize(subject, b"\xff" * 64), what="a topology of junk")


@check(needs="plugin", number=56)
def create_unnamed(subject: Subject) -> None:
    """Create a topology without a name -> one with devices, or an error that says why."""
    name = "PJRT_TopologyDescription_Create"
    try:
        made = subject.call(name, topology_name="", create_options={})
    except PjrtError as exc:
        expect(bool(exc.message), "expected an error that says why, found no message")
        subject.note(f"makes none without a name: {exc.message}")
        return
    topology = subject.own("TopologyDescription", made)
    expect(bool(_ask(subject, "GetDeviceDescriptions", topology)), "expected devices, found none")


@check(needs="plugin", number=56)
def create_by_unknown_name(subject: Subject) -> None:
    """Create a topology by a name that nobody knows -> an error; success is told."""
    name = "PJRT_TopologyDescription_Create"
    try:
        made = subject.call(name, topology_name="no such machine", create_options={})
    except PjrtError as exc:
        expect(bool(exc.message), "expected an error that says why, found no message")
        return
    subject.own("TopologyDescription", made)
    subject.note("takes any name")


@check(needs="topology", number=57, seconds=60)
def compile_for_it(subject: Subject) -> None:
    """Compile a + b for a topology, without a client -> an executable of one output."""
    with _compiler():
        _has_one_output(subject, subject.compile_ahead())


@check(needs="topology", number=60, seconds=60)
def compile_artifacts(subject: Subject) -> None:
    """Compile a + b for a topology as artifacts of its oldest and own StableHLO -> executables."""
    subject.require(ARTIFACT)
    for which in ("minimum", "current"):
        artifact = labelled(ADD, subject.stablehlo(which))
        with _compiler():
            _has_one_output(subject, subject.compile_ahead(artifact))


@check(number=57, since=95, seconds=60)
def load_what_was_compiled(subject: Subject) -> None:
    """Compile a + b for the client's topology, load it -> the exact values."""
    mine = subject.call("PJRT_Client_TopologyDescription", client=subject.client)
    loaded = subject.call(
        "PJRT_Client_Load",
        client=subject.client,
        executable=subject.compile_ahead(topology=mine),
        compile_options=CompileOptions().serialize(),
    )
    subject.expect_add(subject.own("LoadedExecutable", loaded))


@check(needs="topology", number=57)
def compile_junk(subject: Subject) -> None:
    """Compile for a topology what is no program -> an error."""
    with _compiler():
        subject.compile_ahead()
    refused(lambda: subject.compile_ahead(b"this is no program"), what="a program of junk")


@check(needs="topology", number=58, since=110)
def memory_kind_ids(subject: Subject) -> None:
    """The ids of a topology's kinds of memory -> at least one, none twice."""
    found = _ask(subject, "GetMemorySpaceKindIds")
    expect(bool(found), "expected a kind of memory, found none")
    equal(len(set(found)), len(found), "different ids")


@check(needs="topology", number=58, since=110)
def canonical_shape(subject: Subject) -> None:
    """The canonical shape of f32[2,3] in each kind of memory -> f32[2,3], minor dimension last."""
    for kind in _ask(subject, "GetMemorySpaceKindIds"):
        equal(_canonical(subject, kind), [Slot.of("f32", (2, 3))], "the canonical shape")


@check(needs="topology", number=58, since=110)
def canonical_shape_of_layout(subject: Subject) -> None:
    """The canonical shape of f32[2,3] in the layout {0,1} -> that layout."""
    layout = {"type": 0, "tiled": {"minor_to_major": (0, 1)}}
    kind = _ask(subject, "GetMemorySpaceKindIds")[0]
    wanted = Slot.of("f32", (2, 3), layout=(0, 1))
    equal(_canonical(subject, kind, layout=layout), [wanted], "the canonical shape")


def _ask(subject: Subject, name: str, topology: int = 0) -> Any:
    return subject.call(f"PJRT_TopologyDescription_{name}", topology=topology or subject.topology)


def _serialized(subject: Subject) -> bytes:
    name = "PJRT_TopologyDescription_Serialize"
    return irregular.serialized(subject.api, name, topology=subject.topology)


def _deserialize(subject: Subject, data: bytes) -> int:
    return int(subject.call("PJRT_TopologyDescription_Deserialize", serialized_topology=data))


def _has_one_output(subject: Subject, executable: int) -> None:
    with suppress(Unsupported):  # some know it of what is loaded only
        outputs = subject.call("PJRT_Executable_NumOutputs", executable=executable)
        equal(outputs, 1, "outputs")


@contextmanager
def _compiler() -> Iterator[None]:
    """Ends a check of a plugin that compiles only by a client: it knows no compiler."""
    try:
        yield
    except NotFoundError as exc:
        raise Unsupported(exc.message) from exc


def _canonical(subject: Subject, kind: int, **given: Any) -> list[Slot]:
    message = irregular.serialized(
        subject.api,
        "PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace",
        topology=subject.topology,
        memory_space_kind_id=kind,
        dims=(2, 3),
        element_type=_F32,
        **given,
    )
    return list(flatten(memoryview(message)))
