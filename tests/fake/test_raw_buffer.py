"""Bytes of device memory, and host memory for devices: what only libtpu offers, on the stub."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
from stubbed import number, raises, with_stub

from pjrt_hub import errors
from pjrt_hub.running.extensions.host_memory import allocate
from pjrt_hub.running.extensions.raw_buffer import RawBuffer

with_extension = with_stub("EXTENSIONS=&raw_buffer_extension.base")


@with_extension
def test_copies_both_ways(a):
    with RawBuffer(a) as raw:
        assert raw.on_device_nbytes == 16
        assert raw.memory is a.memory
        assert ctypes.c_float.from_address(raw.host_pointer).value == 1
        raw.copy_raw_host_to_device(np.array([7, 8], np.float32), offset=4).wait()
        part = np.zeros(3, np.float32)
        raw.copy_raw_device_to_host(part).wait()
        assert part.tolist() == [1, 7, 8]
        whole = bytearray(16)
        raw.copy_raw_device_to_host(whole).wait()
    assert np.frombuffer(whole, np.float32).tolist() == [1, 7, 8, 4]
    assert number("stub_raw") == 0


@with_extension
def test_what_lies_outside_is_refused(a):
    raw = RawBuffer(a)
    for offset in (-1, 1, 2**40):
        said = raises(ValueError, raw.copy_raw_host_to_device, np.zeros(4, np.float32), offset)
        assert "lie outside of the 16 bytes" in str(said)
    assert "read-only" in str(raises(ValueError, lambda: raw.copy_raw_device_to_host(b"1234")))
    raises(TypeError, lambda: raw.copy_raw_device_to_host(bytearray(4), "0"))
    raw.close()
    raw.close()
    for use in (
        lambda: raw.on_device_nbytes,
        lambda: raw.memory,
        lambda: raw.host_pointer,
        lambda: raw.copy_raw_device_to_host(bytearray(4)),
    ):
        raises(errors.ClosedError, use)
    a.delete()
    raises(errors.ClosedError, lambda: RawBuffer(a))


@with_extension
def test_it_ends_with_its_client(client, a):
    raw = RawBuffer(a)
    other = RawBuffer(a)
    del other
    gc.collect()
    assert number("stub_raw") == 1
    client.close()
    assert number("stub_raw") == 0
    raises(errors.ClosedError, lambda: raw.host_pointer)


@with_extension
def test_host_memory_lives_as_long_as_its_views(client):
    memory = allocate(client, 4096)
    assert (memory.nbytes, memory.dtype, memory.flags.writeable) == (4096, np.uint8, True)
    part = memory[:16].view(np.float32)
    part[:] = 3
    del memory
    gc.collect()
    assert number("stub_host_memory") == 1
    assert part.tolist() == [3] * 4
    del part
    gc.collect()
    assert number("stub_host_memory") == 0
    for nbytes, node in ((0, 0), (-1, 0), (1, -1), (1, 2**31)):
        raises(ValueError, allocate, client, nbytes, node)
    said = raises(errors.ResourceExhaustedError, allocate, client, 1, 2)
    assert "no_such_node" in str(said)


@with_stub()
def test_a_plugin_without_them(client, a):
    raises(errors.UnsupportedByPluginError, lambda: RawBuffer(a))
    raises(errors.UnsupportedByPluginError, lambda: allocate(client, 1))
