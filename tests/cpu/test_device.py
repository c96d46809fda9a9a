"""Devices on the CPU plugin: what they tell, how they are found, and what the plugin lacks."""

import copy

import pytest
from children import NAME, device_count

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.running.distributed import process_info
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
    assert device.coords is None


def test_a_device_by_its_id(four):
    assert four.process_count == 1
    for device in four.all_devices:
        assert four.lookup_device(device.id) is device
        assert four.lookup_device(device.local_hardware_id, local=True) is device


def test_there_is_one_object_for_each(four):
    described = four.topology.device_descriptions[1]
    for each in (four.devices[1], four.devices[1].default_memory, described):
        assert copy.copy(each) is each
        assert copy.deepcopy([each])[0] is each


def test_the_default_device_assignment(four):
    assert four.default_device_assignment() == ((0,),)
    assert four.default_device_assignment(2, 2) == ((0, 1), (2, 3))
    assert four.default_device_assignment(4) == ((0,), (1,), (2,), (3,))
    assert four.default_device_assignment(1, 3) == ((0, 1, 2),)


@pytest.mark.api(">=0.106", "it has the functions")
@pytest.mark.cpu("it has no statistics and no attributes")
def test_what_newer_plugins_answer(four):
    device = four.devices[0]
    with pytest.raises(errors.UnimplementedError, match="ClearMemoryStats is not supported"):
        device.clear_memory_stats()
    assert device.get_attributes() == {}
    assert device.poison_execution(1, errors.AbortedError("x")) is False
    with pjrt_hub.AsyncTrackingEvent(device, "x"):
        pass


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
    process_info.update(four, [ProcessInfo(0), ProcessInfo(1, state="disconnected")])
    with pytest.raises(error):
        process_info.update(four, [info])
    with pytest.raises(ValueError, match="no process"):
        process_info.update(four, [])
