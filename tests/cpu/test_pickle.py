"""Objects that can be pickled for another process, and what arrives there."""

import multiprocessing
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from children import ADD, NAME, device_count, in_child, ones
from elements import KNOWN
from texts import identity

from pjrt_hub import Alias, CompileOptions, Program, Transfer
from pjrt_hub.errors import (
    FileFormatError,
    IncompatiblePluginError,
    NotFoundError,
    PjrtHubError,
)
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.client.topology import Topology
from pjrt_hub.running.compilation.policy import Policy
from pjrt_hub.running.distributed import pickled
from pjrt_hub.running.executable import serialized
from pjrt_hub.running.executable.serialized import Guards

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


@pytest.fixture(params=PROTOCOLS)
def again(request):
    return lambda thing: pickle.loads(pickle.dumps(thing, request.param))


def test_what_is_data(again, program, executables):
    options = CompileOptions(num_replicas=2, device_ids=[[1], [0]], flags={"a": 1, "b": True})
    for each in (Program.of(program("add")), options, executables("two_outputs").signature):
        assert again(each) == each
    assert again(options).serialize() == options.serialize()


@pytest.mark.parametrize("element", KNOWN)
def test_buffers_arrive_as_arrays(again, client, element):
    for shape in ((8,), (3, 4), (), (0, 3)):
        array = np.arange(np.prod(shape, dtype=int)) % 2
        array = array.astype(np.float32).astype(dtypes.numpy_dtype(element.code)).reshape(shape)
        arrived = again(client.buffer_from_host(array))
        assert type(arrived) is np.ndarray
        assert (arrived.dtype, arrived.shape) == (array.dtype, array.shape)
        assert arrived.tobytes() == array.tobytes()
        assert client.buffer_from_host(arrived).to_numpy().tobytes() == array.tobytes()


@pytest.mark.cpu("shares memory with the host")
def test_buffers_leave_without_a_copy(client):
    buffer = client.buffer_from_host(np.arange(1024, dtype=np.float32))
    outside = []
    stream = pickle.dumps(buffer, 5, buffer_callback=outside.append)
    assert len(stream) < 500
    (raw,) = (each.raw() for each in outside)
    assert (raw.nbytes, raw.readonly) == (4096, True)
    assert np.frombuffer(raw, np.uint8).ctypes.data == buffer.to_numpy().ctypes.data
    assert pickle.loads(stream, buffers=outside).tolist() == buffer.tolist()


def test_a_result_of_another_layout(again, client, executables):
    executable = executables("column_major")
    shape = executable.signature.parameters[0].shape
    matrix = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    result = executable(client.buffer_from_host(matrix))
    assert again(result).tolist() == result.tolist()


def test_what_stays_in_its_process(again, own, program):
    buffer = own.buffer_from_host(np.ones(8, np.float32))
    alias, transfer = Alias(own, (8,)), Transfer(own, [((8,), "f32")])
    bound = own.compile(program("add")).bind(buffer, buffer)
    described = own.topology.device_descriptions[0]
    things = [own, *own.devices, own.devices[0].default_memory, described]
    for each in (*things, buffer.ready, alias, transfer, bound):
        with pytest.raises(
            TypeError, match=r"belongs? to .* process and cannot be(.|\n)*hint: make"
        ):
            again(each)
    transfer.close()


def test_executables_arrive_on_the_client_of_their_plugin(again, own, program):
    arrived = again(own.compile(program("add")))
    ones = arrived.client.buffer_from_host(np.ones(8, np.float32))
    assert arrived(ones, ones).tolist() == [2.0] * 8
    assert Guards.of(arrived.client) == Guards.of(own)
    assert arrived.client.options == own.options


def test_executables_of_two_devices_do_not_arrive_on_one(again, pair, client):
    arrived = again(pair.compile(identity("2xf32"), CompileOptions(num_replicas=2)))
    assert len(arrived.devices) == 2
    assert arrived.client.options == {"cpu_device_count": 2}


def test_an_executable_that_was_compiled_ahead_of_time(client, program, monkeypatch):
    monkeypatch.setattr(client.plugin.policy, "reload", None)  # the open client must be used
    blob = client.compile(program("add")).serialize()
    ahead = Guards.of(client)._replace(platform_version="", machine="")
    loaded = client.load(ahead.seal(serialized.parse(blob).code))
    assert pickle.loads(pickle.dumps(loaded)).client.options == client.options


def test_what_was_compiled_ahead_of_time_takes_a_client_of_any_options(plugin, program):
    """The pickle of an `Executable` does so too, because its topology has no create options."""
    with plugin.client(device_count(2)) as client:
        code = serialized.parse(client.compile(program("add")).serialize()).code
        ahead = Guards.of(client)._replace(platform_version="", machine="").seal(code)
        revive, words = Topology._reduce_executable(SimpleNamespace(_policy=Policy()), ahead)
        assert Guards.of(revive(*words).client) == Guards.of(client)


def test_topologies_tell_whose_they_are(client):
    """Older plugins cannot read topologies; the vendors' plugins have tests of their own."""
    stream = pickle.dumps(client.topology)
    if client.api.version.minor < 115:
        with pytest.raises(NotFoundError, match=r"No compiler (registered|factory)"):
            pickle.loads(stream)
    else:
        assert pickle.loads(stream).serialize() == client.topology.serialize()
    serialize, (data, *_) = client.topology.__reduce__()
    assert data == client.topology.serialize()
    with pytest.raises(IncompatiblePluginError, match="another"):
        serialize(data, lambda: client.plugin, "cpu", "another")
    with pytest.raises(PjrtHubError, match="no open client of the plugin for 'cpu' is here"):
        serialize(data, None, "cpu", "another")


def test_a_damaged_executable_is_refused(client, program):
    stream = pickle.dumps(client.compile(program("add")))
    place = stream.index(serialized.MAGIC) + 2000
    damaged = stream[:place] + bytes([stream[place] ^ 1]) + stream[place + 1 :]
    with pytest.raises(FileFormatError):
        pickle.loads(damaged)


def test_an_executable_of_another_plugin_without_a_client(plugin, program):
    from pjrt_hub.running.client.plugin import Plugin

    with Plugin(plugin.api).client(device_count(3)) as client:
        stream = pickle.dumps(client.compile(program("add")))
        assert pickle.loads(stream).client is client
    with pytest.raises(PjrtHubError, match=f"no open client of the plugin for '{NAME}'"):
        pickle.loads(stream)


def test_a_process_without_a_client_makes_one(client, program, child):
    child(load_twice, pickle.dumps(client.compile(program("add"))), prepared=False)


def load_twice(stream):
    one, two = pickle.loads(stream), pickle.loads(stream)
    assert one.client is two.client
    values = ones(one.client)
    assert one(values, values).tolist() == two(values, values).tolist() == [2.0] * 8


def test_a_client_that_cannot_run_it_is_not_kept(client, program, child):
    """It may be another version of the plugin; each attempt makes a client and closes it."""
    code = serialized.parse(client.compile(program("add")).serialize()).code
    elsewhere = Guards.of(client)._replace(platform_version="another").seal(code)
    reload = client.plugin.policy.reload
    child(load_in_vain, pickle.dumps((elsewhere, reload)), prepared=False)


def load_in_vain(stream):
    blob, reload = pickle.loads(stream)
    for _ in range(3):
        with pytest.raises(IncompatiblePluginError) as caught:
            pickled.to_executable(blob, reload, {})
        assert caught.value.need == "another"
        assert list(pickled._open_clients()) == []


def add_to_itself(executable, array):
    buffer = executable.client.buffer_from_host(array)
    return executable(buffer, buffer)


@in_child
def test_a_pool_of_processes(client):
    """The `spawn` method, because a plugin's threads do not survive a fork."""
    executable = client.compile(ADD)
    inputs = [np.full(8, number, np.float32) for number in range(8)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        results = pool.starmap(add_to_itself, [(executable, array) for array in inputs])
    assert [result.tolist() for result in results] == [[2.0 * n] * 8 for n in range(8)]
