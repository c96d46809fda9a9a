"""Clients: their creation, options and properties, and device assignments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from pjrt_hub.door import process
from pjrt_hub.errors import FailedPreconditionError, InvalidArgumentError, PjrtError, PjrtHubError
from pjrt_hub.finding.contract.option import UNKNOWN
from pjrt_hub.kit.conformance import create_options, finding, separate_process
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import code_name, equal, expect, expect_reason, raise_as
from pjrt_hub.kit.conformance.separate_process import Died, Tell, attempt
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.capi import table

_PAGE_NBYTES = 4096
_DMA_NBYTES = 1 << 20
#: The functions that destroy these objects may be given NULL.
_DESTROYED = (
    *("Error", "Event", "Buffer", "Executable", "LoadedExecutable", "TopologyDescription"),
    *("ExecuteContext", "Client"),
)
_READABLE_PROCESS_INFO = 78  # Before PJRT API 0.78, the struct did not tell its size.

_UNKNOWN = {"no_such_option_of_pjrt": 1}
#: Plugins built from XLA have these options; the names of others lie near these in the library.
_NAMES = ("cpu_device_count", "memory_fraction", "max_inflight_computations")
_VALUES = {"string": "wrong", "int64": 1, "int64_list": [1], "float": 0.5, "bool": True}
_TYPES = {str: "string", bool: "bool", int: "int64", float: "float"}
#: A plugin may take a value of the second type for one of the first without losing anything.
_LENIENT = {("float", "int64"), ("int64", "bool"), ("bool", "int64")}
_NAME = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")
_SECONDS = 20.0  # Seconds for each attempt.
_TO_FIND = 30.0  # Seconds for the search for options that are not known.
_MOST_DEATHS = 8
_ACCEPTED, _REFUSED = "accepted", "refused: "

Attempt = tuple[str, str]  # An attempt is an option and the type of the value that it is given.


@check(number=24)
def two_clients(subject: Subject) -> None:
    """Create a second client beside the first -> both work, or an error says why not."""
    try:
        second = subject.create_client()
    except PjrtError as exc:
        expect_reason(exc)
        subject.note(f"refuses a second client: {code_name(exc.code)}: {exc.message}")
        subject.usable()
        return
    first, name = (
        subject.call("PJRT_Client_PlatformName", client=each) for each in (subject.client, second)
    )
    equal(name, first, "the platform of the second client")
    subject.destroy(second)
    subject.usable()


@check(needs="plugin", seconds=40, number=23)
def create_again(subject: Subject) -> None:
    """Create a client, destroy it, create another in the same process -> both work."""
    words = "expected two clients one after the other, found that the process"
    with raise_as(finding.Failed, words, Died):
        separate_process.run(subject, two_lives)


@check(number=27)
def platform(subject: Subject) -> None:
    """Ask twice for the platform's name and version -> the same text, without NUL."""
    for name in ("PJRT_Client_PlatformName", "PJRT_Client_PlatformVersion"):
        ask = partial(subject.call, name, client=subject.client)
        finding.some_text(finding.ask_twice(ask, name), name)


@check(number=28)
def process_index(subject: Subject) -> None:
    """Ask a client of one process for its process index -> 0."""
    index = subject.call("PJRT_Client_ProcessIndex", client=subject.client)
    equal(index, 0, "the process index")


@check(needs="plugin", number=29)
def destroy_nothing(subject: Subject) -> None:
    """Call each Destroy function with NULL -> success, or an error."""
    for name in (f"PJRT_{kind}_Destroy" for kind in _DESTROYED):
        if not subject.api.has(name):
            continue
        field = table.FIELDS[f"{name}_Args"][0].name
        try:
            subject.api.call(name, **{field: 0})
        except PjrtError as exc:
            subject.note(f"{name} of NULL: {code_name(exc.code)}: {exc.message}")


@check(needs="plugin", seconds=40, number=30)
def buffer_outlives_client(subject: Subject) -> None:
    """Destroy a buffer after its client -> what happens is noted; the header promises nothing."""
    try:
        separate_process.run(subject, client_before_buffer)
    except Died as exc:
        subject.note(f"the process {exc}: destroy buffers before their client")
    else:
        subject.note("works")


@check(number=31)
def default_assignment(subject: Subject) -> None:
    """Ask for the default assignment of one replica per device -> each device id once."""
    known = sorted(_device_ids(subject))
    found = _assignment(subject, len(known), 1, len(known))
    equal(sorted(found), known, "the device ids of the default assignment")
    equal(_assignment(subject, 1, 1, 1)[0] in known, True, "one replica is on a device")


@check(number=32)
def assignment_too_small(subject: Subject) -> None:
    """Ask for assignments that do not fit into the caller's memory -> an error."""
    every = len(_device_ids(subject))
    for replicas, partitions in ((4, 2), (every, 1)):
        room = replicas * partitions - 1
        _refuses_assignment(subject, replicas, partitions, room, FailedPreconditionError.code)


@check(number=33)
def assignment_overflow(subject: Subject) -> None:
    """Ask for an assignment of 65536 x 65537 with room for 65536 -> an error, no overflow."""
    _refuses_assignment(subject, 65536, 65537, 65536, FailedPreconditionError.code)


@check(number=34)
def assignment_negative(subject: Subject) -> None:
    """Ask for the default assignment of -1 replicas -> an error, usually INVALID_ARGUMENT."""
    _refuses_assignment(subject, -1, 1, 1, InvalidArgumentError.code)


@check(number=34)
def assignment_zero(subject: Subject) -> None:
    """Ask for the default assignment of 0 replicas -> an error, usually INVALID_ARGUMENT."""
    _refuses_assignment(subject, 0, 1, 1, InvalidArgumentError.code)


@check(since=_READABLE_PROCESS_INFO, number=35)
def global_process_info(subject: Subject) -> None:
    """Tell the client that its only process is connected -> success."""
    info = {"task_id": 0, "incarnation_id": 1, "state": 3, "error_code": 0, "error_message": ""}
    name = "PJRT_Client_UpdateGlobalProcessInfo"
    subject.call(name, client=subject.client, process_infos=[info])
    subject.usable()


@check(since=67, number=36)
def dma_map(subject: Subject) -> None:
    """Map 1 MiB of aligned host memory, unmap it twice -> success, then an error."""
    memory = np.zeros(_DMA_NBYTES + _PAGE_NBYTES, np.uint8)
    address = -(-memory.ctypes.data // _PAGE_NBYTES) * _PAGE_NBYTES
    subject.call("PJRT_Client_DmaMap", client=subject.client, data=address, size=_DMA_NBYTES)
    unmap = partial(subject.call, "PJRT_Client_DmaUnmap", client=subject.client, data=address)
    unmap()
    subject.expect_refusal(unmap, "unmapping what is not mapped")


def two_lives(subject: Subject) -> None:
    """Make two clients one after the other, in a process of their own."""
    # `subject.client` skips the check if there is no device, or another process holds it.
    client = subject.client
    subject.call("PJRT_Client_Destroy", client=client)
    again = subject.create_client()
    devices = subject.call("PJRT_Client_Devices", client=again)
    expect(bool(devices), "expected devices of the second client, found none")
    subject.destroy(again)


def client_before_buffer(subject: Subject) -> None:
    """Destroy a client before its buffer, in a process of their own."""
    buffer = subject.put(np.arange(4, dtype=np.float32))
    subject.api.call("PJRT_Client_Destroy", client=subject.client)
    subject.api.call("PJRT_Buffer_Destroy", buffer=buffer)


def _device_ids(subject: Subject) -> list[int]:
    devices = subject.call("PJRT_Client_Devices", client=subject.client)
    return [subject.describe(device, "Id") for device in devices]


def _assignment(subject: Subject, replicas: int, partitions: int, room: int) -> list[int]:
    ids = np.full(room, -1, np.int32)
    given = {"num_replicas": replicas, "num_partitions": partitions}
    given |= {"default_assignment": ids.ctypes.data, "default_assignment_size": room}
    subject.call("PJRT_Client_DefaultDeviceAssignment", client=subject.client, **given)
    return ids.tolist()


def _refuses_assignment(
    subject: Subject, replicas: int, partitions: int, room: int, code: int
) -> None:
    what = f"an assignment of {replicas} x {partitions} with room for {room}"
    ask = partial(_assignment, subject, replicas, partitions, room)
    subject.expect_refusal(ask, what, code=code)


@check(needs="plugin", number=25)
def unknown_option(subject: Subject) -> None:
    """Create a client with an unknown option -> an error, usually INVALID_ARGUMENT."""
    what = "an unknown create option"
    error = subject.expect_error(lambda: subject.create_client(_UNKNOWN), what)
    if error.code != InvalidArgumentError.code and error.message in _refusals(subject):
        # The refusal has nothing to do with options.
        raise finding.Skipped(f"no device: {error.message}")
    subject.note_code(error, what, InvalidArgumentError.code)


@check(needs="plugin", number=26, seconds=120)
def mistyped_option(subject: Subject) -> None:
    """Give known and discovered create options values of wrong types -> errors, and no crash."""
    known = dict(_known_options(subject))
    if not known:
        raise finding.Skipped("no option of this plugin is known; give one with --option")
    attempts = [(name, each) for name, right in known.items() for each in _VALUES if each != right]
    with raise_as(finding.Skipped, "the process", Died):
        answers = separate_process.run(subject, try_options, attempts, seconds=80)
    wrong = []
    accepted: dict[str, list[str]] = {name: [] for name in known}
    for (name, given), answer in zip(attempts, answers, strict=False):
        if answer == _ACCEPTED:
            accepted[name].append(given)
        elif not answer.startswith(_REFUSED):
            wrong.append(f"{name} = {_VALUES[given]!r}: the process {answer}")
    for name, types in accepted.items():
        rights = [known[name]] if known[name] else types
        if types and not any(all(_stands_in(each, right) for each in types) for right in rights):
            refusable = [each for each in types if not _stands_in(each, known[name])]
            values = ", ".join(repr(_VALUES[each]) for each in refusable)
            wrong.append(f"{name} accepts {values}")
    expect(not wrong, f"expected errors, found {'; '.join(wrong)}")
    if set(answers) == {f"{_REFUSED}{text}" for text in _refusals(subject)}:
        raise finding.Skipped("no device: the plugin refuses a client whatever its options")


def try_options(subject: Subject, attempts: list[Attempt]) -> list[str]:
    """Create a client for each attempt, any of which may end its process; return the answers."""
    answers = list[str]()
    for _ in range(_MOST_DEATHS):
        rest = attempts[len(answers) :]
        if not rest:
            break
        said, ended = attempt(lambda tell, rest=rest: _try(subject, rest, tell), _SECONDS)  # type: ignore[misc]
        answers += [json.loads(line) for line in said]
        if len(said) < len(rest):
            answers.append(ended)
    return answers


def _try(subject: Subject, attempts: list[Attempt], tell: Tell) -> None:
    for name, given in attempts:
        try:
            subject.destroy(subject.create_client({name: _VALUES[given]}))
        except PjrtError as exc:
            tell(json.dumps(f"{_REFUSED}{exc.message}"))
        else:
            tell(json.dumps(_ACCEPTED))


def _stands_in(given: str, right: str) -> bool:
    return given == right or (right, given) in _LENIENT


def _known_options(subject: Subject) -> Iterator[Attempt]:
    """Yield options: named in refusals, found by trying, in the manifest, given by the user.

    The type is empty if it is not known.
    """
    named = []
    for text in _refusals(subject, _UNKNOWN):
        named += [name for name in _NAME.findall(text) if name not in _UNKNOWN]
    yield from ((name, "") for name in named)
    if not subject.known_options:
        yield from _found_options(subject, [*_NAMES, *named])
    yield from subject.known_options.items()
    for name, value in subject.options.items():
        yield name, _TYPES.get(type(value), "int64_list")


def _refusals(subject: Subject, options: Mapping[str, Any] | None = None) -> list[str]:
    """Return why the plugin makes no client with these options; empty if it makes one."""
    try:
        subject.destroy(subject.create_client(options))
    except PjrtError as exc:
        return [exc.message]
    return []


def _found_options(subject: Subject, names: list[str]) -> Iterator[Attempt]:
    """Yield options named in the library's file that it answers unlike a name that nobody has."""
    subject.require("PJRT_Client_Create", "PJRT_Client_Destroy")  # The search calls both functions.
    asked = create_options.candidates(subject.path, names)
    env = dict(process.environment())
    with suppress(PjrtHubError):  # The plugin may make no client at all, or take too long.
        for each in create_options.find(subject.path, asked, env, seconds=_TO_FIND)[1]:
            yield each.name, "" if each.type == UNKNOWN else each.type
