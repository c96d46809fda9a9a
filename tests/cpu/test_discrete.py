"""The CPU's devices as an accelerator's, made by the layer `discrete`."""

from __future__ import annotations

import ctypes
import signal

import numpy as np
import pytest
from children import in_child

import pjrt_hub
from pjrt_hub.errors import InvalidArgumentError, PjrtHubError, ResourceExhaustedError
from pjrt_hub.running.interpose import layers

pytestmark = pytest.mark.cpu("sets the layer itself")

ON = {"PJRT_HUB_LAYERS": "discrete"}
HELD = {**ON, "PJRT_HUB_DISCRETE": "hold,seed=1"}
SMALL = {**ON, "PJRT_HUB_DISCRETE": "capacity=1MiB"}
VALIDATED = {"PJRT_HUB_LAYERS": "validate,discrete", "PJRT_HUB_DISCRETE": "seed=3"}
#: Makes 2 MiB of 32 bytes, more than there is.
LARGE = """func.func @main(%a: tensor<8xf32>) -> tensor<65536x8xf32> {
  %0 = stablehlo.broadcast_in_dim %a, dims = [1] : (tensor<8xf32>) -> tensor<65536x8xf32>
  return %0 : tensor<65536x8xf32>
}"""
SLICE = """func.func @main(%a: tensor<65536x8xf32>) -> tensor<1x8xf32> {
  %0 = stablehlo.slice %a [0:1, 0:8] : (tensor<65536x8xf32>) -> tensor<1x8xf32>
  return %0 : tensor<1x8xf32>
}"""
DONATE = """func.func @main(%a: tensor<8xf32> {tf.aliasing_output = 0 : i32}) -> tensor<8xf32> {
  %0 = stablehlo.add %a, %a : tensor<8xf32>
  return %0 : tensor<8xf32>
}"""
EIGHT = np.arange(8, dtype=np.float32)


@in_child(**ON)
def test_what_it_says_of_itself(client):
    [device] = client.devices
    assert (client.platform_name, device.kind, str(device)) == ("discrete",) * 2 + ("discrete:0",)
    assert client.topology.platform_name == "discrete"
    assert [each.kind for each in device.memories] == ["device", "pinned_host", "unpinned_host"]
    buffer = client.buffer_from_host(EIGHT)
    assert buffer.is_on_cpu is False
    assert buffer.memory.kind == "device"
    assert np.array_equal(buffer.to_numpy(), EIGHT)
    moved = buffer.copy_to_memory(
        next(each for each in device.memories if each.kind == "pinned_host")
    )
    assert moved.is_on_cpu is True
    assert np.array_equal(moved.to_numpy(), EIGHT)


@in_child(PJRT_HUB_LAYERS="discrete", PJRT_HUB_DISCRETE="platform=tpu")
def test_another_name(client):
    assert (client.platform_name, client.devices[0].kind) == ("tpu", "tpu")


@pytest.mark.parametrize("touch", ["read", "write"])
def test_device_memory_cannot_be_touched(child, touch):
    child(touch_device_memory, touch, status=-signal.SIGSEGV, **ON)


def touch_device_memory(client, touch):
    buffer = client.buffer_from_host(EIGHT)
    address = buffer.unsafe_pointer()
    if touch == "read":
        ctypes.string_at(address, 4)
    else:
        ctypes.memset(address, 0, 4)


@in_child(**ON)
def test_only_addresses_of_the_device_can_be_viewed(client):
    buffer = client.buffer_from_host(EIGHT)
    with buffer.external_reference() as reference:
        view = client.create_view_of_device_buffer(reference.pointer, (4,), np.float32)
        assert np.array_equal(view.to_numpy(), EIGHT[:4])
    array = np.zeros(64, np.float32)
    with pytest.raises(InvalidArgumentError, match="not of this device's memory"):
        client.create_view_of_device_buffer(array.ctypes.data, (4,), np.float32)


@in_child(**SMALL)
def test_memory_ends_and_is_given_back(client):
    [device] = client.devices
    half = np.zeros(1 << 19, np.uint8)
    first, second = client.buffer_from_host(half), client.buffer_from_host(half)
    stats = device.memory_stats()
    assert (stats["bytes_in_use"], stats["bytes_limit"]) == (1 << 20, 1 << 20)
    with pytest.raises(ResourceExhaustedError, match="allocate 524288 bytes"):
        client.buffer_from_host(half)
    second.delete()
    assert np.array_equal(client.buffer_from_host(half).to_numpy(), half)
    assert np.array_equal(first.to_numpy(), half)
    assert device.memory_stats()["peak_bytes_in_use"] == 1 << 20


@in_child(**SMALL)
def test_results_for_which_there_is_no_room_are_errors_and_later_ones_are_right(client):
    large, donate = client.compile(LARGE), client.compile(DONATE)
    buffer = client.buffer_from_host(EIGHT)
    result = large(buffer)  # the call itself succeeds
    again = client.compile(SLICE)(result)
    for each in (result, again, result.copy_to_device(client.devices[0])):
        with pytest.raises(ResourceExhaustedError, match="allocate 2097152 bytes"):
            each.to_numpy()
    assert not result.is_deleted
    assert np.array_equal(donate(buffer).to_numpy(), 2 * EIGHT)


@in_child(**HELD)
def test_a_call_returns_before_its_work_begins(client):
    executable = client.compile(DONATE)
    result = executable(client.buffer_from_host(EIGHT))
    assert not result.ready.is_ready()
    assert np.array_equal(result.to_numpy(), 2 * EIGHT)
    assert result.ready.is_ready()


@in_child(**HELD)
def test_what_is_donated_is_deleted_at_once_and_given_to_no_other_program(client):
    executable = client.compile(DONATE)
    for _ in range(3):  # from the second on it is known what the program takes
        buffer = client.buffer_from_host(EIGHT)
        result = executable(buffer)
        assert buffer.is_deleted
        with pytest.raises(PjrtHubError, match=r"deleted|donated"):
            executable(buffer)
        assert np.array_equal(result.to_numpy(), 2 * EIGHT)


@in_child(**HELD)
def test_the_hosts_array_is_read_late(client):
    """So nobody may write to it before: here somebody does."""
    array = EIGHT.copy()
    until = pjrt_hub.HostBufferSemantics.IMMUTABLE_UNTIL_TRANSFER_COMPLETES
    late = client.buffer_from_host(array, semantics=until)
    early = client.buffer_from_host(array)
    array += 1
    assert np.array_equal(early.to_numpy(), EIGHT)
    assert np.array_equal(late.to_numpy(), EIGHT + 1)


def order_of_events(client):
    buffers = [client.buffer_from_host(EIGHT + each) for each in range(12)]
    results = [client.compile(DONATE)(each) for each in buffers]
    seen = []
    for number, result in enumerate(results):
        result.ready.add_done_callback(lambda event, number=number: seen.append(number))
    for result in results:
        result.ready.wait()
    while len(seen) < 12:
        signal.sigtimedwait((), 0.001)
    print(*seen)


def test_a_seed_decides_the_order(child):
    def order(seed):
        return child(order_of_events, PJRT_HUB_DISCRETE=f"hold,seed={seed},window=64", **ON)

    orders = [order(seed) for seed in (1, 1, 1, 2, 3)]
    assert orders[0] == orders[1] == orders[2]
    assert len(set(orders)) == 3
    assert all(sorted(map(int, each.split())) == list(range(12)) for each in orders)


def mix(client):
    """Puts, programs, copies between devices, donations and deletions, in a random order."""
    choose = np.random.default_rng(0)
    options = [pjrt_hub.CompileOptions(device_ids=[[each.id]]) for each in client.devices]
    programs = [client.compile(DONATE, options=each) for each in options]
    live = []
    for step in range(60):
        kind = choose.integers(4)
        if kind == 0 or len(live) < 3:
            value = EIGHT + step
            device = client.devices[choose.integers(2)]
            live.append((client.buffer_from_host(value, device=device), value))
            continue
        buffer, value = live.pop(choose.integers(len(live)))
        place = client.devices.index(buffer.device)
        if kind == 1:
            live.append((programs[place](buffer), 2 * value))
        elif kind == 2:
            live.append((buffer.copy_to_device(client.devices[1 - place]), value))
        else:
            buffer.delete()
    for buffer, value in live:
        assert np.array_equal(buffer.to_numpy(), value)


def mix_of_two_devices():
    with pjrt_hub.load("cpu").client({"cpu_device_count": 2}) as client:
        mix(client)


def test_the_validation_layer_finds_nothing(child):
    child(mix_of_two_devices, prepared=False, **VALIDATED)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, 200, 20)])
def test_two_hundred_seeds(child, seeds):
    for seed in seeds:
        kind = ("", "hold,", "window=100,", "capacity=4KiB,", "tiled,")[seed % 5]
        child(mix_of_two_devices, prepared=False, PJRT_HUB_DISCRETE=f"{kind}seed={seed}", **ON)


def test_settings():
    assert layers.settings("seed=7, hold,tiled") == ["seed=7", "hold", "tiled"]
    for wrong in ("speed=1", "seed", "seed=x", "capacity=1GB", "hold=1", "tiled=8", "window=0"):
        with pytest.raises(PjrtHubError, match=f"has no setting '{wrong}'.*\n*hint"):
            layers.settings(wrong)
