"""Cycles of references through any public object are collected, and its native part with it."""

import gc
import weakref

import numpy as np
import pytest
from texts import doubling

import pjrt_hub

NUMBERS = np.arange(8, dtype=np.float32)


def executable(client):
    return client.compile(doubling("8xf32"))


KINDS = {
    "client": lambda client: client,
    "device": lambda client: client.devices[0],
    "memory": lambda client: client.memories[0],
    "buffer": lambda client: client.buffer_from_host(NUMBERS),
    "result": lambda client: executable(client)(NUMBERS),
    "event": lambda client: client.buffer_from_host(NUMBERS).ready,
    "view": lambda client: memoryview(client.buffer_from_host(NUMBERS)),
    "reference": lambda client: pjrt_hub.ExternalReference(client.buffer_from_host(NUMBERS)),
    "executable": executable,
    "bound call": lambda client: executable(client).bind(client.buffer_from_host(NUMBERS)),
    "alias": lambda client: pjrt_hub.Alias(client, (8,)),
    "transfer": lambda client: pjrt_hub.Transfer(client, [((8,), "f32")]),
    "topology": lambda client: client.topology,
    "signature": lambda client: executable(client).parameters,
}


@pytest.mark.parametrize(
    "kind",
    [
        *(kind for kind in KINDS if kind != "view"),
        pytest.param("view", marks=pytest.mark.cpu("shares memory with the host")),
    ],
)
def test_what_a_client_keeps_of_its_own_is_collected_with_it(plugin, wait_until, kind):
    client = plugin.client()
    client.kept = [KINDS[kind](client)]
    gone = weakref.ref(client)
    assert gone() is not None
    del client
    wait_until(lambda: gc.collect() >= 0 and gone() is None)


def test_an_executable_that_keeps_its_own_results_is_collected(own, wait_until):
    children = own._num_children
    exe = executable(own)
    exe.kept = [exe, exe(NUMBERS), exe.bind(own.buffer_from_host(NUMBERS))]
    gone = weakref.ref(exe)
    del exe
    wait_until(lambda: gc.collect() >= 0 and gone() is None)
    assert own._num_children == children


@pytest.mark.parametrize("kind", ["buffer", "event", "bound call", "alias", "transfer"])
def test_what_is_made_by_the_million_takes_no_attributes(own, kind):
    with pytest.raises(AttributeError):
        KINDS[kind](own).kept = 1


def test_a_client_that_was_collected_is_destroyed_though_its_buffers_are_many(plugin):
    client = plugin.client()
    client.kept = [client.buffer_from_host(NUMBERS) for _ in range(10_000)]
    first = weakref.ref(client.kept[0])
    del client
    gc.collect()
    assert first() is None
