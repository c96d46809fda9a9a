"""DLPack with numpy and with itself: what is shared, what is refused, and when a loan ends."""

from __future__ import annotations

import atexit
import ctypes
import gc
import math
import os
import sys
import time
import types
import weakref

import ml_dtypes
import numpy as np
import pytest
from children import in_child, in_threads, ones
from elements import KNOWN, UNKNOWN

import pjrt_hub
from pjrt_hub.errors import InternalError, UnsupportedByPluginError
from pjrt_hub.running.array import dtypes, packing
from pjrt_hub.running.buffer import dlpack
from pjrt_hub.running.buffer.tensor import Tensor
from pjrt_hub.running.capi import callbacks, hotpath

pytestmark = pytest.mark.cpu("shares memory with the host")

CPU = (1, 0)


def aligned(shape=(4, 8), dtype=np.float32):
    """Zeros in memory that is aligned well enough for a plugin to share it."""
    array = pjrt_hub.empty_aligned(shape, dtype)
    array[...] = 0
    return array


class Lender:
    """A producer of an older DLPack, whose methods take fewer arguments."""

    def __init__(self, array, **chosen):
        self.array, self.chosen, self.asked = array, chosen, []

    def __dlpack_device__(self):
        return CPU

    def __dlpack__(self, **named):
        self.asked.append(named)
        if set(named) - {"stream"}:
            raise TypeError("an older __dlpack__")
        return self.array.__dlpack__(**self.chosen)


def test_numpy_shares_the_memory(client):
    buffer = client.buffer_from_host(np.arange(12, dtype=np.float32).reshape(3, 4))
    array = np.from_dlpack(buffer)
    assert array.ctypes.data == buffer.to_numpy().ctypes.data
    assert array.tolist() == buffer.tolist()
    assert not array.flags.writeable
    assert buffer.__dlpack_device__() == CPU


def test_a_result_is_waited_for(slowly):
    assert np.array_equal(np.from_dlpack(slowly(50)), np.eye(256, dtype=np.float32))


def test_a_layout_becomes_strides(client, executables):
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = executables("column_major")(client.buffer_from_host(source))
    expected = result.to_numpy()
    array = np.from_dlpack(result)
    assert result.layout == (0, 1)
    assert array.strides == expected.strides
    assert np.array_equal(array, expected)
    assert np.array_equal(client.from_dlpack(result).to_numpy(), expected)


@pytest.mark.parametrize("element", KNOWN)
@pytest.mark.parametrize("max_version", [None, (1, 1)], ids=["classic", "versioned"])
def test_every_dtype_there_and_back(client, element, max_version):
    """Memory is shared both ways, packed or not; only elements of six bits are copied."""
    dtype = dtypes.numpy_dtype(element.code)
    bits = np.arange(3 * 7 * dtype.itemsize, dtype=np.uint8) % 2
    buffer = client.buffer_from_host(bits.view(dtype).reshape(3, 7))
    if element.bits == 6:
        with pytest.raises(BufferError, match="each plugin's own matter"):
            client.from_dlpack(buffer.__dlpack__(max_version=max_version), copy=False)
    else:
        back = client.from_dlpack(buffer.__dlpack__(max_version=max_version), copy=False)
        assert (back.dtype, back.shape) == (dtype, (3, 7))
        assert back.to_numpy().tobytes() == buffer.to_numpy().tobytes() == bits.tobytes()
    copied = client.from_dlpack(buffer, copy=True)
    assert copied.to_numpy().tobytes() == bits.tobytes()


#: Element type -> its type code in DLPack's header; types of one kind share a code.
CODES = {
    **{f"i{bits}": 0 for bits in (2, 4, 8, 16, 32, 64)},
    **{f"ui{bits}": 1 for bits in (2, 4, 8, 16, 32, 64)},
    **{f"f{bits}": 2 for bits in (16, 32, 64)},
    **{"s1": 0, "u1": 1, "bf16": 4, "complex<f32>": 5, "complex<f64>": 5, "i1": 6, "f8E3M4": 7},
    **{"f8E4M3": 8, "f8E4M3B11FNUZ": 9, "f8E4M3FN": 10, "f8E4M3FNUZ": 11, "f8E5M2": 12},
    **{"f8E5M2FNUZ": 13, "f8E8M0FNU": 14, "f6E2M3FN": 15, "f6E3M2FN": 16, "f4E2M1FN": 17},
}


def test_the_codes_are_those_of_dlpack():
    assert {e.name: code for (code, _), e in dlpack.ELEMENTS.items()} == CODES
    assert all(bits == element.bits for (_, bits), element in dlpack.ELEMENTS.items())


def lent(data, element, shape, flags=None):
    """A tensor of another framework, with the elements that `data` holds."""
    [kind] = [key for key, each in dlpack.ELEMENTS.items() if each.name == element]
    strides = dlpack.strides(shape)
    end = callbacks.deleter(lambda: data)
    return hotpath.lend(data.ctypes.data, CPU, kind, shape, strides, flags, end)


@pytest.mark.parametrize("name", ["i4", "ui4", "i2", "ui2", "f4E2M1FN", "f6E2M3FN", "f6E3M2FN"])
def test_foreign_elements_of_less_than_a_byte(name):
    """They are packed, as DLPack prescribes, or have a byte each if the lender says so."""
    element = dtypes.of_type(name)
    values = (np.arange(15, dtype=np.uint8) * 7 % 2**element.bits).reshape(3, 5)
    for data, flags in ((packing.pack(values, element.bits), None), (values, 4)):
        tensor = Tensor(lent(data, name, (3, 5), flags))
        array = tensor.to_numpy()
        assert (array.dtype, array.shape) == (dtypes.numpy_dtype(element.code), (3, 5))
        assert array.tobytes() == values.tobytes()


@pytest.mark.parametrize("element", [each for each in UNKNOWN if each.values[0].bits == 6])
def test_foreign_elements_that_the_plugin_does_not_know(client, element):
    with pytest.raises(UnsupportedByPluginError, match=element.name):
        client.from_dlpack(lent(np.zeros(3, np.uint8), element.name, (4,)))


@pytest.mark.parametrize("max_version", [None, (1, 1)], ids=["classic", "versioned"])
def test_six_bits_are_lent_as_a_packed_copy(client, monkeypatch, max_version):
    """No plugin here knows such a type, so an eight-bit type takes its name."""
    values = np.arange(15, dtype=np.uint8).reshape(3, 5)
    buffer = client.buffer_from_host(values)
    element = dtypes.of_numpy("f6E3M2FN")
    monkeypatch.setattr(dlpack, "dtypes", types.SimpleNamespace(of_code=lambda _: element))
    capsule = buffer.__dlpack__(max_version=max_version)
    with pytest.raises(BufferError, match="only a copy"):
        buffer.__dlpack__(copy=False)
    monkeypatch.setattr(client, "platform_name", "cuda")
    with pytest.raises(BufferError, match="each plugin's own matter"):
        buffer.__dlpack__()
    assert buffer.__dlpack__(dl_device=CPU, max_version=max_version)
    monkeypatch.undo()
    owner, flags, device, kind, address, shape, strides = hotpath.borrow(capsule)
    assert (device, kind, shape, strides) == (CPU, (16, 6, 1), (3, 5), (5, 1))
    assert flags == (2 if max_version else 0)
    data = (ctypes.c_uint8 * 12).from_address(address)
    assert bytes(data) == packing.pack(values, 6).tobytes()
    del owner


def test_packed_elements_go_to_the_host(own, monkeypatch):
    values = np.array([-8, 7, 3], ml_dtypes.int4)
    buffer = own.buffer_from_host(values)
    monkeypatch.setattr(own, "platform_name", "cuda")
    tensor = Tensor(buffer.__dlpack__(dl_device=CPU))
    assert tensor.device == CPU
    assert tensor.to_numpy().tolist() == values.tolist()


@pytest.mark.numpy("2.1")
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (1, 5, 1), (2,) * 10])
def test_every_shape_there_and_back(client, shape):
    buffer = client.buffer_from_host(np.arange(math.prod(shape), dtype=np.int32).reshape(shape))
    array = np.from_dlpack(buffer)
    assert (array.shape, array.tolist()) == (shape, buffer.tolist())
    back = client.from_dlpack(array)
    assert (back.shape, back.tolist()) == (shape, buffer.tolist())


def test_masks_are_refused(client):
    with pytest.raises(TypeError, match="a device has no masks"):
        client.from_dlpack(np.ma.masked_equal(np.ones(3), 1))


def test_the_kinds_of_capsules(vector):
    buffer = vector()
    assert 'capsule object "dltensor"' in repr(buffer.__dlpack__())
    assert 'capsule object "dltensor"' in repr(buffer.__dlpack__(max_version=(0, 8)))
    for newer in ((1, 0), (1, 3), (2, 0)):
        assert 'capsule object "dltensor_versioned"' in repr(buffer.__dlpack__(max_version=newer))


@pytest.mark.numpy("2.1")
def test_a_copy_is_the_consumers_own(client, vector):
    buffer = vector()
    array = np.from_dlpack(buffer, copy=True)
    assert array.flags.writeable
    array[:] = 7
    assert buffer.tolist() == list(range(8))


@pytest.mark.numpy("2.1")
def test_where_it_can_be_asked_for(client, vector):
    buffer = vector()
    assert np.from_dlpack(buffer, device="cpu").tolist() == buffer.tolist()
    assert buffer.__dlpack__(dl_device=CPU, copy=False)
    with pytest.raises(BufferError, match=r"lives on DLPack's device \(1, 0\), not on \(2, 0\)"):
        buffer.__dlpack__(dl_device=(2, 0))


@pytest.mark.parametrize("stream", [0, 1, 7, "a"])
def test_the_host_has_no_streams(vector, stream):
    with pytest.raises(BufferError, match="the host has no streams"):
        vector().__dlpack__(stream=stream)
    assert vector().__dlpack__(stream=-1)


def test_lent_memory_outlives_everything(plugin, program, wait_until):
    own = plugin.client()
    donate = own.compile(program("donate"))
    deleted, donated, closed = (own.buffer_from_host(np.arange(8, dtype=np.float32)) for _ in "123")
    arrays = [np.from_dlpack(each) for each in (deleted, donated, closed)]
    deleted.delete()
    donate(donated, own.buffer_from_host(np.zeros(8, np.float32)))
    own.close()
    for array in arrays:
        assert array.tolist() == list(range(8))
    assert own.address  # the client waits for the arrays
    del array, arrays
    gc.collect()
    wait_until(lambda: not own.address)


def test_a_forgotten_capsule_gives_the_memory_back(plugin, wait_until):
    own = plugin.client()
    buffer = own.buffer_from_host([1.0])
    capsules = [buffer.__dlpack__(), buffer.__dlpack__(max_version=(1, 0))]
    own.close()
    assert own.address
    capsules.clear()
    wait_until(lambda: not own.address)


@pytest.mark.numpy("2.1")
def test_what_is_read_only_is_shared(client):
    source = aligned()
    source.flags.writeable = False
    assert client.from_dlpack(source, copy=False).to_numpy().ctypes.data == source.ctypes.data


def test_a_borrowed_buffer_runs(client, executables):
    source = aligned((8,))
    source[:] = np.arange(8)
    buffer = client.from_dlpack(source)
    assert executables("add")(buffer, buffer).tolist() == (source * 2).tolist()


@pytest.mark.parametrize(
    ("cut", "why"),
    [
        (lambda a: a[:, ::2], "strides are"),
        (lambda a: a.T, None),
        (lambda a: a[::-1], "strides are"),
        (lambda a: a[:, 1:2][:4].reshape(-1)[:1], None),
        (lambda a: a.reshape(-1)[1:], "4 bytes past a multiple of 64"),
        (lambda a: a[:0], "no elements"),
    ],
)
def test_what_cannot_be_shared_is_copied(client, cut, why):
    whole = aligned()
    whole[:] = np.arange(whole.size).reshape(whole.shape)
    source = cut(whole)
    buffer = client.from_dlpack(source)
    assert buffer.tolist() == source.tolist()
    if why:
        with pytest.raises(BufferError, match=why):
            client.from_dlpack(source, copy=False)


def test_copy_copies(client):
    source = aligned()
    buffer = client.from_dlpack(source, copy=True)
    source[:] = 9
    assert not buffer.to_numpy().any()


def test_older_producers(client):
    lender = Lender(aligned())
    buffer = client.from_dlpack(lender, copy=False)
    assert buffer.to_numpy().ctypes.data == lender.array.ctypes.data
    assert lender.asked == [{"max_version": (1, 1)}, {}]


def test_the_producer_is_told(client, wait_until):
    source = aligned()
    base = weakref.ref(source.base.base if source.base.base is not None else source.base)
    buffer = client.from_dlpack(source, copy=False)
    del source
    gc.collect()
    assert base() is not None
    assert not buffer.to_numpy().any()
    del buffer
    gc.collect()
    wait_until(lambda: base() is None)


def test_the_producer_of_a_copy_is_told_at_once(client):
    source = np.zeros(5, np.float32)
    gone = weakref.ref(source)
    buffer = client.from_dlpack(source, copy=True)
    del source
    gc.collect()
    assert gone() is None
    assert buffer.shape == (5,)


def test_from_one_client_to_another(client, pair):
    buffer = client.buffer_from_host(np.arange(4, dtype=np.float32))
    there = pair.from_dlpack(buffer, device=pair.devices[1], copy=False)
    assert there.device is pair.devices[1]
    assert there.to_numpy().ctypes.data == buffer.to_numpy().ctypes.data


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ([1, 2], TypeError, "not a DLPack capsule"),
        (np.zeros(2, ">f4"), BufferError, "endian|byte order|byte-order"),
        (np.zeros(2, object), BufferError, "dtype"),
        (np.zeros(2, np.longdouble), (BufferError, TypeError), None),
    ],
)
def test_what_is_refused(client, source, error, words):
    with pytest.raises(error, match=words):
        client.from_dlpack(source)


def test_a_foreign_device_is_refused(client, pair):
    with pytest.raises(ValueError, match="another client"):
        client.from_dlpack(aligned(), device=pair.devices[0])


def test_a_failed_value_raises_its_own_error(client, monkeypatch):
    """The error is the same as in `to_numpy`, not one of DLPack."""
    buffer = client.buffer_from_host([1.0])

    def fail(self, nbytes):
        raise InternalError("the computation failed")

    monkeypatch.setattr(pjrt_hub.Buffer, "_view", fail)
    with pytest.raises(InternalError, match="the computation failed"):
        np.from_dlpack(buffer)


@pytest.mark.numpy("2.1")
@pytest.mark.parametrize(
    ("platform", "kind"), [("cuda", 2), ("rocm", 10), ("sycl", 14)], ids=["cuda", "rocm", "sycl"]
)
def test_the_devices_of_other_platforms(own, monkeypatch, platform, kind):
    """A device is found by its platform's name; the memory here is the host's."""
    buffer = own.buffer_from_host([1.0, 2.0])
    monkeypatch.setattr(own, "platform_name", platform)
    assert buffer.__dlpack_device__() == (kind, buffer.device.local_hardware_id)
    assert buffer.__dlpack__(stream=7, max_version=(1, 0))
    assert buffer.__dlpack__(stream=-1)
    for stream in {"cuda": [0], "rocm": [1, 2], "sycl": []}[platform] + [-2, "a"]:
        with pytest.raises(BufferError, match="names no stream"):
            buffer.__dlpack__(stream=stream)
    host = np.from_dlpack(buffer, device="cpu")
    assert host.tolist() == [1, 2]
    assert host.flags.writeable  # a writable array is a copy
    with pytest.raises(BufferError, match="only a copy"):
        buffer.__dlpack__(dl_device=CPU, copy=False)


def test_a_platform_that_dlpack_does_not_know(own, monkeypatch):
    buffer = own.buffer_from_host([1.0])
    monkeypatch.setattr(own, "platform_name", "tpu")
    with pytest.raises(BufferError, match="no device for the platform tpu"):
        buffer.__dlpack_device__()
    with pytest.raises(BufferError, match="no device for the platform tpu"):
        buffer.__dlpack__()


def test_cuda_array_interface(own, monkeypatch):
    buffer = own.buffer_from_host(np.arange(6, dtype=np.float16).reshape(2, 3))
    short = own.buffer_from_host(np.ones(2, ml_dtypes.bfloat16))
    assert not hasattr(buffer, "__cuda_array_interface__")
    monkeypatch.setattr(own, "platform_name", "cuda")
    assert buffer.__cuda_array_interface__ == {
        "version": 3,
        "shape": (2, 3),
        "typestr": "<f2",
        "data": (buffer.to_numpy().ctypes.data, True),
        "strides": None,
        "stream": None,
    }
    assert not hasattr(short, "__cuda_array_interface__")


#: Functions that end a loan by a capsule's own deleter, without the GIL, as a C thread would.
POINTER_OF = ctypes.pythonapi.PyCapsule_GetPointer
POINTER_OF.restype, POINTER_OF.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
RENAME = ctypes.pythonapi.PyCapsule_SetName
RENAME.argtypes = [ctypes.py_object, ctypes.c_char_p]
USED = b"used_dltensor"


def take(buffer):
    """Take a tensor as C code that reads capsules does, so that only `end` ends the loan."""
    capsule = buffer.__dlpack__()
    tensor = POINTER_OF(capsule, b"dltensor")
    RENAME(capsule, USED)
    return tensor


def end(tensor):
    deleter = ctypes.cast(tensor + 56, ctypes.POINTER(ctypes.c_void_p))[0]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(tensor)


def until(condition):
    """Whether the condition becomes true within ten seconds."""
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


@in_child
def test_a_loan_ends_on_any_thread(client):
    taken = [take(ones(client)) for _ in range(200)]
    parts = [taken[i::4] for i in range(4)]
    in_threads(*(lambda part=part: [end(t) for t in part] for part in parts), client.close)
    assert until(lambda: not client.address)


@in_child
def test_a_loan_ends_after_a_fork(client):
    tensor, array = take(ones(client)), np.from_dlpack(ones(client))
    borrowed = client.from_dlpack(np.zeros(64, np.float32))
    pid = os.fork()
    if pid == 0:
        end(tensor)
        assert array.sum() == 8
        del array, borrowed
        gc.collect()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    end(tensor)
    return client, array, borrowed


ENDINGS = {
    "return": lambda _: None,
    "close": lambda client: client.close(),
    "exit": lambda _: sys.exit(0),
    "at once": lambda _: os._exit(0),
}


@pytest.mark.parametrize("ending", ENDINGS)
@in_child
def test_a_process_ends_with_open_loans(client, ending):
    global alive
    source = np.zeros(1024, np.float32)
    borrowed = [client.from_dlpack(source[i:]) for i in range(32)]
    tensor = take(ones(client))
    alive = (client, borrowed, np.from_dlpack(ones(client)), ones(client).__dlpack__())
    atexit.register(end, tensor)
    ENDINGS[ending](client)
