"""Making: clients, buffers and programs that cannot be, and objects that nobody made."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
from children import NAME

import pjrt_hub
from misuse.case import FAILED, NUMBERS, damaged
from pjrt_hub import Event, LoadedExecutable, Program
from pjrt_hub.errors import (
    ClosedError,
    FileFormatError,
    InvalidArgumentError,
    PjrtError,
    PluginCrashedError,
    PluginInternalError,
    ResourceExhaustedError,
    UnsupportedByPluginError,
)
from pjrt_hub.running.capi import hotpath

CASES = {
    # Devices and memories
    "copied to no device": (lambda c: c.f.copy_to_device(None), TypeError, "the device is None"),
    "copied to no memory": (lambda c: c.f.copy_to_memory(None), TypeError, "the memory is None"),
    "copied to a number": (lambda c: c.f.copy_to_device(0), TypeError, "0 is not a Device"),
    "copied to a device as a memory": (
        lambda c: c.f.copy_to_memory(c.f.device),
        TypeError,
        "is not a Memory",
    ),
    "copied to a closed client": (
        lambda c: c.f.copy_to_device(c.stale_device),
        ClosedError,
        "client is closed",
    ),
    "deleted, and copied to another client": (
        lambda c: c.deleted.copy_to_device(c.foreign.device),
        ClosedError,
        "buffer was deleted",
    ),
    "donated, and copied to another client": (
        lambda c: c.donated.copy_to_memory(c.foreign.memory),
        ClosedError,
        "deleted or donated",
    ),
    "of a closed client, and copied to another": (
        lambda c: c.stale.copy_to_device(c.foreign.device),
        ClosedError,
        "client is closed",
    ),
    "failed, and copied to another client": (
        lambda c: c.failed().copy_to_device(c.foreign.device),
        PluginInternalError,
        "on purpose",
    ),
    "put on another client's device": (
        lambda c: c.put(NUMBERS, device=c.foreign.device),
        ValueError,
        f"{NAME}:0 belongs to another client",
    ),
    "put in another client's memory": (
        lambda c: c.put(NUMBERS, memory=c.foreign.memory),
        ValueError,
        "device:0 belongs to another client",
    ),
    "put on a device by its number": (lambda c: c.put(NUMBERS, device=0), TypeError, "0 is not a"),
    "put on a device that has not the memory": (
        lambda c: c.put(NUMBERS, device=c.client.devices[1], memory=c.f.memory),
        ValueError,
        f"{NAME}:1 does not address the memory device:0",
    ),
    "put on a closed client's device": (
        lambda c: c.put(NUMBERS, device=c.stale_device),
        ValueError,
        "belongs to another client",
    ),
    "a device that is not there": (lambda c: c.client.lookup_device(99), PjrtError, "99"),
    "a device below none": (lambda c: c.client.lookup_device(-1), PjrtError, "-1"),
    "a device beyond 32 bits": (
        lambda c: c.client.lookup_device(2**40),
        ValueError,
        "the id is 1099511627776, which does not fit 32 bits",
    ),
    "a device by name": (lambda c: c.client.lookup_device("cpu:0"), TypeError, "str"),
    "hardware that is not there": (
        lambda c: c.client.lookup_addressable_device(99),
        PjrtError,
        "99",
    ),
    "no replica": (
        lambda c: c.client.default_device_assignment(0, 1),
        ValueError,
        "0 replica.* cannot be placed on 2 device",
    ),
    "fewer than no partitions": (
        lambda c: c.client.default_device_assignment(1, -1),
        ValueError,
        "-1 partition",
    ),
    "more replicas than 32 bits": (
        lambda c: c.client.default_device_assignment(2**31, 1),
        ValueError,
        "num_replicas is 2147483648, which does not fit 32 bits",
    ),
    "replicas whose product overflows": (
        lambda c: c.client.default_device_assignment(65536, 65537),
        ValueError,
        "cannot be placed",
    ),
    "the device of a closed client": (
        lambda c: c.stale_device.memory_stats(),
        ClosedError,
        "client is closed",
    ),
    "the topology of a closed client": (
        lambda c: c.stale_topology.attributes,
        ClosedError,
        "client is closed",
    ),
    "a borrowed topology is freed": (
        lambda c: (
            c.other.topology,
            vars(c.other).pop("topology"),
            gc.collect(),
            c.other.lookup_device(7),
        ),
        PjrtError,
        "7",
    ),
    # Create options
    "devices as text": (
        lambda c: c.plugin.client({"cpu_device_count": "2"}),
        TypeError,
        "option 'cpu_device_count' is of type int64, found '2' of type str",
    ),
    "devices as a truth": (
        lambda c: c.plugin.client({"cpu_device_count": True}),
        TypeError,
        "found True of type bool",
    ),
    "fewer than no devices": (
        lambda c: c.plugin.client({"cpu_device_count": -1}),
        ValueError,
        "'cpu_device_count' is -1; it must be at least 0",
    ),
    "too many devices": (
        lambda c: c.plugin.client({"cpu_device_count": 2**31 - 1}),
        ValueError,
        "is 2147483647; it must be at most 4096",
    ),
    "devices beyond 32 bits": (
        lambda c: c.plugin.client({"cpu_device_count": 2**40}),
        ValueError,
        "at most 4096",
    ),
    "an unknown option": (
        lambda c: c.plugin.client({"nope": 1}),
        ValueError,
        "no create option 'nope'; it has cpu_device_count",
    ),
    "an option without a name": (lambda c: c.plugin.client({1: 1}), TypeError, "named 1, a int"),
    # Element types and shapes of what is made
    "no element type": (lambda c: c.put(NUMBERS, dtype="token"), TypeError, "token"),
    "Python objects": (lambda c: c.put(np.array([None])), TypeError, "object"),
    "text": (lambda c: c.put("abc"), TypeError, "str|<U3"),
    "dates": (lambda c: c.put(np.zeros(2, "M8[s]")), TypeError, "datetime64"),
    "long doubles": (lambda c: c.put(np.zeros(2, np.longdouble)), TypeError, "longdouble|float128"),
    "records": (lambda c: c.put(np.zeros(2, "i4,f4")), TypeError, "void|\\('f0'"),
    "masked": (lambda c: c.put(np.ma.masked_equal([1, 2], 2)), TypeError, "masked"),
    "ragged lists": (lambda c: c.put([[1], [1, 2]]), ValueError, "inhomogeneous"),
    "too large an int": (lambda c: c.put([2**40]), OverflowError, "does not fit int32"),
    "a layout": (
        lambda c: c.put(np.zeros((2, 3)), layout=(0, 2)),
        ValueError,
        r"layout \(0, 2\) is not a permutation of 2 dim",
    ),
    "unknown semantics": (lambda c: c.put(NUMBERS, semantics=9), ValueError, "9 is not a valid"),
    "64 dimensions and one": (lambda c: c.empty((1,) * 65), ValueError, "more than 64 dimensions"),
    "a negative dimension": (lambda c: c.empty((4, -1)), ValueError, r"shape \(4, -1\) .*negative"),
    "an endless dimension": (lambda c: c.empty((2**70,)), ValueError, "larger than any memory"),
    "dimensions that overflow": (lambda c: c.empty((2**32, 2**32)), ValueError, "larger than any"),
    "half a dimension": (lambda c: c.empty((1.5,)), TypeError, r"shape is \(1.5,\)"),
    "no shape": (lambda c: c.empty(None), TypeError, "shape is None"),
    "an empty token": (lambda c: c.empty((8,), "token"), TypeError, "token"),
    "more than there is": (lambda c: c.empty((2**45,)), ResourceExhaustedError, "memory"),
    "a broadcast of more than there is": (
        lambda c: c.put(np.broadcast_to(np.int8(1), (2**58,))),
        ResourceExhaustedError,
        "memory",
    ),
    "a type newer than the plugin": (
        lambda c: c.empty((8,), "f6E2M3FN"),
        (TypeError, UnsupportedByPluginError),
        "f6E2M3FN",
    ),
    # Programs and their options
    "no program": (lambda c: c.client.compile(None), TypeError, "NoneType"),
    "a number as a program": (lambda c: c.client.compile(5), TypeError, "int"),
    "junk": (lambda c: c.client.compile("junk"), (FileFormatError, OSError), "junk"),
    "no bytes": (lambda c: c.client.compile(b""), FileFormatError, "empty|neither|no program"),
    "junk in a format": (
        lambda c: c.client.compile(Program(b"junk", "mlir")),
        PjrtError,
        "PJRT_Client_Compile",
    ),
    "an unknown format": (
        lambda c: c.client.compile(Program(b"x", "nope")),
        InvalidArgumentError,
        "nope",
    ),
    "no main": (
        lambda c: c.client.compile("func.func @other() { return }"),
        PjrtError,
        "PJRT_Client_Compile",
    ),
    "a shape that is not known": (
        lambda c: c.client.compile(
            "func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> { return %a : tensor<?xf32> }"
        ),
        PjrtError,
        "",
    ),
    "an unknown custom call": (
        lambda c: c.client.compile(
            "func.func @main() -> tensor<f32> { %0 = stablehlo.custom_call @nope() "
            "{api_version = 4 : i32} : () -> tensor<f32>\n return %0 : tensor<f32> }"
        ),
        PjrtError,
        "nope",
    ),
    "a result of more than there is": (
        lambda c: c.client.compile(
            "func.func @main() -> tensor<70368744177664xf32> { %0 = stablehlo.iota dim = 0 : "
            "tensor<70368744177664xf32>\n return %0 : tensor<70368744177664xf32> }",
            isolated=True,  # newer compilers die of it
        )(),
        (ResourceExhaustedError, PluginCrashedError),
        "memory|died of SIGFPE",
    ),
    "options that are none": (lambda c: c.compile("add", {"a": 1}), TypeError, "CompileOptions"),
    "compiled for nobody": (lambda c: c.options(num_replicas=0), ValueError, "num_replicas is 0"),
    "compiled for fewer": (
        lambda c: c.options(num_partitions=-1),
        ValueError,
        "num_partitions is -1",
    ),
    "compiled for too many": (
        lambda c: c.options(num_replicas=2**31 - 1),
        ValueError,
        f"need 2147483647 devices, {NAME} has 2",
    ),
    "compiled for no such device": (
        lambda c: c.options(device_ids=((5,),)),
        InvalidArgumentError,
        "device_id 5",
    ),
    "compiled for a negative device": (
        lambda c: c.options(device_ids=((-1,),)),
        ValueError,
        r"device_ids holds \[-1\]",
    ),
    "compiled for one device twice": (
        lambda c: c.options(num_replicas=2, device_ids=((0,), (0,))),
        ValueError,
        r"device_ids holds \[0, 0\]",
    ),
    "compiled for no row": (lambda c: c.options(device_ids=()), ValueError, "device_ids has rows"),
    "an unknown flag": (lambda c: c.options(flags={"nope": 1}), InvalidArgumentError, "'nope'"),
    "a flag of another type": (
        lambda c: c.options(flags={"xla_backend_optimization_level": "x"}),
        InvalidArgumentError,
        "'x' is not a valid int32",
    ),
    "nothing to load": (lambda c: c.client.load(b""), FileFormatError, "serialize"),
    "junk to load": (lambda c: c.client.load(b"junk" * 99), FileFormatError, "serialize"),
    "a number to load": (lambda c: c.client.load(5), TypeError, "int"),
    "damaged code": (lambda c: c.client.load(damaged(c.client)), FileFormatError, "damaged"),
    # Made otherwise, and taken along
    "a buffer of one's own": (lambda c: pjrt_hub.Buffer(), TypeError, "cannot create"),
    "a buffer by object": (
        lambda c: object.__new__(pjrt_hub.Buffer),
        TypeError,
        "not safe|cannot create",
    ),
    "a host view": (lambda c: hotpath.HostView(), TypeError, "cannot create"),
    "a client never made": (
        lambda c: pjrt_hub.Client.__new__(pjrt_hub.Client).devices,
        (ClosedError, AttributeError),
        "",
    ),
    "an executable never loaded": (
        lambda c: LoadedExecutable.__new__(LoadedExecutable).serialize(),
        (ClosedError, AttributeError),
        "",
    ),
    "a callback of no event": (
        lambda c: Event().add_done_callback(print),
        ClosedError,
        "never made",
    ),
    "a client pickled": (lambda c: pickle.dumps(c.client), TypeError, "belong to their process"),
    "a plugin pickled": (
        lambda c: pickle.dumps(c.client.plugin),
        TypeError,
        "a plugin is loaded into its process .*\n\nhint: .*executables, topologies and buffers",
    ),
    "a number for a device": (
        lambda c: c.client.buffer_from_host([1.0], device=0),
        TypeError,
        r"0 is not a Device\n\nhint: client\.devices\[0\]",
    ),
    "a device pickled": (lambda c: pickle.dumps(c.f.device), TypeError, "belong to their process"),
    "an event pickled": (lambda c: pickle.dumps(c.f.ready), TypeError, "pickle"),
    "a buffer copied": (lambda c: copy.copy(c.f), TypeError, "not copied this way"),
    "a deleted buffer pickled": (lambda c: pickle.dumps(c.deleted), ClosedError, "deleted"),
    "a closed executable pickled": (lambda c: pickle.dumps(c.shut), ClosedError, "closed"),
    # Events
    "too short a wait": (lambda c: c.promise.buffer.ready.wait(0), TimeoutError, "not ready after"),
    "a wait by text": (lambda c: c.f.ready.wait("1"), TypeError, "str"),
    "a wait for what failed": (
        lambda c: c.failed().ready.wait(),
        PluginInternalError,
        "on purpose",
    ),
    "a callback that cannot be called": (
        lambda c: c.f.ready.add_done_callback(5),
        TypeError,
        "5",
    ),
    "an event of a closed client": (lambda c: c.stale_event.wait(), ClosedError, "closed"),
    # What older plugins lack
    "an error buffer": (
        lambda c: c.older.client.create_error_buffer(FAILED, (8,)),
        UnsupportedByPluginError,
        r"PJRT_Client_CreateErrorBuffer: it came with PJRT API 0.82, the plugin .*has 0\.\d+",
    ),
    "an event of one's own": (
        lambda c: c.older.client.create_event(),
        UnsupportedByPluginError,
        "0.89",
    ),
    "a bitcast": (lambda c: c.older.bitcast("i32", (8,)), UnsupportedByPluginError, "0.98"),
    "a promised donation": (
        lambda c: c.older.donate_with_control_dependency(),
        UnsupportedByPluginError,
        "0.88",
    ),
    "a later destination": (
        lambda c: c.older.copy_raw_to_host_future(),
        UnsupportedByPluginError,
        "0.84",
    ),
    "a poisoned launch": (
        lambda c: c.older.device.poison_execution(1, FAILED),
        UnsupportedByPluginError,
        "0.85",
    ),
    "a fingerprint of devices": (
        lambda c: c.older.client.topology.fingerprint,
        UnsupportedByPluginError,
        "0.101",
    ),
}
