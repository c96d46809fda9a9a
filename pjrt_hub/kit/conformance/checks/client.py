"""Clients: creation, options, what they say of themselves, device assignments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pjrt_hub.errors import FailedPreconditionError, InvalidArgumentError, PjrtError
from pjrt_hub.kit.conformance import separate_process
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Failed, code_name, equal, expect, text
from pjrt_hub.kit.conformance.refusal import expect_refusal
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.capi import table

_PAGE_NBYTES = 4096
_DMA_NBYTES = 1 << 20
#: These functions destroy an object and may be given NULL.
_DESTROYS = tuple(
    f"PJRT_{kind}_Destroy"
    for kind in (
        *("Error", "Event", "Buffer", "Executable", "LoadedExecutable", "TopologyDescription"),
        *("ExecuteContext", "Client"),
    )
)
_READABLE_PROCESS_INFO = 78  # Before 0.78 the struct did not tell its size.


@check(number=24)
def two_clients(subject: Subject) -> None:
    """Create a second client beside the first -> both work, or an error says why not."""
    try:
        second = _create(subject, subject.options)
    except PjrtError as exc:
        expect(bool(exc.message), "expected an error that says why, found no message")
        subject.note(f"refuses a second client: {code_name(exc.code)}: {exc.message}")
        subject.usable()
        return
    names = [
        subject.call("PJRT_Client_PlatformName", client=each) for each in (subject.client, second)
    ]
    equal(names[1], names[0], "the platform of the second client")
    subject.destroy(second)
    subject.usable()


@check(needs="plugin", seconds=40, number=23)
def create_again(subject: Subject) -> None:
    """Create a client, destroy it, create another in the same process -> both work."""
    try:
        separate_process.run(subject, two_lives)
    except separate_process.Died as exc:
        found = f"expected two clients one after the other, found that the process {exc}"
        raise Failed(found) from exc


@check(number=27)
def platform(subject: Subject) -> None:
    """Ask twice for the platform's name and version -> the same text, without NUL."""
    for name in ("PJRT_Client_PlatformName", "PJRT_Client_PlatformVersion"):
        first, second = (subject.call(name, client=subject.client) for _ in range(2))
        equal(second, first, f"{name}, asked again")
        expect(bool(text(first, name)), f"{name}: expected text, found none")


@check(number=28)
def process_index(subject: Subject) -> None:
    """Ask a client of one process for its process index -> 0."""
    index = subject.call("PJRT_Client_ProcessIndex", client=subject.client)
    equal(index, 0, "the process index")


@check(needs="plugin", number=29)
def destroy_nothing(subject: Subject) -> None:
    """Call each Destroy function with NULL -> success, or an error."""
    for name in _DESTROYS:
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
    except separate_process.Died as exc:
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
    """Ask for an assignment of 65536 x 65537 with room for 65536 -> an error: nothing wraps."""
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
    unmap: Callable[[], object] = lambda: subject.call(  # noqa: E731
        "PJRT_Client_DmaUnmap", client=subject.client, data=address
    )
    unmap()
    expect_refusal(subject, unmap, "unmapping what is not mapped")


def two_lives(subject: Subject) -> None:
    """Make two clients one after the other, in a process of their own."""
    # The check is skipped if there is no device, or another process holds it.
    client = subject.client
    subject.call("PJRT_Client_Destroy", client=client)
    again = _create(subject, subject.options)
    devices = subject.call("PJRT_Client_Devices", client=again)
    expect(bool(devices), "expected devices of the second client, found none")
    subject.destroy(again)


def client_before_buffer(subject: Subject) -> None:
    """Destroy a client before its buffer, in a process of their own."""
    buffer = subject.put(np.arange(4, dtype=np.float32))
    subject.api.call("PJRT_Client_Destroy", client=subject.client)
    subject.api.call("PJRT_Buffer_Destroy", buffer=buffer)


def _create(subject: Subject, options: dict[str, Any]) -> int:
    return subject.own("Client", subject.call("PJRT_Client_Create", create_options=options))


def _device_ids(subject: Subject) -> list[int]:
    devices = subject.call("PJRT_Client_Devices", client=subject.client)
    return [subject.describe(device, "Id") for device in devices]


def _assignment(subject: Subject, replicas: int, partitions: int, room: int) -> list[int]:
    ids = np.full(room, -1, np.int32)
    subject.call(
        "PJRT_Client_DefaultDeviceAssignment",
        client=subject.client,
        num_replicas=replicas,
        num_partitions=partitions,
        default_assignment=ids.ctypes.data,
        default_assignment_size=room,
    )
    return [int(each) for each in ids]


def _refuses_assignment(
    subject: Subject, replicas: int, partitions: int, room: int, code: int
) -> None:
    expect_refusal(
        subject,
        lambda: _assignment(subject, replicas, partitions, room),
        f"an assignment of {replicas} x {partitions} with room for {room}",
        code=code,
    )
