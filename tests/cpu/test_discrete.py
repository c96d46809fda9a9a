"""The layer `discrete`, which makes CPU devices behave like those of an accelerator."""

from __future__ import annotations

import ctypes
import shlex
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest
from children import command, in_child
from texts import DONATED, adding, custom_call, doubling

import pjrt_hub
from pjrt_hub.errors import InvalidArgumentError, PjrtHubError, ResourceExhaustedError
from pjrt_hub.running.client.plugin import Plugin
from pjrt_hub.running.executable.serialized import Guards
from pjrt_hub.running.extensions import layouts
from pjrt_hub.running.interpose import layers

pytestmark = pytest.mark.cpu("sets the layer itself")

ON = {"PJRT_HUB_LAYERS": "discrete"}
#: A busy machine may pause a host for long, so only 100 ms without a call count as silence.
STILL = "hold,silence=100"
HELD = {**ON, "PJRT_HUB_DISCRETE": f"{STILL},seed=1"}
SMALL = {**ON, "PJRT_HUB_DISCRETE": "capacity=1MiB"}
DONATE, ADD = doubling("8xf32", DONATED), adding("8xf32")
#: A program that makes 2 MiB of 32 bytes, more than the device has.
LARGE = """func.func @main(%a: tensor<8xf32>) -> tensor<65536x8xf32> {
  %0 = stablehlo.broadcast_in_dim %a, dims = [1] : (tensor<8xf32>) -> tensor<65536x8xf32>
  return %0 : tensor<65536x8xf32>
}"""
SLICE = """func.func @main(%a: tensor<65536x8xf32>) -> tensor<1x8xf32> {
  %0 = stablehlo.slice %a [0:1, 0:8] : (tensor<65536x8xf32>) -> tensor<1x8xf32>
  return %0 : tensor<1x8xf32>
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
@in_child(status=-signal.SIGSEGV, PYTHONFAULTHANDLER="", **ON)
def test_device_memory_cannot_be_touched(client, touch):
    buffer = client.buffer_from_host(EIGHT)
    address = buffer.unsafe_pointer()
    if touch == "read":
        ctypes.string_at(address, 4)
    else:
        ctypes.memset(address, 0, 4)


@in_child(**ON)
def test_only_addresses_of_the_device_can_be_viewed(client):
    buffer = client.buffer_from_host(EIGHT)
    with pjrt_hub.ExternalReference(buffer) as reference:
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
    result = large(buffer)  # the call succeeds, and the result fails later
    again = client.compile(SLICE)(result)
    for each in (result, again, result.copy_to_device(client.devices[0])):
        with pytest.raises(ResourceExhaustedError, match="allocate 2097152 bytes"):
            each.to_numpy()
    assert not result.is_deleted
    assert np.array_equal(donate(buffer).to_numpy(), 2 * EIGHT)


@in_child(**ON, PJRT_HUB_DISCRETE="capacity=1MiB,prompt,seed=4")
def test_a_prompt_device_refuses_in_the_call(client):
    [device], large = client.devices, client.compile(LARGE)
    buffer = client.buffer_from_host(EIGHT)
    part = client.buffer_from_host(np.ones(400_000, np.uint8))
    copy = part.copy_to_device(device)
    for call in (
        lambda: large(buffer),
        lambda: large.execute([[buffer]], return_events=True),
        lambda: part.copy_to_device(device),
        lambda: pjrt_hub.Transfer(client, [((400_000,), "ui8")]),
    ):
        with pytest.raises(ResourceExhaustedError, match=r"allocate (400000|2097152) bytes"):
            call()
    assert np.array_equal(client.compile(DONATE)(buffer).to_numpy(), 2 * EIGHT)
    assert np.array_equal(copy.to_numpy(), part.to_numpy())
    assert device.memory_stats()["bytes_in_use"] <= 800_064


@pytest.mark.parametrize("tiled", ["", ",tiled"])
def test_what_an_array_is_like_is_told_though_it_never_comes(child, tiled):
    child(ask_of_missing, tiled, **ON, PJRT_HUB_DISCRETE=f"capacity=1MiB{tiled}")


def ask_of_missing(client, tiled):
    """JAX ends the process if one of these functions returns an error."""
    device = client.devices[0]
    memories = {each.kind: each for each in device.memories}
    result = client.compile(LARGE)(client.buffer_from_host(EIGHT))
    written = "{1,0:T(8,128)}" if tiled else "{1,0}"
    for buffer, kind in (
        (result, "device"),
        (result.copy_to_device(device), "device"),
        (result.copy_to_memory(memories["pinned_host"]), "pinned_host"),
    ):
        assert (buffer.device, buffer.memory) == (device, memories[kind])
        assert buffer.is_on_cpu == (kind == "pinned_host")
        assert (buffer.shape, buffer.dtype, buffer.layout) == ((65536, 8), np.float32, (1, 0))
        dims = client.api.call("PJRT_Buffer_UnpaddedDimensions", buffer=buffer.address)
        assert list(dims) == [65536, 8]
        dynamic = client.api.call("PJRT_Buffer_DynamicDimensionIndices", buffer=buffer.address)
        assert list(dynamic) == []
        assert str(layouts.buffer_layout(buffer)) == written
        with pytest.raises(ResourceExhaustedError, match="allocate"):
            buffer.to_numpy()


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
    for _ in range(3):  # the second call knows which arguments are donated
        buffer = client.buffer_from_host(EIGHT)
        result = executable(buffer)
        assert buffer.is_deleted
        with pytest.raises(PjrtHubError, match=r"deleted|donated"):
            executable(buffer)
        assert np.array_equal(result.to_numpy(), 2 * EIGHT)


@pytest.mark.slow
@in_child(PJRT_HUB_LAYERS="discrete", PJRT_HUB_DISCRETE=f"{STILL},window=64,seed=1")
def test_what_is_donated_is_copied_before_if_the_copy_was_asked_for_before(client):
    executable = client.compile(DONATE)
    for number in range(20):
        buffer = client.buffer_from_host(EIGHT + number)
        copies = [buffer.copy_to_device(client.devices[0]) for _ in range(4)]
        result = executable(buffer)
        assert np.array_equal(result.to_numpy(), 2 * (EIGHT + number))
        assert all(np.array_equal(each.to_numpy(), EIGHT + number) for each in copies)


@in_child(**HELD)
def test_the_hosts_array_is_read_late(client):
    """The host must not write to it before that; this test does."""
    array = EIGHT.copy()
    until = pjrt_hub.HostBufferSemantics.IMMUTABLE_UNTIL_TRANSFER_COMPLETES
    late = client.buffer_from_host(array, semantics=until)
    early = client.buffer_from_host(array)
    array += 1
    assert np.array_equal(early.to_numpy(), EIGHT)
    assert np.array_equal(late.to_numpy(), EIGHT + 1)


def order_of_events(client):
    program = client.compile(DONATE)
    buffers = [client.buffer_from_host(EIGHT + each) for each in range(12)]
    print_order([program(each).ready for each in buffers])


@pytest.mark.slow
def test_a_seed_decides_the_order(child):
    def order(seed):
        return child(order_of_events, PJRT_HUB_DISCRETE=f"silence=1000,seed={seed},window=64", **ON)

    orders = [order(seed) for seed in (1, 1, 1, 2, 3)]
    assert orders[0] == orders[1] == orders[2]
    assert len(set(orders)) == 3
    assert all(sorted(map(int, each.split())) == list(range(12)) for each in orders)


@dataclass
class Mix:
    """Random puts, programs, copies between devices, donations, errors, gets and deletions.

    One seed decides the steps and, in the layer, the order in which they complete. Each value is
    compared with numpy's.
    """

    seed: int
    devices: int
    live: list = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)

    def run(self):
        self.choose = np.random.default_rng(self.seed)
        with pjrt_hub.load("cpu").client({"cpu_device_count": self.devices}) as client:
            self.client = client
            options = [pjrt_hub.CompileOptions(device_ids=[[each.id]]) for each in client.devices]
            self.donate, self.add, self.large = (
                [client.compile(text, options=each) for each in options]
                for text in (DONATE, ADD, LARGE)
            )
            steps = (self.put, self.add_two, self.copy, self.donate_one, self.get, self.fail)
            for number in range(60):
                step = self.put if len(self.live) < 3 else steps[self.choose.integers(len(steps))]
                self.counts[step.__name__] += 1
                step(number)
            for buffer, value in self.live:
                assert np.array_equal(buffer.to_numpy(), value)
        print(*sorted(self.counts.items()))

    def take(self):
        return self.live.pop(self.choose.integers(len(self.live)))

    def device(self):
        return self.client.devices[self.choose.integers(self.devices)]

    def put(self, number):
        value = EIGHT + number
        self.live.append((self.client.buffer_from_host(value, device=self.device()), value))

    def add_two(self, number):
        a, left = self.live[self.choose.integers(len(self.live))]
        b, right = self.take()
        place = self.client.devices.index(a.device)
        total = self.add[place](a, b if b.device is a.device else b.copy_to_device(a.device))
        self.live.append((total, left + right))

    def copy(self, number):
        buffer, value = self.live[self.choose.integers(len(self.live))]
        self.live.append((buffer.copy_to_device(self.device()), value))

    def donate_one(self, number):
        buffer, value = self.take()
        place = self.client.devices.index(buffer.device)
        self.live.append((self.donate[place](buffer), 2 * value))
        assert buffer.is_deleted

    def get(self, number):
        buffer, value = self.take()
        assert np.array_equal(buffer.to_numpy(), value)
        buffer.delete()

    def fail(self, number):
        """Run out of memory: only the result and the values computed from it fail."""
        buffer, value = self.live[self.choose.integers(len(self.live))]
        large = self.large[self.client.devices.index(buffer.device)](buffer)
        for failed in (large, large.copy_to_device(self.device())):
            with pytest.raises(ResourceExhaustedError, match=r"allocate \d{7,} bytes"):
                failed.to_numpy()
        assert np.array_equal(buffer.to_numpy(), value)


def run_mix(seed, devices):
    Mix(seed, devices).run()


#: Settings of the layer that are tried with each seed; `fail` also needs a capacity.
KINDS = ("", "hold,", "window=100,", "hold,window=100,", "tiled,")


def mixed(seed):
    """The layer's settings for a seed, and the number of devices, one to eight."""
    return f"{KINDS[seed % 5]}capacity=1MiB,seed={seed}", 1 + seed // 5 % 8


def test_the_validation_layer_finds_nothing(child):
    validated = {"PJRT_HUB_LAYERS": "validate,discrete"}
    settings, _ = mixed(3)
    child(run_mix, 3, 2, prepared=False, PJRT_HUB_DISCRETE=settings, **validated)


@pytest.mark.parametrize("seed", [1, 10, 20, 31])
def test_a_mix_on_one_to_eight_devices(child, seed):
    run_seed(child, seed)


@pytest.mark.slow
@pytest.mark.night
@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, 200, 20)])
def test_two_hundred_seeds(child, seeds):
    for seed in seeds:
        run_seed(child, seed)


def run_seed(child, seed):
    """Run the mix of a seed in a child process; a failure names the command that repeats it."""
    settings, devices = mixed(seed)
    try:
        return child(run_mix, seed, devices, prepared=False, PJRT_HUB_DISCRETE=settings, **ON)
    except AssertionError as exc:
        again = " ".join(map(shlex.quote, command(run_mix, seed, devices, prepared=False)))
        exc.add_note(
            f"seed {seed}, again: PJRT_HUB_LAYERS=discrete PJRT_HUB_DISCRETE={settings} {again}"
        )
        raise


def order_on(devices):
    with pjrt_hub.load("cpu").client({"cpu_device_count": devices}) as client:
        order_of_a_mix(client)


def print_order(events):
    """Print the order in which the events fire."""
    seen = []
    for number, event in enumerate(events):
        event.add_done_callback(lambda _, number=number: seen.append(number))
    while len(seen) < len(events):
        signal.sigtimedwait((), 0.001)
    print(*seen)


def order_of_a_mix(client):
    """Print the order in which the events of copies between devices and of programs fire."""
    first, last = client.devices[0], client.devices[-1]
    program = client.compile(DONATE)
    made = []
    for number in range(8):
        buffer = client.buffer_from_host(EIGHT + number, device=first)
        made += [buffer.copy_to_device(last), program(buffer)]
    print_order([each.ready for each in made])
    with ThreadPoolExecutor(len(made)) as pool:  # reads in turn would each wait for silence
        for number, value in enumerate(pool.map(lambda each: each.to_numpy(), made)):
            assert np.array_equal(value, (1 + number % 2) * (EIGHT + number // 2))


@in_child(**ON)
def test_another_plugin_object_of_the_library_changes_no_client(client):
    """Whether code is for this processor alone depends on the name that the layer hides."""
    Plugin(client.plugin.api)
    assert Guards.of(client).machine


@pytest.mark.slow
@pytest.mark.parametrize("devices", range(1, 9))
def test_a_seed_replays_copies_between_devices(child, devices):
    def order(seed):
        settings = f"hold,silence=1000,window=64,seed={seed}"
        return child(order_on, devices, prepared=False, PJRT_HUB_DISCRETE=settings, **ON)

    orders = [order(seed) for seed in (7, 7, 8)]
    assert orders[0] == orders[1] != orders[2]
    assert [sorted(map(int, each.split())) for each in orders] == [list(range(16))] * 3


@in_child(**HELD)
def test_what_is_held_is_held_until_somebody_waits(client):
    """Other calls do not release it; only silence or a wait does."""
    program = client.compile(ADD)
    buffers = [client.buffer_from_host(EIGHT + each) for each in range(20)]
    results = [program(each, each) for each in buffers]
    assert not results[-1].ready.is_ready()
    assert np.array_equal(results[-1].to_numpy(), 2 * (EIGHT + 19))
    for number, each in enumerate(results):
        assert np.array_equal(each.to_numpy(), 2 * (EIGHT + number))


@pytest.mark.parametrize("ask", ["program", "layout", "raw"])
@in_child(PJRT_HUB_DISCRETE="hold,seed=1", timeout=60, **ON)
def test_no_question_keeps_python_from_work_that_waits_for_it(client, ask):
    """A question from Python must not block a device that runs a Python function."""
    begun = threading.Event()

    def turn(a, out):
        begun.set()
        out[...] = a[::-1]

    client.plugin.ffi.register("turn", turn)
    program = client.compile(custom_call("turn", "5xi4"))
    result = program(client.buffer_from_host(np.arange(5).astype(ml_dtypes.int4)))
    if ask == "layout":
        assert result.layout == (0,)
    elif ask == "raw":
        packed = np.zeros(3, np.uint8)
        result.copy_raw_to_host(packed).wait()
    assert begun.is_set()
    assert result.tolist() == [4, 3, 2, 1, 0]


def test_settings():
    assert layers.settings("seed=7, hold,tiled") == ["seed=7", "hold", "tiled"]
    wrongs = "speed=1 silence= silence=0 seed seed=x capacity=1GB hold=1 tiled=8 window=0"
    for wrong in wrongs.split():
        with pytest.raises(PjrtHubError, match=f"has no setting '{wrong}'.*\n*hint"):
            layers.settings(wrong)
