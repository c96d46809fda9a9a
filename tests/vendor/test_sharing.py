"""What others share with a GPU's client: its memory, and the platform; runs where a GPU is."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from children import in_child, refusal

import pjrt_hub
from pjrt_hub import DirectoryStore, Distributed

pytestmark = pytest.mark.skipif(
    not Path("/dev/nvidiactl").exists(), reason="there is no NVIDIA GPU"
)


@in_child
def test_the_memory_of_a_gpu_is_lent_and_borrowed():
    cuda, host_device = 2, (1, 0)
    with pjrt_hub.client("cuda13", offline=True) as client:
        values = np.arange(12, dtype=np.float32).reshape(3, 4)
        buffer = client.buffer_from_host(values)
        assert buffer.__dlpack_device__() == (cuda, client.devices[0].local_hardware_id)
        interface = buffer.__cuda_array_interface__
        assert (interface["typestr"], interface["shape"], interface["stream"]) == (
            "<f4",
            (3, 4),
            None,
        )
        for stream in (None, -1, 1, 2, 1 << 40):
            for version in (None, (1, 1)):
                capsule = buffer.__dlpack__(stream=stream, max_version=version)
                again = client.from_dlpack(capsule, copy=False)
                assert again.__cuda_array_interface__["data"] == interface["data"]
                assert np.array_equal(again, values)
        for stream in (0, -2, "a"):
            assert refusal(partial(buffer.__dlpack__, stream=stream))["error"] == "BufferError"
        host = np.from_dlpack(buffer, device="cpu")
        assert np.array_equal(host, values)
        assert host.flags.writeable
        assert (
            refusal(lambda: buffer.__dlpack__(dl_device=host_device, copy=False))["error"]
            == "BufferError"
        )
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


def test_two_processes_meet_on_a_gpu(start, finish, tmp_path):
    running = [start(meet, number, tmp_path / "job") for number in range(2)]
    told = [finish(process) for process in running]
    local = told[0][1]
    assert told == [[number, local, 2 * local, [0, 1]] for number in range(2)]
