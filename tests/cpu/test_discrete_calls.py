"""Calls in unusual orders and at unusual times, which a host may make of the layer `discrete`."""

from __future__ import annotations

import ctypes
import os
import signal
import time

import numpy as np
import pytest
from children import in_child
from texts import DONATED, adding, custom_call, doubling

import pjrt_hub
from pjrt_hub.errors import PjrtError, ResourceExhaustedError
from pjrt_hub.running.capi import table, unchecked
from pjrt_hub.running.capi.ambient import holdings
from pjrt_hub.running.capi.unchecked import Sized
from pjrt_hub.running.interpose import layers

pytestmark = pytest.mark.cpu("sets the layer itself")

ON = {"PJRT_HUB_LAYERS": "discrete"}
HELD = {**ON, "PJRT_HUB_DISCRETE": "hold,silence=100,window=64,seed=1"}
SMALL = {**ON, "PJRT_HUB_DISCRETE": "capacity=1MiB"}
TILED = {**ON, "PJRT_HUB_DISCRETE": "tiled"}
EIGHT = np.arange(8, dtype=np.float32)
MEBIBYTE = np.ones(1 << 20, np.uint8)
EXECUTE = "PJRT_LoadedExecutable_Execute"
CREATE = "PJRT_Client_CreateBuffersForAsyncHostToDevice"


def in_place(count):
    """A program that doubles `count` numbers in place."""
    return doubling(f"{count}xf32", DONATED)


def sized(name, **members):
    """A struct with the size that the newest header gives it."""
    return Sized(name, table.STRUCT_SIZE[name], **members)


class Launch:
    """A run of a program with one argument, made as a host in C makes it."""

    def __init__(self, program, buffer, chain=0, **options):
        self.api = program.client.api
        self.options = sized("PJRT_ExecuteOptions", **options)
        self.row, self.out = np.array([buffer.address], np.uint64), np.zeros(1, np.uint64)
        rows, outs = (np.array([each.ctypes.data], np.uint64) for each in (self.row, self.out))
        self.args = sized(
            f"{EXECUTE}_Args",
            executable=program.address,
            options=self.options.address,
            argument_lists=rows.ctypes.data,
            output_lists=outs.ctypes.data,
            num_devices=1,
            num_args=1,
        )
        ctypes.c_uint64.from_address(self.args.address + 8).value = chain
        unchecked.call(self.api, EXECUTE, self.args)
        self.result = int(self.out[0])
        # The host may reuse all this memory after the call, so the test overwrites it.
        for each in (self.row, self.out, rows, outs):
            each.fill(0xA5A5A5A5A5A5A5A5)
        for each in (self.options, self.args):
            ctypes.memset(each.address, 0xA5, each.size)

    def read(self):
        """The eight numbers of the result."""
        found, to_host = np.zeros_like(EIGHT), "PJRT_Buffer_ToHostBuffer"
        read = self.api.call(to_host, src=self.result, dst=found.ctypes.data, dst_size=32)
        self.api.call("PJRT_Event_Await", event=read.event)
        return found


@in_child(**HELD)
def test_what_a_call_points_at_is_the_hosts_again_after_it(client):
    # A node like a profiler's: struct_size, type, next, its table, and the number of the call.
    node = np.array([40, 1, 0, 0, 7], np.uint64)
    program = client.compile(in_place(8))
    launch = Launch(program, client.buffer_from_host(EIGHT), node.ctypes.data)
    node.fill(0xA5A5A5A5A5A5A5A5)
    assert np.array_equal(launch.read(), 2 * EIGHT)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["keeps it", "is refused"])
@in_child(**HELD)
def test_a_first_run_that_takes_nothing_tells_nothing(client, first):
    """Copies that were requested before a donation are made before it."""
    program, kept = client.compile(in_place(8)), np.zeros(1, np.int64)
    if first == "keeps it":
        indices = {"non_donatable_input_indices": kept.ctypes.data}
        buffer = client.buffer_from_host(EIGHT)
        launch = Launch(program, buffer, **indices, num_non_donatable_input_indices=1)
        assert np.array_equal(launch.read(), 2 * EIGHT)
        assert not buffer.is_deleted
    else:
        launch = Launch(program, client.buffer_from_host(np.zeros(9, np.float32)))
        with pytest.raises(PjrtError, match="size 32"):
            launch.read()
    for number in range(10):
        buffer = client.buffer_from_host(EIGHT + number)
        copies = [buffer.copy_to_device(client.devices[0]) for _ in range(4)]
        launch = Launch(program, buffer)
        assert buffer.is_deleted
        assert all(np.array_equal(each.to_numpy(), EIGHT + number) for each in copies)
        assert np.array_equal(launch.read(), 2 * (EIGHT + number))


@in_child(**HELD)
def test_where_an_array_will_lie_is_told_before_its_work_begins(client):
    """Only a program's first result is unknown, as it is in a plugin without such a function."""
    program = client.compile(in_place(8))
    assert np.array_equal(program(client.buffer_from_host(EIGHT)).to_numpy(), 2 * EIGHT)
    array, until = EIGHT.copy(), pjrt_hub.HostBufferSemantics.IMMUTABLE_UNTIL_TRANSFER_COMPLETES
    given = client.buffer_from_host(array, semantics=until)
    launch = Launch(program, given)
    memory = client.devices[0].default_memory
    assert (given.memory, given.device) == (memory, client.devices[0])
    assert client.api.call("PJRT_Buffer_Memory", buffer=launch.result) == memory.address
    array += 1  # the device reads the array late
    assert np.array_equal(launch.read(), 2 * (EIGHT + 1))


@in_child(**ON)
def test_what_the_plugin_refuses_late_is_an_error_of_the_result(client):
    result = client.compile(adding("8xf32", DONATED))(*[client.buffer_from_host(EIGHT)] * 2)
    assert result.memory is client.devices[0].default_memory
    with pytest.raises(PjrtError, match="previously donated in the same call"):
        result.to_numpy()


@in_child(**HELD)
def test_an_error_comes_after_the_parts_that_were_sent_before_it(client):
    """The plugin ends the process if a part arrives for a failed buffer."""
    with pjrt_hub.Transfer(client, [((8,), np.float32)]) as transfer:
        part = transfer.transfer_data(0, EIGHT[:4], offset=0, is_last=False)
        buffer = transfer.retrieve_buffer(0)
        transfer.set_buffer_error(0, PjrtError("stop"))
        part.wait()
        with pytest.raises(PjrtError, match="stop"):
            buffer.to_numpy()


@in_child(**TILED)
def test_a_list_of_layouts_may_have_none(client):
    dims, layouts = np.array([8], np.int64), np.zeros(1, np.uint64)
    spec = sized("PJRT_ShapeSpec", dims=dims.ctypes.data, num_dims=1, element_type=11)
    args = sized(
        f"{CREATE}_Args",
        client=client.address,
        shape_specs=spec.address,
        num_shape_specs=1,
        device_layouts=layouts.ctypes.data,
        num_device_layouts=1,
        memory=client.devices[0].default_memory.address,
    )
    unchecked.call(client.api, CREATE, args)
    manager = {"transfer_manager": args.transfer_manager}
    owner = "PJRT_AsyncHostToDeviceTransferManager"
    assert client.api.call(f"{owner}_BufferSize", **manager, buffer_index=0) == 512
    client.api.call(f"{owner}_Destroy", **manager)


@in_child(**SMALL)
def test_refusals_leave_nothing_on_the_device(client):
    memory = client.devices[0].default_memory
    kept = client.buffer_from_host(MEBIBYTE)
    before = holdings()["resident"]
    for _ in range(50):
        with pytest.raises(ResourceExhaustedError, match="allocate 1048576 bytes"):
            client.buffer_from_host(MEBIBYTE, memory=memory)
    assert holdings()["resident"] - before < 16 << 20
    kept.delete()
    assert client.buffer_from_host(MEBIBYTE, memory=memory).nbytes == 1 << 20


@in_child(**SMALL)
def test_what_is_deleted_before_it_is_there_gives_its_memory_back(client):
    result = client.compile(in_place(1 << 16))(
        client.buffer_from_host(np.ones(1 << 16, np.float32))
    )
    result.delete()
    device, end = client.devices[0], time.monotonic() + 30
    while device.memory_stats()["bytes_in_use"] > 0 and time.monotonic() < end:
        time.sleep(0.01)
    assert device.memory_stats()["bytes_in_use"] == 0


@in_child(**SMALL)
def test_what_is_donated_is_counted_once(client):
    ones = np.ones(3 << 16, np.float32)  # 768 KiB
    result = client.compile(in_place(3 << 16))(client.buffer_from_host(ones))
    assert np.array_equal(result.to_numpy(), 2 * ones)


@in_child(timeout=50, **SMALL)
def test_a_callback_may_ask_for_more_than_there_is(client):
    """Such a callback once waited a minute for itself."""
    kept, told = client.buffer_from_host(MEBIBYTE), []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    def ask(error, user_arg):
        with pytest.raises(ResourceExhaustedError) as caught:
            client.buffer_from_host(MEBIBYTE)
        told.append(caught.value)

    ready = client.api.call("PJRT_Buffer_ReadyEvent", buffer=kept.address)
    callback = ctypes.cast(ask, ctypes.c_void_p).value
    client.api.call("PJRT_Event_OnReady", event=ready, callback=callback, user_arg=0)
    while not told:
        time.sleep(0.01)
    assert "allocate 1048576 bytes" in str(told[0])


@in_child(**ON)
def test_what_never_comes_does_not_hold_up_the_rest(client):
    """If each of 2,000 programs waited a while for the value, the process would not end in time."""
    program, buffer = client.compile(in_place(8)), client.buffer_from_host(EIGHT)
    promise = pjrt_hub.Alias(client, (8,), np.float32)
    assert not promise.buffer.ready.is_ready()
    for _ in range(2000):
        buffer = program(buffer)
        buffer.ready.wait()
    assert not promise.buffer.ready.is_ready()


@pytest.mark.parametrize(
    "ask",
    ["as Python", pytest.param("as others", marks=pytest.mark.slow)],  # it takes ten seconds
)
@in_child(**ON)
def test_a_question_does_not_wait_for_a_program_that_waits_for_python(client, ask):
    def turn(a, out):
        out[...] = a[::-1]

    client.plugin.ffi.register("turn", turn)
    program = client.compile(custom_call("turn"))
    buffer = client.buffer_from_host(EIGHT)
    result = program(buffer)
    if ask == "as Python":
        assert not buffer.is_deleted
    else:
        name = "PJRT_Buffer_IsDeleted"
        args = sized(f"{name}_Args", buffer=buffer.address)
        slot = client.api.address + 40 + 8 * table.FUNCTIONS[name].slot
        function = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)  # this type keeps the GIL
        assert function(ctypes.c_uint64.from_address(slot).value)(args.address) is None
        assert args.is_deleted is False
    assert np.array_equal(result.to_numpy(), EIGHT[::-1])


@in_child(TF_CPP_MIN_LOG_LEVEL="1")
def test_a_forked_child_has_a_schedule_of_its_own(library):
    """The parent has loaded the layer but has no client; the child is the first to move data."""
    library = ctypes.CDLL(library)
    library.GetPjrtApi.restype = ctypes.c_void_p
    assert layers.read("discrete").wrap(library.GetPjrtApi()) != library.GetPjrtApi()
    os.environ["PJRT_HUB_LAYERS"] = "discrete"
    forked = os.fork()
    if forked == 0:
        signal.alarm(60)
        with pjrt_hub.load("cpu").client() as client:
            assert client.platform_name == "discrete"
            assert np.array_equal(client.buffer_from_host(EIGHT).to_numpy(), EIGHT)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 7
