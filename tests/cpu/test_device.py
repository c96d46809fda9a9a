"""Devices on the CPU plugin: what they tell, how they are found, and what the plugin lacks."""

from __future__ import annotations

import pytest
from children import NAME, device_count, lacking

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.running.distributed.process_info import ProcessInfo


@pytest.fixture(scope="module")
def four(plugin):
    with plugin.client(device_count(4)) as client:
        yield client


def test_a_device_in_the_plugins_words(four):
    device = four.devices[1]
    debug = "TFRT_CPU_1" if four.api.version.minor < 106 else "cpu:1"
    words = {"cpu": (debug, "CpuDevice(id=1)"), "discrete": ("discrete:1", "discrete:1")}
    assert (device.debug_string, device.to_string()) == words[NAME]
    assert (device.coords, dict(device.attributes)) == (None, {})


def test_a_device_by_its_id(four):
    for device in four.all_devices:
        assert four.lookup_device(device.id) is device
        assert four.lookup_addressable_device(device.local_hardware_id) is device


@pytest.mark.parametrize("lookup", ["lookup_device", "lookup_addressable_device"])
@pytest.mark.parametrize(
    ("id", "error", "words"),
    [
        (4, errors.InvalidArgumentError, "No matching device found"),
        (-1, errors.InvalidArgumentError, "No matching device found"),
        (1 << 31, ValueError, "does not fit 32 bits"),
        (1.0, TypeError, "float"),
        ("0", TypeError, "str"),
        (None, TypeError, "NoneType"),
    ],
)
def test_a_device_that_is_not_there(four, lookup, id, error, words):
    with pytest.raises(error, match=words):
        getattr(four, lookup)(id)


def test_processes(four):
    assert (four.process_index, four.process_count) == (0, 1)
    assert {device.process_index for device in four.all_devices} == {0}


def test_the_default_device_assignment(four):
    assert four.default_device_assignment() == ((0,),)
    assert four.default_device_assignment(2, 2) == ((0, 1), (2, 3))
    assert four.default_device_assignment(4) == ((0,), (1,), (2,), (3,))
    assert four.default_device_assignment(1, 3) == ((0, 1, 2),)


@pytest.mark.parametrize(
    ("counts", "error"),
    [
        ((0, 1), ValueError),
        ((1, 0), ValueError),
        ((-1, 1), ValueError),
        ((-2, -2), ValueError),
        ((5, 1), ValueError),
        ((2, 3), ValueError),
        ((1 << 31, 1), ValueError),
        ((1 << 16, 1 << 16), ValueError),
        ((1.0, 1), TypeError),
        (("1", 1), TypeError),
    ],
)
def test_a_device_assignment_that_would_abort(four, counts, error):
    with pytest.raises(error):
        four.default_device_assignment(*counts)


@pytest.mark.parametrize(
    ("function", "since", "use"),
    [
        ("PJRT_Device_ClearMemoryStats", "0.106", lambda device: device.clear_memory_stats()),
        ("PJRT_Device_GetAttributes", "0.92", lambda device: device.get_attributes()),
        (
            "PJRT_Device_PoisonExecution",
            "0.85",
            lambda device: device.poison_execution(1, errors.AbortedError("x")),
        ),
        (
            "PJRT_Device_CreateAsyncTrackingEvent",
            "0.86",
            lambda device: device.create_async_tracking_event("x"),
        ),
    ],
)
def test_what_a_plugin_lacks(plugin, function, since, use):
    with lacking(plugin, function).client() as client:
        with pytest.raises(pjrt_hub.errors.UnsupportedByPluginError) as caught:
            use(client.devices[0])
        have = str(client.api.version)
    told = (caught.value.function, caught.value.since, caught.value.have)
    assert told == (function, since, have)


@pytest.mark.api(">=0.106", "it has the functions")
@pytest.mark.cpu("it has no statistics and no attributes")
def test_what_newer_plugins_answer(four):
    device = four.devices[0]
    with pytest.raises(errors.UnimplementedError, match="ClearMemoryStats is not supported"):
        device.clear_memory_stats()
    assert device.get_attributes() == {}
    assert device.poison_execution(1, errors.AbortedError("x")) is False
    with device.create_async_tracking_event("x"):
        pass


@pytest.mark.parametrize(
    ("launch_id", "error", "kind"),
    [
        (1, "text", TypeError),
        (1, ValueError("x"), TypeError),
        (1 << 31, errors.AbortedError("x"), ValueError),
        ("1", errors.AbortedError("x"), TypeError),
    ],
)
def test_poison_is_checked_before_the_plugin_is_asked(four, launch_id, error, kind):
    with pytest.raises(kind):
        four.devices[0].poison_execution(launch_id, error)


@pytest.mark.parametrize(
    "use",
    [
        lambda client: client.lookup_device(0),
        lambda client: client.lookup_addressable_device(0),
        lambda client: client.default_device_assignment(),
        lambda client: client.topology,
    ],
)
def test_a_closed_client_looks_nothing_up(plugin, use):
    client = plugin.client()
    client.close()
    with pytest.raises(errors.ClosedError):
        use(client)


def test_a_memory_in_the_plugins_words(four):
    memory, other = four.devices[0].default_memory, four.devices[1].default_memory
    assert memory.to_string() == "CPU_DEVICE_0"
    assert memory.debug_string == "CpuDeviceMemory(id=0, process_index=0, client=cpu)"
    assert memory.kind_id == other.kind_id
    kinds = {each.kind: each.kind_id for each in four.devices[0].memories}
    assert len(set(kinds.values())) == len(kinds) == 3


@pytest.mark.parametrize(
    ("info", "error"),
    [
        ((0,), TypeError),
        (ProcessInfo(-1), ValueError),
        (ProcessInfo(2**31), ValueError),
        (ProcessInfo(0, -1), ValueError),
        (ProcessInfo("0"), TypeError),
        (ProcessInfo(0, 0, "sleeping"), ValueError),
    ],
)
def test_processes_that_cannot_be(four, info, error):
    four.update_global_process_info([ProcessInfo(0), ProcessInfo(1, state="disconnected")])
    with pytest.raises(error):
        four.update_global_process_info([info])
    with pytest.raises(ValueError, match="no process"):
        four.update_global_process_info([])
