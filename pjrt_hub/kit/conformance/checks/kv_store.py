"""The key-value store by which the processes of a job find each other."""

from __future__ import annotations

import tempfile
from collections import Counter
from functools import partial
from typing import Any

from pjrt_hub.errors import InvalidArgumentError, PjrtError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Failed, Skipped, Unsupported, equal, expect, raise_as
from pjrt_hub.kit.conformance.separate_process import Died, SeparateProcess, run
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
        self.asked: Counter[str] = Counter()
        self.get, self.try_get, self.put = (
            partial(self._ask, store, name) for name in ("get", "try_get", "put")
        )

    def _ask(self, store: KeyValueStore, name: str, *words: Any) -> Any:
        self.asked[name] += 1
        return getattr(store, name)(*words)


class _Lost:
    """A store that cannot be reached any more."""

    def get(self, *_: object) -> Any:
        raise ConnectionError("the store is gone")

    try_get = put = get


@check(number=144)
def callbacks(subject: Subject) -> None:
    """Create a client with a store's callbacks -> it has devices; the number of calls is noted."""
    store = _Counted(InMemoryStore())
    client = _create(subject, store, subject.options)
    devices = subject.call("PJRT_Client_AddressableDevices", client=client)
    expect(bool(devices), "expected devices of a client with a store, found none")
    subject.note(f"a client of one process asked the store: {dict(store.asked) or 'nothing'}")


@check(seconds=60, number=145)
def two_processes(subject: Subject) -> None:
    """Join two processes by a store -> each knows both processes' devices, and its own index."""
    with (
        tempfile.TemporaryDirectory() as folder,
        SeparateProcess(subject, join, folder, 0) as first,
        SeparateProcess(subject, join, folder, 1) as last,
        raise_as(Failed, "expected two clients, found that a process", Died),
    ):
        told = [each.answer(_SECONDS) for each in (first, last)]
    if not any(each["asked"] or each["processes"] > 1 for each in told):
        raise Unsupported("the plugin made clients of one process each, and asked no store")
    for number, each in enumerate(told):
        equal(each["index"], number, f"the process index of process {number}")
        equal(each["processes"], _PROCESSES, f"the processes that process {number} knows")
        devices = sum(other["addressable"] for other in told)
        equal(each["devices"], devices, f"the devices that process {number} knows")
    subject.note(f"asked of the store: {[each['asked'] for each in told]}")


@check(seconds=60, number=145)
def lost_store(subject: Subject) -> None:
    """Start one process of two with a store that fails -> an error, no client and no hang."""
    with raise_as(Failed, "expected an error, found that the process", Died):
        told = run(subject, join, "", 0, seconds=_SECONDS)
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
    return {
        "index": subject.call("PJRT_Client_ProcessIndex", client=client),
        "processes": len({subject.describe(each, "ProcessIndex") for each in devices}),
        "devices": len(devices),
        "addressable": len(subject.call("PJRT_Client_AddressableDevices", client=client)),
        "asked": dict(store.asked),
    }


def _create(subject: Subject, store: KeyValueStore, options: dict[str, Any]) -> int:
    exchange = Exchange(store)
    made = subject.call("PJRT_Client_Create", create_options=options, **exchange.arguments())
    return subject.own("Client", made)
