"""Bytes of device memory, and host memory for devices: what only libtpu offers, on the stub."""

from __future__ import annotations

import pytest

SETUP = """
import gc
from pjrt_hub.running.extensions.host_memory import allocate
from pjrt_hub.running.extensions.raw_buffer import RawBuffer

library = ctypes.CDLL(path)
def alive(name):
    return ctypes.c_long.in_dll(library, name).value
def refused(call, kind):
    try:
        call()
    except kind as exc:
        return str(exc)
    raise AssertionError(f"no {kind.__name__}")
client = Plugin(load(path)).client()
buffer = client.buffer_from_host(ONE_TO_FOUR)
"""


@pytest.fixture
def check_raw(stub, check):
    return lambda script: check(stub("EXTENSIONS=&raw_buffer_extension.base"), SETUP + script)


def test_copies_both_ways(check_raw):
    check_raw("""
with RawBuffer(buffer) as raw:
    assert raw.on_device_nbytes == 16
    assert raw.memory is buffer.memory
    assert ctypes.c_float.from_address(raw.host_pointer).value == 1
    raw.copy_raw_host_to_device(np.array([7, 8], np.float32), offset=4).wait()
    part = np.zeros(3, np.float32)
    raw.copy_raw_device_to_host(part).wait()
    assert part.tolist() == [1, 7, 8]
    whole = bytearray(16)
    raw.copy_raw_device_to_host(whole).wait()
assert np.frombuffer(whole, np.float32).tolist() == [1, 7, 8, 4]
assert alive("stub_raw") == 0
""")


def test_what_lies_outside_is_refused(check_raw):
    check_raw("""
raw = RawBuffer(buffer)
for offset in (-1, 1, 2**40):
    assert "lie outside of the 16 bytes" in refused(
        lambda: raw.copy_raw_host_to_device(np.zeros(4, np.float32), offset), ValueError)
assert "read-only" in refused(lambda: raw.copy_raw_device_to_host(b"1234"), ValueError)
refused(lambda: raw.copy_raw_device_to_host(bytearray(4), "0"), TypeError)
raw.close()
raw.close()
for use in (lambda: raw.on_device_nbytes, lambda: raw.memory, lambda: raw.host_pointer,
            lambda: raw.copy_raw_device_to_host(bytearray(4))):
    refused(use, errors.ClosedError)
buffer.delete()
refused(lambda: RawBuffer(buffer), errors.ClosedError)
""")


def test_it_ends_with_its_client(check_raw):
    check_raw("""
raw = RawBuffer(buffer)
other = RawBuffer(buffer)
del other
gc.collect()
assert alive("stub_raw") == 1
client.close()
assert alive("stub_raw") == 0
refused(lambda: raw.host_pointer, errors.ClosedError)
""")


def test_host_memory_lives_as_long_as_its_views(check_raw):
    check_raw("""
memory = allocate(client, 4096)
assert (memory.nbytes, memory.dtype, memory.flags.writeable) == (4096, np.uint8, True)
part = memory[:16].view(np.float32)
part[:] = 3
del memory
gc.collect()
assert alive("stub_host_memory") == 1
assert part.tolist() == [3] * 4
del part
gc.collect()
assert alive("stub_host_memory") == 0
for nbytes, node in ((0, 0), (-1, 0), (1, -1), (1, 2**31)):
    refused(lambda: allocate(client, nbytes, node), ValueError)
assert "no_such_node" in refused(lambda: allocate(client, 1, 2), errors.PjrtError)
""")


def test_a_plugin_without_them(stub, check):
    check(
        stub(),
        SETUP
        + """
refused(lambda: RawBuffer(buffer), errors.UnsupportedByPluginError)
refused(lambda: allocate(client, 1), errors.UnsupportedByPluginError)
""",
    )
