"""Memory that runs out, on the layer `discrete`: garbage is collected, and errors name holders."""

from __future__ import annotations

import gc
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from children import in_child
from texts import DONATED, doubling

import pjrt_hub
from pjrt_hub.errors import ResourceExhaustedError

pytestmark = pytest.mark.cpu("sets the layer itself")

SMALL = {"PJRT_HUB_LAYERS": "discrete", "PJRT_HUB_DISCRETE": "capacity=24MiB,prompt"}
LATE = {**SMALL, "PJRT_HUB_DISCRETE": "capacity=24MiB"}
NAMED = {**SMALL, "PJRT_HUB_BUFFER_ORIGINS": "1"}
MIB = 1 << 20
EIGHT = np.arange(8, dtype=np.float32)
BROAD = np.broadcast_to(EIGHT, (393216, 8))
#: 12 MiB, half of what there is.
HALF = np.arange(3 * MIB, dtype=np.float32)
Semantics = pjrt_hub.HostBufferSemantics


def broad(attribute="", devices=1):
    """A program that makes 12 MiB of 32 bytes, on each device."""
    head = (
        f"module attributes {{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = {devices} : i32}}"
    )
    return f"""{head} {{
  func.func @main(%a: tensor<8xf32> {attribute}) -> tensor<393216x8xf32> {{
    %0 = stablehlo.broadcast_in_dim %a, dims = [1] : (tensor<8xf32>) -> tensor<393216x8xf32>
    return %0 : tensor<393216x8xf32>
  }}
}}"""


class Node:
    """A holder that refers to itself, so that only a collection frees what it holds."""


def waste(client, mib=16, **where):
    node = Node()
    node.node, node.buffer = node, client.buffer_from_host(np.zeros(mib * MIB, np.uint8), **where)


def put(client, array=HALF, **how):
    buffer = client.buffer_from_host(array, **how)
    buffer.ready.wait()
    return buffer


def read(client):
    path = Path.cwd() / "half"
    HALF.tofile(path)
    try:
        return client.buffer_from_file(path, HALF.shape)
    finally:
        path.unlink()


def transfer(client):
    with pjrt_hub.Transfer(client, [((3 * MIB,), "f32")]) as transfer:
        buffer = transfer.retrieve_buffer(0)
        transfer.transfer_data(0, HALF, is_last=True).wait()
    return buffer


def program(client, attribute=""):
    return client.compile(broad(attribute)), client.buffer_from_host(EIGHT)


def bound(client):
    exe, a = program(client)
    return exe.bind(a)


def on_host(client):
    """12 MiB in the host's memory, which is not counted."""
    return put(client, memory=client.memory("pinned_host"))


def cut(client):
    return client.compile("""func.func @main(%a: tensor<3145728xf32>) -> tensor<8xf32> {
      %0 = stablehlo.slice %a [0:8] : (tensor<3145728xf32>) -> tensor<8xf32>
      return %0 : tensor<8xf32>
    }""")


def nothing(client):
    return None


#: Each takes 12 MiB of the device, and what the function before it made while there was room.
PROGRAMS = {
    "put": (nothing, lambda c, _: put(c)),
    "put in a memory": (nothing, lambda c, _: put(c, memory=c.memory("device"))),
    "put on a device": (nothing, lambda c, _: put(c, device=c.devices[0])),
    "put as another dtype": (nothing, lambda c, _: put(c, HALF.astype("f8"), dtype="float32")),
    "put in time": (
        nothing,
        lambda c, _: put(c, semantics=Semantics.IMMUTABLE_UNTIL_TRANSFER_COMPLETES),
    ),
    "put without a copy": (nothing, lambda c, _: put(c, semantics=Semantics.IMMUTABLE_ZERO_COPY)),
    "put in columns": (nothing, lambda c, _: put(c, HALF.reshape(-1, 2), layout=(0, 1))),
    "put with strides": (nothing, lambda c, _: put(c, np.stack([HALF] * 2, 1)[:, 0])),
    "file": (nothing, lambda c, _: read(c)),
    "uninitialized": (nothing, lambda c, _: c.create_uninitialized_buffer(HALF.shape)),
    "transfer": (nothing, lambda c, _: transfer(c)),
    "DLPack": (nothing, lambda c, _: c.from_dlpack(HALF, copy=True)),
    "copy to a device": (on_host, lambda c, half: half.copy_to_device(c.devices[0])),
    "copy to a memory": (on_host, lambda c, half: half.copy_to_memory(c.memory("device"))),
    "copy to another client": (
        lambda c: on_host(c.plugin.client()),
        lambda c, half: half.copy_to_device(c.devices[0]),
    ),
    "call": (program, lambda c, p: p[0](p[1])),
    "call with an array": (cut, lambda c, exe: exe(HALF)),
    "execute on a device": (program, lambda c, p: p[0].execute_on([p[1]], c.devices[0])[0][0]),
    "bound call": (bound, lambda c, call: call()),
    "bind an array": (cut, lambda c, exe: exe.bind(HALF).arguments[0][0]),
}
QUICK = ("put", "call", "bound call")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS]
)
def test_garbage_is_collected_when_memory_runs_out(child, name):
    child(recover, name, **SMALL)


def recover(client, name):
    gc.disable()
    [device] = client.devices
    prepare, make = PROGRAMS[name]
    given = prepare(client)
    waste(client)
    assert device.memory_stats()["bytes_in_use"] >= 16 * MIB
    value = make(client, given).to_numpy()
    assert device.memory_stats()["bytes_in_use"] <= 12 * MIB + 64
    whole = BROAD if value.shape == BROAD.shape else HALF
    right = np.array_equal(value.reshape(-1), whole.reshape(-1)[: value.size])
    assert right or name == "uninitialized"


def refusal(call, *arguments):
    with pytest.raises(ResourceExhaustedError, match=r"allocate 125\d{5} bytes") as caught:
        call(*arguments)
    return caught.value


@in_child(**SMALL)
def test_a_call_that_donates_is_not_made_again_but_can_be(client):
    gc.disable()
    exe, a = program(client, "{jax.buffer_donor = true}")
    assert exe.signature.donated == (0,)
    waste(client)
    refusal(exe, a)
    assert not a.is_deleted
    assert np.array_equal(exe(a).to_numpy(), BROAD)


@in_child(**SMALL)
def test_a_donated_argument_makes_room_for_the_result(client):
    ones = np.ones(4 * MIB, np.float32)  # 16 MiB of 24
    exe, a = client.compile(doubling(f"{ones.size}xf32", DONATED)), client.buffer_from_host(ones)
    for factor in (2, 4, 8):
        a = exe(a)
        assert np.array_equal(a.to_numpy(), factor * ones)
    assert client.devices[0].memory_stats()["bytes_in_use"] == 16 * MIB


@in_child(**SMALL, JAX_NUM_CPU_DEVICES="2")
def test_a_call_on_two_devices_is_not_made_again_but_can_be(client):
    gc.disable()
    exe = client.compile(broad(devices=2), pjrt_hub.CompileOptions(num_replicas=2))
    rows = [[client.buffer_from_host(EIGHT, device=device)] for device in client.devices]
    waste(client, device=client.devices[1])
    refusal(exe.execute, rows)
    for row in exe.execute(rows):
        assert np.array_equal(row[0].to_numpy(), BROAD)


@in_child(**LATE)
def test_what_fails_later_frees_garbage_for_the_next_try(client):
    gc.disable()
    exe, a = program(client)
    waste(client)
    failed = exe(a)
    refusal(failed.to_numpy)
    del failed
    assert np.array_equal(exe(a).to_numpy(), BROAD)


def line():
    return sys._getframe(1).f_lineno


@in_child(**NAMED)
def test_an_error_names_the_five_largest_holders_and_their_lines(client):
    def ones(kib):
        return np.ones(kib << 10, np.uint8)

    def sixth():
        return client.buffer_from_host(ones(1)), line()

    first, at_first = client.buffer_from_host(ones(6 << 10)), line()
    half = [client.buffer_from_host(ones(2 << 10)) for _ in range(2)]
    at_half = line() - 1
    again, at_again = client.compile(doubling("1048576xui8"))(ones(1 << 10)), line()
    empty, at_empty = client.create_uninitialized_buffer((1 << 9, 1 << 10), "uint8"), line()
    copy, at_copy = first.copy_to_device(client.devices[0]), line()
    last, _ = sixth()
    deleted = client.buffer_from_host(ones(4 << 10))
    deleted.delete()
    error = refusal(client.buffer_from_host, HALF)
    assert error.message.endswith("allocate 12582912 bytes.")
    assert re.findall(r"^  .*$", error.hint, re.MULTILINE) == [
        f"  {size}: {count} x ui8[{dims}] on discrete:0, made by cpu/{Path(__file__).name}:{at}"
        for size, count, dims, at in [
            ("6 MiB", 1, 6 * MIB, at_first),
            ("6 MiB", 1, 6 * MIB, at_copy),
            ("4 MiB", 2, 2 * MIB, at_half),
            ("1 MiB", 1, MIB, at_again),
            ("512 KiB", 1, "512,1024", at_empty),
        ]
    ]
    assert "PJRT_HUB_BUFFER_ORIGINS" not in error.hint
    return half, again, empty, copy, last


@in_child(**SMALL)
def test_without_lines_an_error_says_what_shows_them(client):
    kept = [client.buffer_from_host(np.zeros(8 * MIB, np.uint8)) for _ in range(2)]
    assert refusal(put, client).hint == (
        "delete buffers, donate arguments, or use smaller shapes; most is held by\n"
        "  16 MiB: 2 x ui8[8388608] on discrete:0\n"
        "PJRT_HUB_BUFFER_ORIGINS=1 shows the line of each"
    )
    return kept


@in_child(**SMALL)
def test_each_refusal_collects_before_the_second_try_and_before_it_names_holders(client):
    collected = []
    kept = client.buffer_from_host(np.zeros(16 * MIB, np.uint8))
    exe, a = program(client)
    gc.callbacks.append(lambda phase, _: collected.append(phase) if phase == "start" else None)
    gc.disable()
    for count, call in enumerate((lambda: put(client), lambda: exe(a), exe.bind(a)), 1):
        refusal(call)
        assert len(collected) == 2 * count
    del kept
    put(client)
    assert len(collected) == 6
