"""Buffers, transfers and events of vendors' plugins, without hardware and on a GPU."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from children import in_child, refusal

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.capi import callbacks

#: What buffers and transfers need beside the oldest table, by the minor that brought it.
NEWER = {
    60: ["PJRT_Client_CreateBuffersForAsyncHostToDevice"],
    62: ["PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer"],
    67: ["PJRT_Client_DmaMap"],
    69: ["PJRT_Client_CreateUninitializedBuffer"],
    77: ["PJRT_Client_CreateAliasBuffer"],
    82: ["PJRT_Client_CreateErrorBuffer"],
    83: ["PJRT_AsyncHostToDeviceTransferManager_TransferLiteral"],
    84: ["PJRT_Buffer_CopyRawToHostFuture"],
    88: ["PJRT_Buffer_DonateWithControlDependency"],
    89: ["PJRT_Event_Create", "PJRT_Event_Set"],
    98: ["PJRT_Buffer_Bitcast"],
}
OLD = [
    "PJRT_Client_BufferFromHostBuffer",
    "PJRT_Client_CreateViewOfDeviceBuffer",
    "PJRT_Buffer_CopyRawToHost",
    "PJRT_Buffer_DynamicDimensionIndices",
]
VERSIONS = {"cuda12": 58, "cuda13": 116, "tpu": 117}
GPU = pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="there is no NVIDIA GPU")


@pytest.mark.parametrize("name", VERSIONS)
@in_child(TPU_SKIP_MDS_QUERY="1")
def test_what_each_has(name):
    asked = OLD + [each for names in NEWER.values() for each in names]
    api = pjrt_hub.load(name, offline=True).api
    found = {each: refusal(lambda each=each: api.require(each)) for each in asked}
    lacking = {each: said for each, said in found.items() if said}
    assert all(api.has(each) is (each not in lacking) for each in asked)
    assert lacking.keys() == {
        each for since, names in NEWER.items() for each in names if since > VERSIONS[name]
    }
    for since, names in NEWER.items():
        for each in set(names) & lacking.keys():
            assert lacking[each]["error"] == "UnsupportedByPluginError"
            assert each in lacking[each]["text"]
            assert f"0.{since}" in lacking[each]["text"]


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
    assert ready.wait(10)  # what is destroyed before it is set still calls back


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
