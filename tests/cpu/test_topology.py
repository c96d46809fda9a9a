"""Topologies of the CPU plugin, which can only describe the devices of this machine.

Since PJRT API 0.115 it can deserialize them and compile for them.
"""

import gc

import numpy as np
import pytest
from children import NAME, PLATFORM, in_child

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.running.capi.call import BoundFunction

HEADER = b"ML\xefR\x0dStableHLO_v%s\0"


def reads_up_to(client):
    """The newest StableHLO version that the plugin reads, as text."""
    return ".".join(map(str, client.plugin.attributes["stablehlo_current_version"]))


@pytest.fixture
def topology(pair):
    return pair.topology


def test_what_it_tells(topology, pair):
    kind = pair.devices[0].kind
    assert (topology.platform_name, topology.platform_version) == (
        NAME,
        pair.platform_version,
    )
    assert (topology.client, dict(topology.attributes)) == (pair, {})
    assert [(each.id, each.kind) for each in topology.device_descriptions] == [
        (0, kind),
        (1, kind),
    ]
    assert repr(topology) == f"<Topology {NAME} of 2 devices>"
    assert repr(topology.device_descriptions[1]) == f"<DeviceDescription 1 '{kind}'>"
    assert pair.topology is topology


def test_its_bytes_are_of_its_devices(topology, client):
    assert topology.serialize() == topology.serialize()
    assert topology.serialize() != client.topology.serialize()


@pytest.mark.api(">=0.110", "it tells them")
def test_what_newer_plugins_tell(pair, client):
    fingerprints = {each.topology.fingerprint for each in (pair, pair, client)}
    assert len(fingerprints) == 2
    kinds = tuple(memory.kind_id for memory in pair.devices[0].memories)
    assert sorted(pair.topology.memory_space_kind_ids) == sorted(kinds)


@pytest.mark.cpu("it has no topology by name")
def test_none_by_name(plugin):
    with pytest.raises(errors.UnsupportedByPluginError, match="not supported for CPU") as caught:
        plugin.topology("x")
    assert caught.value.function == "PJRT_TopologyDescription_Create"
    assert "client.topology" in caught.value.hint
    with pytest.raises(ValueError, match="cpu has no topology option 'x'"):
        plugin.topology("", {"x": 1})


def test_none_from_junk(plugin):
    with pytest.raises(errors.InvalidArgumentError, match="Failed to parse"):
        plugin.deserialize_topology(b"\xff" * 20)


@pytest.mark.api(">=0.115", "it reads their bytes and compiles for them")
def test_one_from_bytes_compiles(plugin, pair, program):
    data = pair.topology.serialize()
    topology = plugin.deserialize_topology(data)
    assert topology.serialize() == data
    assert [each.id for each in topology.device_descriptions] == [0, 1]
    executable = pair.load(topology.compile(program("add")).serialize())
    ones = pair.buffer_from_host(np.ones(8, np.float32))
    assert executable(ones, ones).tolist() == [2.0] * 8


@pytest.mark.api("<0.115", "it does not read what it writes")
def test_none_from_bytes(plugin, topology):
    with pytest.raises(errors.NotFoundError, match=r"No compiler (registered|factory)"):
        plugin.deserialize_topology(topology.serialize())


@pytest.mark.api("<0.115", "it compiles for no topology")
def test_compiling_needs_the_client(topology, program):
    with pytest.raises(errors.NotFoundError, match=r"No compiler (registered|factory)") as caught:
        topology.compile(program("add"))
    assert "client.compile(program).serialize()" in caught.value.hint


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((3, 1), "3 replica.* of 1 partition.* need 3 devices"),
        ((2, 2), "need 4 devices"),
        ((2**31 - 1, 2**31 - 1), "devices, "),
    ],
)
def test_more_devices_than_there_are(topology, pair, program, counts, words):
    replicas, partitions = counts
    options = pjrt_hub.CompileOptions(num_replicas=replicas, num_partitions=partitions)
    for compile, owner in ((topology.compile, "the topology"), (pair.compile, NAME)):
        with pytest.raises(ValueError, match=f"{words}.*{owner} has 2"):
            compile(program("add"), options)


def test_it_ends_with_its_client(plugin, program):
    client = plugin.client()
    topology, (description,) = client.topology, client.topology.device_descriptions
    client.close()
    for use in (
        topology.serialize,
        lambda: topology.attributes,
        lambda: topology.compile(program("add")),
        lambda: description.kind,
    ):
        with pytest.raises(errors.ClosedError):
            use()
    assert (repr(topology), repr(description)) == (
        "<Topology closed>",
        "<DeviceDescription closed>",
    )


@in_child
def test_a_borrowed_one_is_never_destroyed():
    """The client frees the topology; freeing it twice would end this child by SIGABRT."""
    BoundFunction._compile = lambda *fields: None  # every call then goes through Python
    called, call = [], BoundFunction.raw

    def raw(self, **inputs):
        called.append(self.name)
        return call(self, **inputs)

    BoundFunction.raw = raw
    for _ in range(3):
        own = pjrt_hub.client(PLATFORM, offline=True)
        topology = own.topology
        topology.serialize()
        own.close()
        del own, topology
        gc.collect()
    assert called.count("PJRT_Client_TopologyDescription") == 3
    assert called.count("PJRT_TopologyDescription_Destroy") == 0


def test_its_client_lives_as_long_as_it_does(plugin):
    topology = plugin.client().topology
    gc.collect()
    assert len(topology.device_descriptions) == 1


def test_a_program_that_is_too_new(client, topology):
    """A portable artifact that is too new is refused before it reaches the plugin."""
    have = reads_up_to(client)
    newer = f"1.{int(have.split('.')[1]) + 1}.0"
    for compile in (client.compile, topology.compile):
        with pytest.raises(errors.IncompatiblePluginError) as caught:
            compile(HEADER % newer.encode())
        told = (caught.value.need, caught.value.have)
        assert told == (f"StableHLO {newer}", f"StableHLO {have}")
        assert newer in caught.value.message
        assert have in caught.value.message


@pytest.mark.parametrize("version", ["the plugin's", "0.9.0"])
def test_a_program_that_is_old_enough_reaches_the_plugin(client, version):
    version = version.replace("the plugin's", reads_up_to(client))
    with pytest.raises(errors.PjrtError):  # the artifact is only a header
        client.compile(HEADER % version.encode())


def test_the_version_of_a_program(program):
    def version(source):
        return pjrt_hub.Program.of(source).stablehlo_version

    assert version(HEADER % b"1.13.3") == (1, 13, 3)
    assert version(b"ML\xefR\x01MLIR20.0.0git\0") is None
    assert version(program("add")) is None
