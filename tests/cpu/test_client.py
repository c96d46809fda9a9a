"""Clients, devices and memories: what they report and refuse, and several clients at once."""

import shutil
from functools import partial
from pathlib import Path

import pytest
from children import NAME, in_child, lacking

import pjrt_hub
from pjrt_hub.errors import (
    PluginError,
    UnsupportedByPluginError,
)
from pjrt_hub.kit.conformance import programs


def test_what_completion_offers_stays_small(client, plugin):
    buffer = client.buffer_from_host(1.0)
    few = (plugin, client.devices[0], client.memories[0], buffer.ready, client.topology)
    several = (client, buffer)
    for most, objects in ((25, few), (27, several), (32, [client.compile(programs.ADD)])):
        for each in objects:
            assert len([name for name in dir(each) if name[0] != "_"]) <= most, each


@pytest.mark.cpu("its own words")
def test_what_a_client_tells(client, plugin):
    assert client.plugin is plugin
    assert client.platform_name == "cpu"
    assert client.platform_version == "cpu"
    assert client.process_index == 0
    assert not client.closed
    assert repr(client) == "<Client cpu with 1 device>"


#: The plugin's builds: PJRT API -> name of the library, newest StableHLO version.
BUILDS = {
    "0.81": ("xla_cpu_pjrt.so", (1, 13, 3)),
    "0.106": ("libpjrt_cpu.so", (1, 16, 1)),
    "0.115": ("pjrt_c_api_cpu_plugin.so", (1, 20, 0)),
}


@pytest.mark.cpu("its own words")
def test_what_the_plugin_tells(plugin):
    name, stablehlo = BUILDS[str(plugin.api_version)]
    assert plugin.attributes == {
        "xla_version": 2,
        "stablehlo_current_version": stablehlo,
        "stablehlo_minimum_version": (0, 9, 0),
    }
    assert plugin.path.name == name
    assert f"API {plugin.api_version}" in repr(plugin)


@pytest.mark.cpu("its options")
@pytest.mark.parametrize("count", [1, 2, 8])
def test_as_many_devices_as_asked_for(plugin, count):
    with plugin.client({"cpu_device_count": count}) as client:
        assert len(client.devices) == count
        assert client.all_devices == client.devices
        assert [device.id for device in client.devices] == list(range(count))
        assert len(client.memories) == 3 * count


def test_what_a_device_tells(pair):
    for index, device in enumerate(pair.devices):
        assert (device.id, device.kind, device.process_index) == (index, NAME, 0)
        assert device.is_addressable
        assert device.local_hardware_id == index
        assert device.client is pair
        assert str(device) == f"{NAME}:{index}"
        assert repr(device) == f"<Device {NAME}:{index} '{NAME}'>"
        assert dict(device.attributes) == {}
    assert pair.devices is pair.devices
    assert pair.buffer_from_host([1]).device is pair.devices[0]


@pytest.mark.cpu("counts nothing")
def test_what_the_plugin_does_not_count(client):
    assert client.devices[0].memory_stats() is None


@pytest.mark.cpu("its options")
@pytest.mark.parametrize(("options", "count"), [({}, 3), ({"cpu_device_count": 2}, 2)])
@in_child(JAX_NUM_CPU_DEVICES="3")
def test_a_variable_sets_an_option_that_the_program_does_not(options, count):
    with pjrt_hub.client("cpu", offline=True, options=options) as client:
        assert len(client.devices) == count


@pytest.mark.cpu("its options")
@in_child(JAX_NUM_CPU_DEVICES="three")
def test_a_variable_that_means_nothing_is_an_error():
    with pytest.raises(ValueError, match="variable JAX_NUM_CPU_DEVICES is 'three'"):
        pjrt_hub.client("cpu", offline=True)


@pytest.mark.cpu("its options")
@in_child(JAX_NUM_CPU_DEVICES="0")
def test_a_wrong_variable_leads_to_no_other_plugin():
    with pytest.raises(ValueError, match="'cpu_device_count' is 0; it must be at least 1"):
        pjrt_hub.client(offline=True)


@pytest.mark.cpu("its options")
def test_a_client_without_devices_is_refused(library, tmp_path):
    """Of a library without a manifest, options are not checked."""
    other = Path(shutil.copy(library, tmp_path / "libother.so"))
    for make in (pjrt_hub.load(other).client, partial(pjrt_hub.client, str(other))):
        with pytest.raises(PluginError, match="made a client of cpu without any device"):
            make(options={"cpu_device_count": 0})


def test_functions_that_the_plugin_lacks(plugin):
    name, have = "PJRT_Client_CreateErrorBuffer", str(plugin.api_version)
    with pytest.raises(UnsupportedByPluginError) as caught:
        lacking(plugin, name).api.function(name)
    error = caught.value
    assert (error.function, error.since, error.have) == (name, "0.82", have)
    it_is_old = plugin.api_version.minor < 82
    but = "the plugin has" if it_is_old else "the plugin leaves it out and has"
    assert f"came with PJRT API 0.82, {but} {have}" in str(error)


def test_loading_twice_is_loading_once(plugin):
    again = pjrt_hub.load(plugin.path)
    assert again.api is plugin.api


def test_a_with_block_closes(plugin):
    with pytest.raises(ZeroDivisionError), plugin.client() as client:
        1 / 0  # noqa: B018
    assert client.closed


@pytest.mark.cpu("asks for it by name")
@in_child(stdout="environment world\n")
def test_the_world_is_read_once():
    from pjrt_hub.door import process

    calls = []
    for name in ("environment", "world"):
        read = getattr(process, name)
        setattr(process, name, lambda name=name, read=read: calls.append(name) or read())
    with pjrt_hub.client("cpu", offline=True):
        print(*sorted(calls))
