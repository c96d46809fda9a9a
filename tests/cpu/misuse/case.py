"""The objects that the cases misuse, and helpers for misusing them."""

from __future__ import annotations

import ctypes

import numpy as np
from children import PROGRAMS, device_count, lacking
from texts import custom_call

import pjrt_hub
from pjrt_hub import ExecuteOptions
from pjrt_hub.errors import PluginInternalError
from pjrt_hub.running.capi import table

NUMBERS = np.arange(8, dtype=np.float32)
FAILED = PluginInternalError("on purpose")
#: Functions that came after PJRT API 0.81.
NEWER_FUNCTIONS = [name for name, each in table.FUNCTIONS.items() if each.since > 81]


class Case:
    """The objects that the cases misuse: two devices, another client, deleted objects."""

    def __init__(self, plugin):
        self.plugin = plugin
        self.client = plugin.client(device_count(2))
        self.other = plugin.client()
        self.add = self.compile("add")
        self.pair = self.compile("two_outputs")
        self.none = self.compile("no_args")
        self.scalar = self.compile("scalar")
        self.donate = self.compile("donate")
        self.f = self.put(NUMBERS)
        self.deleted = self.put(NUMBERS)
        self.deleted.delete()
        self.donated = self.put(NUMBERS)
        self.donate(self.donated, self.f)
        self.foreign = self.other.buffer_from_host(NUMBERS)
        self.far = self.put(NUMBERS, device=self.client.devices[1])
        self.older = lacking(plugin, *NEWER_FUNCTIONS).client().buffer_from_host(NUMBERS)
        self.late = plugin.client()
        self.stale = self.late.buffer_from_host(NUMBERS)
        self.stale_add = self.late.compile(PROGRAMS / "add.mlir")
        self.stale_device = self.late.devices[0]
        self.stale_event = self.stale.ready
        self.stale_topology = self.late.topology
        self.late.close()
        self.shut = self.compile("add")
        self.shut.close()
        self.promise = self.alias()
        self.events = [self.f.ready, self.promise.buffer.ready]  # buffers keep their events

    def compile(self, name, options=None):
        return self.client.compile(PROGRAMS / f"{name}.mlir", options)

    def put(self, array, **where):
        return self.client.buffer_from_host(array, **where)

    def places(self, *counts):
        return self.client.default_device_assignment(*counts)

    def made(self, count):
        """A client with `count` devices."""
        return self.plugin.client({"cpu_device_count": count})

    def with_own(self, use):
        """Call a function with a separate client, which it may close."""
        return use(self.plugin.client())

    def with_new(self, use):
        """Call a function with a separate buffer."""
        return use(self.put(NUMBERS))

    def while_lent(self, lend):
        """Call a function with a buffer whose memory is lent out."""
        buffer = self.put(NUMBERS)
        lent = lend(buffer)
        self.alias().fulfill(buffer)
        return lent

    def run(self, *given, **options):
        """Execute the program on one row of arguments, with options."""
        return self.add.execute([given], ExecuteOptions(**options))

    def typed(self, dtype):
        """Zeros and ones of another dtype; with four-byte elements the byte count is the same."""
        return self.put(NUMBERS.astype(int) % 2, dtype=dtype)

    def shaped(self, *shape):
        """Zeros of another shape."""
        return self.put(np.zeros(shape, np.float32))

    def empty(self, shape, dtype="f32"):
        return self.client.create_uninitialized_buffer(shape, dtype)

    def view(self, memory, shape=(8,), **more):
        return self.client.create_view_of_device_buffer(memory, shape, **more)

    def alias(self, shape=(8,), dtype="f32"):
        return pjrt_hub.Alias(self.client, shape, dtype)

    def fulfilled(self):
        alias = self.alias()
        alias.fulfill(self.put(NUMBERS))
        return alias

    def failed(self):
        """A buffer that has become ready with an error."""
        alias = self.alias()
        alias.fail(FAILED)
        return alias.buffer

    def transfers(self, specs):
        return pjrt_hub.Transfer(self.client, specs)

    def transfer(self):
        return self.transfers([((8,), "f32")])

    def complete(self):
        transfer = self.transfer()
        transfer.transfer_data(0, NUMBERS, is_last=True).wait()
        return transfer

    def calling(self, function):
        """Run a program that calls this Python function."""
        name = f"misuse_{function.__name__}"
        self.plugin.ffi.register(name, function)
        self.client.compile(custom_call(name))(self.f).ready.wait()


class Index:
    """An int whose `__index__` has a side effect."""

    def __init__(self, value, act):
        self.value, self.act = value, act

    def __index__(self):
        self.act()
        return self.value


class Lying:
    """An array whose conversion has a side effect."""

    def __init__(self, act):
        self.act = act

    def __array__(self, dtype=None, copy=None):
        self.act()
        return NUMBERS

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        self.act()
        return NUMBERS.__dlpack__()


class Tensor(ctypes.Structure):
    """DLPack's unversioned struct, DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


#: Memory that capsules point at, which must stay alive as long as the process.
LENT = []


def capsule(*shape, device=1, ndim=None, code=2, bits=32, lanes=1, null=False):
    """A DLPack capsule with the given fields, true or not."""
    memory, extents = pjrt_hub.empty_aligned((64,)), (ctypes.c_int64 * 8)(*shape)
    tensor = Tensor(
        None if null else memory.ctypes.data,
        (ctypes.c_int32 * 2)(device, 0),
        len(shape) if ndim is None else ndim,
        code,
        bits,
        lanes,
        extents,
        None,
    )
    LENT.append((memory, extents, tensor))
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    return make(ctypes.addressof(tensor), b"dltensor", None)


def taken_twice(client, lent):
    client.from_dlpack(lent)
    client.from_dlpack(lent)


def row_that(act, *buffers):
    """Yield buffers, and act after the first of them."""
    yield buffers[0]
    act()
    yield from buffers[1:]


def acting(act):
    """A true value whose `__bool__` has a side effect."""
    return type("Acting", (), {"__bool__": lambda _: act() is None})()


#: Memory that raw copies go to.
SPACE = np.empty(8, np.float32)


def write_into(array):
    array[0] = 1


def raises(*_):
    raise ZeroDivisionError("on purpose")
