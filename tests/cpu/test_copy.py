"""Copies on another client: equal in every dtype and layout, or refused with the way."""

import numpy as np
import pytest
from elements import KNOWN
from texts import cut, identity

import pjrt_hub
from pjrt_hub.running.array import dtypes

VALUES = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.mark.parametrize("element", KNOWN)
def test_every_dtype_is_copied_to_another_client(client, pair, element):
    array = VALUES.astype(dtypes.numpy_dtype(element.code))
    source = client.buffer_from_host(array)
    place = pair.devices[1]
    for copy in (source.copy_to_device(place), source.copy_to_memory(place.memories[1])):
        source_type = (source.dtype, source.shape, source.layout)
        assert (copy.dtype, copy.shape, copy.layout) == source_type
        assert copy.to_numpy().tobytes() == array.tobytes()
        assert copy.client is pair
        assert copy.device is pair.devices[1]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1, 1), (2, 3, 4)])
def test_every_shape_is_copied_to_another_client(client, pair, shape):
    array = np.arange(np.prod(shape, dtype=int), dtype=np.int16).reshape(shape)
    copy = client.buffer_from_host(array).copy_to_device(pair.devices[0])
    assert (copy.shape, copy.tolist()) == (shape, array.tolist())


@pytest.mark.parametrize("layout", [(0, 1), (1, 0)])
def test_a_copy_on_another_client_has_the_layout(client, pair, layout):
    copy = client.buffer_from_host(VALUES, layout=layout).copy_to_device(pair.devices[0])
    assert (copy.layout, copy.tolist()) == (layout, VALUES.tolist())


def test_a_copy_outlives_the_client_that_it_came_from(plugin, client):
    with plugin.client() as other:
        source = other.buffer_from_host(VALUES)
        copy = source.copy_to_device(client.devices[0])
        source.delete()
    assert copy.tolist() == VALUES.tolist()


def test_a_pending_value_is_awaited_and_copied(slowly, pair):
    pending = slowly(200)
    copy = pending.copy_to_device(pair.devices[1])
    assert copy.to_numpy().tobytes() == pending.to_numpy().tobytes()


def test_what_no_array_can_be_is_refused_with_the_way(client, pair):
    rows = client.compile(cut("?x3"))(client.buffer_from_host(VALUES), client.buffer_from_host(2))
    for copy in (
        lambda: rows.copy_to_device(pair.devices[0]),
        lambda: rows.copy_to_memory(pair.memories[0]),
    ):
        with pytest.raises(ValueError, match=r"(?s)dimensions \(0,\) .*hint: client\.buffer_from"):
            copy()
    static = pair.buffer_from_host(np.asarray(rows))
    assert static.tolist() == VALUES[:2].tolist()
    with pytest.raises(ValueError, match=r"(?s)another client .*are dynamic.*hint: client\.buffer"):
        pair.compile(identity("4x3xf32"))(rows)


def test_another_clients_argument_is_refused_with_the_way(client, pair, program):
    executable = pair.compile(program("add"))
    mine, theirs = (each.buffer_from_host(np.ones(8, np.float32)) for each in (pair, client))
    with pytest.raises(ValueError, match="another client") as caught:
        executable(mine, theirs)
    message, hint = str(caught.value).split("\n\nhint: ")
    assert repr(client) in message
    assert repr(pair) in message
    assert hint.startswith("buffer.copy_to_device(device) copies it")
    copy = theirs.copy_to_device(executable.devices[0])
    assert executable(mine, copy).tolist() == [2.0] * 8
    with pytest.raises(ValueError, match="another client"):
        executable.bind(mine, theirs)


def test_an_alias_of_another_client_is_fulfilled_by_a_copy(client, pair):
    values = np.arange(8, dtype=np.float32)
    alias, theirs = pjrt_hub.Alias(pair, (8,)), client.buffer_from_host(values)
    with pytest.raises(ValueError, match=r"(?s)another client .*copy_to_memory\(alias\.buffer\.m"):
        alias.fulfill(theirs)
    alias.fulfill(theirs.copy_to_memory(alias.buffer.memory))
    assert alias.buffer.tolist() == values.tolist()
