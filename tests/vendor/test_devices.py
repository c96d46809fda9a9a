"""Events and an exchange with the host without a device, and what only a GPU shares.

tests/gpu and tests/cpu have what else a device does.
"""

import json
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from children import in_child, refusal

import pjrt_hub
from pjrt_hub import DirectoryStore, Distributed, errors
from pjrt_hub.running.capi import callbacks

GPU = pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="there is no NVIDIA GPU")
EXCHANGE = Path(__file__).parents[1] / "programs" / "exchange.mlir"


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
