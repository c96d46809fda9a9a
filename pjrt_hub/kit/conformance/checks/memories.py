"""Memories: lists, properties, the devices that address them, copies, user data."""

from __future__ import annotations

from typing import Any

import numpy as np

from pjrt_hub.kit.conformance import finding
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import ask_twice, equal, expect, raise_as, some_text
from pjrt_hub.kit.conformance.programs import ADD
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.capi import unchecked
from pjrt_hub.running.capi.call_counter import CallCounter

_NO_KEY = 8  # No host uses this key: hosts use addresses of their own.


@check(number=47)
def lists(subject: Subject) -> None:
    """List the client's memories -> each device's are among them, none NULL, none twice."""
    every = _memories(subject)
    equal(len(set(every)), len(every), "different memories")
    expect(0 not in every, "expected memories, found NULL among them")
    for device in subject.devices:
        found = set(_memories_of(subject, device))
        expect(found <= set(every), "expected a device's memories among the client's, found others")


@check(number=47)
def ids(subject: Subject) -> None:
    """Ask each memory twice for its id -> different ids, the same both times."""
    found = ask_twice(lambda: [_ask(subject, "Id", of) for of in _memories(subject)], "the ids")
    equal(len(set(found)), len(found), "different ids of memories")


@check(number=47)
def texts(subject: Subject) -> None:
    """Ask each memory for its kind, debug string and string -> UTF-8, none empty."""
    for memory in _memories(subject):
        for name in ("Kind", "DebugString", "ToString"):
            some_text(_ask(subject, name, memory), f"{name} of a memory")


@check(number=48, since=48)
def kind_ids(subject: Subject) -> None:
    """Ask all memories for kinds and kind ids -> equal ids exactly where the kinds are equal."""
    pairs = {
        (_ask(subject, "Kind", memory), _ask(subject, "Kind_Id", memory))
        for memory in _memories(subject)
    }
    equal(len(pairs), len({kind for kind, _ in pairs}), "kind ids for as many kinds")
    equal(len(pairs), len({number for _, number in pairs}), "kinds for as many kind ids")


@check(number=49)
def default_memory(subject: Subject) -> None:
    """Ask each device for its default memory -> one of its own, in which new buffers lie."""
    for device in subject.devices:
        memory = subject.call("PJRT_Device_DefaultMemory", device=device)
        own = memory in _memories_of(subject, device)
        expect(own, "expected the default memory among the device's, found another")
        buffer = subject.put(np.arange(4, dtype=np.float32), device=device)
        equal(subject.call("PJRT_Buffer_Memory", buffer=buffer), memory, "where a buffer lies")


@check(number=50)
def devices_of_memories(subject: Subject) -> None:
    """Ask each memory for its devices -> exactly those that list the memory."""
    for memory in _memories(subject):
        found = set(_ask(subject, "AddressableByDevices", memory)) & set(subject.devices)
        wanted = {device for device in subject.devices if memory in _memories_of(subject, device)}
        kind, of = _ask(subject, "Kind", memory).decode(), len(wanted)
        expect(found == wanted, f"{kind}: expected {of} device(s) that have it, found {len(found)}")


@check(number=51, since=32)
def copies(subject: Subject) -> None:
    """Copy a buffer to each memory and back -> it reports that memory, and has the same bytes."""
    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    start = subject.put(given)
    home = subject.call("PJRT_Buffer_Memory", buffer=start)
    for memory in _memories_of(subject, subject.device):
        kind = _ask(subject, "Kind", memory).decode()
        try:
            there = _copy(subject, start, memory)
        except finding.Unsupported as exc:
            subject.note(f"{kind}: {exc}")
            continue
        equal(subject.call("PJRT_Buffer_Memory", buffer=there), memory, f"the memory of {kind}")
        back = _copy(subject, there, home)
        for buffer in (there, back):
            equal(subject.get(buffer).tolist(), given.tolist(), f"the values by way of {kind}")


@check(number=52)
def output_kinds(subject: Subject) -> None:
    """Ask for the memory kinds of a program's outputs -> one, which some memory has."""
    _kinds(subject, "PJRT_Executable_OutputMemoryKinds", 1)


@check(number=52, since=102)
def parameter_kinds(subject: Subject) -> None:
    """Ask for the memory kinds of a program's parameters -> two, which some memory has."""
    _kinds(subject, "PJRT_Executable_ParameterMemoryKinds", 2)


@check(number=47, since=105)
def user_data(subject: Subject) -> None:
    """Store user data beside each memory -> each memory returns its own, by its own key only."""
    kept = [(each, _user_data(each)) for each in _memories(subject)]
    for memory, data in kept:
        equal(data.get(_NO_KEY), 0, "the user data by a key that was never set")
        data.set(memory, memory + 1, CallCounter().address)
    for memory, data in kept:
        equal(data.get(memory), memory + 1, "the user data by the memory's key")
        others = [data.get(other) for other, _ in kept if other != memory]
        equal(others, [0] * len(others), "the user data by the keys of other memories")


@check(number=47, since=105)
def user_data_ends(subject: Subject) -> None:
    """Store user data beside a memory, destroy its client -> the deleter is called once."""
    with raise_as(finding.Skipped, "no second client:"):
        client = subject.create_client()
    memories = subject.call("PJRT_Client_AddressableMemories", client=client)
    if not memories:
        raise finding.Unsupported("the client has no memory")
    ended = CallCounter()
    _user_data(memories[0]).set(_NO_KEY, memories[0], ended.address)
    equal(ended.calls, [], "what was handed back before the client's end")
    subject.destroy(client)
    equal(ended.wait(), [memories[0]], "what was handed back")


def _user_data(memory: int) -> unchecked.UserData:
    found = unchecked.UserData(memory)
    expect(found.is_there, "expected a memory's functions for user data, found none")
    return found


def _memories(subject: Subject) -> list[int]:
    return subject.call("PJRT_Client_AddressableMemories", client=subject.client)


def _memories_of(subject: Subject, device: int) -> list[int]:
    return subject.call("PJRT_Device_AddressableMemories", device=device)


def _ask(subject: Subject, what: str, memory: int) -> Any:
    return subject.call(f"PJRT_Memory_{what}", memory=memory)


def _copy(subject: Subject, buffer: int, memory: int) -> int:
    return subject.wait(subject.copy(buffer, memory=memory))


def _kinds(subject: Subject, function: str, count: int) -> None:
    executable = subject.executable(subject.compile(ADD))
    found = [kind.decode() for kind in subject.api.call(function, executable=executable)]
    equal(len(found), count, "kinds of memory")
    known = {_ask(subject, "Kind", memory).decode() for memory in _memories(subject)}
    expect(set(found) <= known, f"expected kinds of {sorted(known)}, found {found}")
