"""The key-value store by which the processes of a job find each other."""

from __future__ import annotations

import tempfile
from collections import Counter
from typing import Any

from pjrt_hub.errors import InvalidArgumentError, PjrtError
from pjrt_hub.kit.conformance import separate_process
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Failed, Skipped, Unsupported, equal, expect
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.distributed.kv_store import (
    DirectoryStore,
    Exchange,
    InMemoryStore,
    KeyValueStore,
)

_PROCESSES = 2
_SECONDS = 45.0


class _Counted:
    """A store that counts what is asked of it."""

    def __init__(self, store: KeyValueStore) -> None:
        self.store = store
        self.asked: Counter[str] = Counter()

    def get(self, key: str, timeout: float) -> bytes:
        self.asked["get"] += 1
        return self.store.get(key, timeout)

    def try_get(self, key: str) -> bytes | None:
        self.asked["try_get"] += 1
        return self.store.try_get(key)

    def put(self, key: str, value: bytes) -> None:
        self.asked["put"] += 1
        self.store.put(key, value)


class _Lost:
    """A store that cannot be reached any more."""

    def get(self, *_: object) -> Any:
        raise ConnectionError("the store is gone")

    try_get = put = get


@check(number=144)
def callbacks(subject: Subject) -> None:
    """Create a client with the callbacks of a store -> usable; the number of calls is noted."""
    store = _Counted(InMemoryStore())
    client = _create(subject, store, subject.options)
    devices = subject.call("PJRT_Client_AddressableDevices", client=client)
    expect(bool(devices), "expected devices of a client with a store, found none")
    subject.note(f"a client of one process asked the store: {dict(store.asked) or 'nothing'}")


@check(seconds=60, number=145)
def two_processes(subject: Subject) -> None:
    """Join two processes by a store -> each knows both processes' devices, and its own index."""
    with tempfile.TemporaryDirectory() as folder:
        words = [(folder, number) for number in range(_PROCESSES)]
        with (
            separate_process.SeparateProcess(subject, join, *words[0]) as first,
            separate_process.SeparateProcess(subject, join, *words[1]) as last,
        ):
            try:
                told = [each.answer(_SECONDS) for each in (first, last)]
            except separate_process.Died as exc:
                raise Failed(f"expected two clients, found that a process {exc}") from exc
    if not any(each["asked"] or each["processes"] > 1 for each in told):
        raise Unsupported("the plugin made clients of one process each, and asked no store")
    for number, each in enumerate(told):
        equal(each["index"], number, f"the process index of process {number}")
        equal(each["processes"], _PROCESSES, f"the processes that process {number} knows")
        equal(
            each["devices"],
            sum(other["addressable"] for other in told),
            f"the devices that process {number} knows",
        )
    subject.note(f"asked of the store: {[each['asked'] for each in told]}")


@check(seconds=60, number=145)
def lost_store(subject: Subject) -> None:
    """Start one process of two with a store that fails -> an error, not a client and no hang."""
    try:
        told = separate_process.run(subject, join, "", 0, seconds=_SECONDS)
    except separate_process.Died as exc:
        raise Failed(f"expected an error, found that the process {exc}") from exc
    if not told["asked"]:
        if "error" in told:
            raise Skipped(f"no client of several processes: {told['error']}")
        raise Unsupported("the plugin made a client of one process, and asked no store")
    if "error" in told:
        expect(bool(told["error"]), "expected an error that says why, found no message")
        return
    raise Failed(f"expected an error, found a client of {told['processes']} process(es)")


def join(subject: Subject, folder: str, number: int) -> dict[str, Any]:
    """Make the client of one process of the job, and tell what it knows."""
    store = _Counted(DirectoryStore(folder) if folder else _Lost())
    options = {**subject.options, "node_id": number, "num_nodes": _PROCESSES}
    try:
        client = _create(subject, store, options)
    except InvalidArgumentError as exc:
        if store.asked:
            return {"error": exc.message, "asked": dict(store.asked)}
        raise Unsupported(f"the plugin takes no node_id and num_nodes: {exc.message}") from exc
    except PjrtError as exc:
        if folder:
            raise Skipped(f"no client of several processes: {exc.message}") from exc
        return {"error": exc.message, "asked": dict(store.asked)}
    devices = subject.call("PJRT_Client_Devices", client=client)
    descriptions = [subject.call("PJRT_Device_GetDescription", device=each) for each in devices]
    processes = {
        subject.call("PJRT_DeviceDescription_ProcessIndex", device_description=each)
        for each in descriptions
    }
    addressable = subject.call("PJRT_Client_AddressableDevices", client=client)
    return {
        "index": subject.call("PJRT_Client_ProcessIndex", client=client),
        "processes": len(processes),
        "devices": len(devices),
        "addressable": len(addressable),
        "asked": dict(store.asked),
    }


def _create(subject: Subject, store: KeyValueStore, options: dict[str, Any]) -> int:
    exchange = Exchange(store)
    made = subject.call("PJRT_Client_Create", create_options=options, **exchange.arguments())
    return subject.own("Client", made)
