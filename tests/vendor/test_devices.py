"""What needs a device of a vendor: buffers, memory that is shared, exchange with the host.

The tests of events and of compiling need no device.
"""

import json
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from children import in_child, refusal

import pjrt_hub
from pjrt_hub import DirectoryStore, Distributed, ExecuteOptions, errors
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.capi import callbacks

GPU = pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="there is no NVIDIA GPU")
EXCHANGE = Path(__file__).parents[1] / "programs" / "exchange.mlir"
HARDWARE = {"cuda13": Path("/dev/nvidiactl"), "tpu": Path("/dev/accel0")}


@pytest.mark.parametrize("name", ["cuda13", "tpu"])
@in_child(TPU_SKIP_MDS_QUERY="1")
def test_events_are_set_without_a_client(name):
    api = pjrt_hub.load(name, offline=True).api

    def make():
        event, ready = api.call("PJRT_Event_Create"), threading.Event()
        callbacks.when_ready(api.address, event, ready.set)
        return event, ready

    def is_ready(event):
        return api.call("PJRT_Event_IsReady", event=event)

    good, ready = make()
    assert (is_ready(good), ready.is_set()) == (False, False)
    api.call("PJRT_Event_Set", event=good, error_code=0, error_message="")
    assert (is_ready(good), ready.wait(10)) == (True, True)
    api.call("PJRT_Event_Error", event=good)
    bad, ready = make()
    api.call("PJRT_Event_Set", event=bad, error_code=15, error_message="the disk is gone")
    assert (is_ready(bad), ready.wait(10)) == (True, True)
    with pytest.raises(errors.DataLossError, match="the disk is gone"):
        api.call("PJRT_Event_Error", event=bad)
    left, ready = make()
    for event in (good, bad, left):
        api.call("PJRT_Event_Destroy", event=event)
    assert ready.wait(10)  # an event that is destroyed before it is set still calls back


@pytest.mark.parametrize(
    ("name", "target"), [("tpu", "v5e:2x2"), ("cuda13", "H100"), ("cuda12", "H100")]
)
@in_child
def test_it_compiles(name, target):
    topology = pjrt_hub.topology(name, target, offline=True)
    assert len(topology.compile(EXCHANGE).serialize()) > 1000


@pytest.mark.parametrize("name", [name for name, path in HARDWARE.items() if path.exists()])
@in_child
def test_it_runs(name):
    sent, dones = bytearray(), []

    def send(chunk, total, done):
        assert total == 4096
        sent.extend(chunk)
        dones.append(done)

    def receive(stream):
        stream.add_chunk(np.frombuffer(bytes(sent), np.float32) * 2)

    def refuse(chunk, total, done):
        raise ValueError("not today")

    with pjrt_hub.client(name, offline=True) as client:
        exe = client.compile(EXCHANGE)
        value = np.arange(1024, dtype=np.float32).reshape(8, 128)
        a = client.buffer_from_host(value, device=exe.devices[0])

        def run(send):
            options = ExecuteOptions(
                send_callbacks=[{1: send}],
                recv_callbacks=[{2: receive}],
                use_major_to_minor_data_layout_for_callbacks=True,
            )
            return exe.execute([[a]], options)[0][0].to_numpy()

        assert (run(send) == 2 * value).all()
        assert bytes(sent) == value.tobytes()
        assert dones[-1:] == [True]
        with pytest.raises(errors.PjrtHubError, match="not today"):
            run(refuse)


NUMBERS, MATRIX = np.arange(8, dtype=np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
ADD = """func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  %r = stablehlo.add %a, %a : tensor<8xf32> return %r : tensor<8xf32> }"""


def error_buffers(client):
    given = errors.DataLossError("the disk is gone", payloads={"who": b"host 3"})
    failed = client.create_error_buffer(given, (8,))
    for each in (failed, client.compile(ADD)(failed)):
        with pytest.raises(errors.PjrtError, match="the disk is gone"):
            each.to_numpy()


def literals(client):
    with pjrt_hub.Transfer(client, [((2, 3), "f32")]) as transfer:
        buffer = transfer.retrieve_buffer(0)
        transfer.transfer_literal(0, MATRIX)
        assert buffer.tolist() == MATRIX.tolist()


def bitcasts(client):
    floats = client.buffer_from_host(NUMBERS)
    bits = floats.bitcast("i32", (2, 4))
    assert floats.is_deleted
    assert bits.tolist() == NUMBERS.view(np.int32).reshape(2, 4).tolist()


def donations(client):
    dependency = pjrt_hub.ControlDependency(client.buffer_from_host(NUMBERS))
    dependency.fulfill()
    assert dependency.buffer.tolist() == NUMBERS.tolist()


def mappings(client):
    array = pjrt_hub.empty_aligned(1 << 20)
    array[:] = 7
    with pjrt_hub.DmaMapping(client, array):
        assert set(client.buffer_from_host(array).to_numpy()) == {7}


def events(client):
    event = pjrt_hub.SettableEvent(client)
    assert not event.is_ready()
    event.set()
    event.wait(10)


def layouts(client):
    buffer = client.buffer_from_host(MATRIX, layout=(0, 1))
    lying = np.zeros(6, np.float32)
    buffer.copy_raw_to_host(lying).wait(10)
    assert (buffer.layout, lying.tolist()) == ((0, 1), [0, 3, 1, 4, 2, 5])
    assert buffer.tolist() == MATRIX.tolist()
    assert buffer.to_numpy(layout=(1, 0)).strides == (12, 4)


def element_types(client):
    for element in dtypes.ELEMENT_TYPES:
        if element.since > client.api.version.minor or element.bits == 6:
            continue
        values = np.arange(12).reshape(3, 4) % 2
        values = values.astype(dtypes.numpy_dtype(element.code))
        for each in (values, values.T, values[::-1, ::2]):
            back = client.buffer_from_host(each).to_numpy()
            assert back.tobytes() == np.array(each, order="C").tobytes(), element


@GPU
@in_child
def test_buffers_on_a_gpu():
    client = pjrt_hub.client("cuda13", offline=True)
    uses = (error_buffers, literals, bitcasts, donations, mappings, events, layouts, element_types)
    for use in uses:
        with suppress(errors.UnimplementedError):
            use(client)


@GPU
@in_child
def test_the_memory_of_a_gpu_is_lent_and_borrowed():
    cuda, host_device = 2, (1, 0)
    with pjrt_hub.client("cuda13", offline=True) as client:
        values = np.arange(12, dtype=np.float32).reshape(3, 4)
        buffer = client.buffer_from_host(values)
        assert buffer.__dlpack_device__() == (cuda, client.devices[0].local_hardware_id)
        interface = buffer.__cuda_array_interface__
        told = (interface["typestr"], interface["shape"], interface["stream"])
        assert told == ("<f4", (3, 4), None)
        for stream in (None, -1, 1, 2, 1 << 40):
            for version in (None, (1, 1)):
                capsule = buffer.__dlpack__(stream=stream, max_version=version)
                again = client.from_dlpack(capsule, copy=False)
                assert again.__cuda_array_interface__["data"] == interface["data"]
                assert np.array_equal(again, values)
        wrong = [{"stream": stream} for stream in (0, -2, "a")]
        for how in (*wrong, {"dl_device": host_device, "copy": False}):
            assert refusal(partial(buffer.__dlpack__, **how))["error"] == "BufferError"
        host = np.from_dlpack(buffer, device="cpu")
        assert np.array_equal(host, values)
        assert host.flags.writeable
        copy = client.from_dlpack(buffer, copy=True)
        assert copy.__cuda_array_interface__["data"] != interface["data"]
        lent = client.from_dlpack(buffer.__dlpack__(), copy=False)
        buffer.delete()
        assert np.array_equal(lent, values)


def meet(number, folder):
    distributed = Distributed(2, number, DirectoryStore(folder))
    with pjrt_hub.client("cuda13", offline=True, distributed=distributed) as client:
        processes = sorted({device.process_index for device in client.all_devices})
        counts = [len(client.devices), len(client.all_devices)]
        print(json.dumps([client.process_index, *counts, processes]))


@GPU
def test_two_processes_meet_on_a_gpu(start, finish, tmp_path):
    running = [start(meet, number, tmp_path / "job") for number in range(2)]
    told = [finish(process) for process in running]
    local = told[0][1]
    assert told == [[number, local, 2 * local, [0, 1]] for number in range(2)]
