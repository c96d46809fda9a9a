"""Attempts to make clients, buffers and programs that cannot exist."""

from __future__ import annotations

import copy
import gc
import pickle
from functools import partial
from types import SimpleNamespace

import numpy as np
from children import NAME

import pjrt_hub
from misuse.case import FAILED, NUMBERS, PROGRAMS, raises
from pjrt_hub import Event, LoadedExecutable, Program
from pjrt_hub.errors import (
    ClosedError,
    InvalidArgumentError,
    PjrtError,
    PluginCrashedError,
    PluginInternalError,
    ResourceExhaustedError,
    UnsupportedByPluginError,
)
from pjrt_hub.running.capi import hotpath

#: A compile cache that raises if it is used.
NEVER = SimpleNamespace(get=raises, put=raises)


def of_older(use, case):
    """Use a buffer of a plugin that lacks every function newer than PJRT API 0.81."""
    return use(case.older)


CASES = [
    # Wrong devices and memories
    (lambda c: c.f.copy_to_device(None), TypeError, "None is not a Device"),
    (lambda c: c.f.copy_to_memory(None), TypeError, "None is not a Memory"),
    (lambda c: c.f.copy_to_device(0), TypeError, "0 is not a Device"),
    (lambda c: c.f.copy_to_memory(c.f.device), TypeError, "is not a Memory"),
    (lambda c: c.f.copy_to_device(c.stale_device), ClosedError, "client is closed"),
    (lambda c: c.deleted.copy_to_device(c.foreign.device), ClosedError, "buffer was deleted"),
    (lambda c: c.donated.copy_to_memory(c.foreign.memory), ClosedError, "deleted or donated"),
    (lambda c: c.stale.copy_to_device(c.foreign.device), ClosedError, "client is closed"),
    (lambda c: c.failed().copy_to_device(c.foreign.device), PluginInternalError, "on purpose"),
    (
        lambda c: c.put(NUMBERS, device=c.foreign.device),
        ValueError,
        f"{NAME}:0 belongs to another client",
    ),
    (
        lambda c: c.put(NUMBERS, memory=c.foreign.memory),
        ValueError,
        "device:0 belongs to another client",
    ),
    (lambda c: c.put(NUMBERS, device=0), TypeError, "0 is not a"),
    (
        lambda c: c.put(NUMBERS, device=c.client.devices[1], memory=c.f.memory),
        ValueError,
        f"{NAME}:1 does not address the memory device:0",
    ),
    (lambda c: c.put(NUMBERS, device=c.stale_device), ValueError, "belongs to another client"),
    (lambda c: c.client.lookup_device(99), InvalidArgumentError, "99"),
    (lambda c: c.client.lookup_device(-1), InvalidArgumentError, "-1"),
    (
        lambda c: c.client.lookup_device(2**40),
        ValueError,
        "the id is 1099511627776, which does not fit 32 bits",
    ),
    (lambda c: c.client.lookup_device("cpu:0"), TypeError, "str"),
    (lambda c: c.client.lookup_device(99, local=True), InvalidArgumentError, "No matching device"),
    (lambda c: c.client.lookup_device(-1, local=True), InvalidArgumentError, "No matching device"),
    (lambda c: c.f.device.poison_execution(1, "text"), TypeError, "not a PjrtError"),
    (lambda c: c.f.device.poison_execution(1, ValueError("x")), TypeError, "not a PjrtError"),
    (lambda c: c.f.device.poison_execution(1 << 31, FAILED), ValueError, "does not fit 32 bits"),
    (lambda c: c.f.device.poison_execution("1", FAILED), TypeError, "'str' object"),
    (lambda c: c.places(0, 1), ValueError, "0 replica.* cannot be placed on 2 device"),
    (lambda c: c.places(1, -1), ValueError, "-1 partition"),
    (
        lambda c: c.places(2**31, 1),
        ValueError,
        "num_replicas is 2147483648, which does not fit 32 bits",
    ),
    (lambda c: c.places(65536, 65537), ValueError, "cannot be placed"),
    (lambda c: c.places(2, 2), ValueError, "cannot be placed"),
    (lambda c: c.places(-2, -2), ValueError, "cannot be placed"),
    (lambda c: c.places(1.0, 1), TypeError, "'float' object"),
    (lambda c: c.stale_device.memory_stats(), ClosedError, "client is closed"),
    (lambda c: c.stale_topology.attributes, ClosedError, "client is closed"),
    (lambda c: c.late.lookup_device(0), ClosedError, "client is closed"),
    (lambda c: c.late.lookup_device(0, local=True), ClosedError, "client is closed"),
    (lambda c: c.late.default_device_assignment(), ClosedError, "client is closed"),
    (lambda c: c.with_own(lambda o: (o.close(), o.devices)), ClosedError, "client is closed"),
    (lambda c: c.with_own(lambda o: (o.close(), o.all_devices)), ClosedError, "client is closed"),
    (lambda c: c.stale_device.memories, ClosedError, "client is closed"),
    (lambda c: c.stale.memory, ClosedError, "client is closed"),
    (lambda c: c.late.compile(PROGRAMS / "add.mlir", cache=NEVER), ClosedError, "is closed"),
    (lambda c: c.late.compile(PROGRAMS / "add.mlir", isolated=True), ClosedError, "is closed"),
    (
        lambda c: (
            c.other.topology,
            vars(c.other).pop("topology"),
            gc.collect(),
            c.other.lookup_device(7),
        ),
        PjrtError,
        "7",
    ),
    # Wrong create options
    (
        lambda c: c.made("2"),
        TypeError,
        "'cpu_device_count' is of type int64, found '2' of type str",
    ),
    (lambda c: c.made(True), TypeError, "found True of type bool"),
    (lambda c: c.made(-1), ValueError, "'cpu_device_count' is -1; it must be at least 1"),
    (lambda c: c.made(0), ValueError, "'cpu_device_count' is 0; it must be at least 1"),
    (lambda c: c.made(2**31 - 1), ValueError, "is 2147483647; it must be at most 4096"),
    (lambda c: c.made(2**63), (ValueError, OverflowError), "cpu_device_count"),
    (
        lambda c: c.plugin.client({"nope": 1}),
        ValueError,
        "no create option 'nope'; it has cpu_device_count",
    ),
    (lambda c: c.plugin.client({1: 1}), TypeError, "named 1, a int"),
    # Wrong element types and shapes of new buffers
    (lambda c: c.put(NUMBERS, dtype="token"), TypeError, "token"),
    (lambda c: c.put(np.zeros(2, np.longdouble)), TypeError, "longdouble|float128"),
    (lambda c: c.put([[1], [1, 2]]), ValueError, "inhomogeneous"),
    (
        lambda c: c.put(np.zeros((2, 3)), layout=(0, 2)),
        ValueError,
        r"layout \(0, 2\) is not a permutation of 2 dim",
    ),
    (lambda c: c.put(np.zeros((2, 2)), layout=(0,)), ValueError, "not a permutation"),
    (lambda c: c.put(NUMBERS, device=c.f.memory), TypeError, "not a Device"),
    (lambda c: c.put(NUMBERS, memory="device"), TypeError, "not a Memory"),
    (lambda c: c.put(NUMBERS, semantics=9), ValueError, "9 is not a valid"),
    (lambda c: c.put(NUMBERS, semantics=-1), ValueError, "HostBufferSemantics"),
    (lambda c: c.put(NUMBERS, semantics="copy"), ValueError, "HostBufferSemantics"),
    (lambda c: c.empty((1,) * 65), ValueError, "more than 64 dimensions"),
    (lambda c: c.empty((4, -1)), ValueError, r"shape \(4, -1\) .*negative"),
    (lambda c: c.empty((2**70,)), ValueError, "larger than any memory"),
    (lambda c: c.empty((2**32, 2**32)), ValueError, "larger than any"),
    (lambda c: c.empty((1.5,)), TypeError, r"shape is \(1.5,\)"),
    (lambda c: c.empty(None), TypeError, "shape is None"),
    (lambda c: pjrt_hub.empty_aligned((-1,)), ValueError, "negative"),
    (lambda c: c.empty((2**45,)), ResourceExhaustedError, "memory"),
    (lambda c: c.put(np.broadcast_to(np.int8(1), (2**58,))), ResourceExhaustedError, "memory"),
    # Wrong programs and compile options
    (lambda c: c.client.compile(Program(b"junk", "mlir")), PjrtError, "PJRT_Client_Compile"),
    (lambda c: c.client.compile(Program(b"x", "nope")), InvalidArgumentError, "nope"),
    (lambda c: c.client.compile("func.func @other() { return }"), PjrtError, "PJRT_Client_Compile"),
    (
        lambda c: c.client.compile(
            "func.func @main() -> tensor<f32> { %0 = stablehlo.custom_call @nope() "
            "{api_version = 4 : i32} : () -> tensor<f32>\n return %0 : tensor<f32> }"
        ),
        PjrtError,
        "nope",
    ),
    (
        lambda c: c.client.compile(
            "func.func @main() -> tensor<70368744177664xf32> { %0 = stablehlo.iota dim = 0 : "
            "tensor<70368744177664xf32>\n return %0 : tensor<70368744177664xf32> }",
            isolated=True,  # newer compilers crash on it
        )(),
        (ResourceExhaustedError, PluginCrashedError),
        "memory|died of SIGFPE",
    ),
    # Objects that users cannot create, copy or pickle
    (lambda c: pjrt_hub.Buffer(), TypeError, "cannot create"),
    (lambda c: object.__new__(pjrt_hub.Buffer), TypeError, "not safe|cannot create"),
    (lambda c: hotpath.HostView(), TypeError, "cannot create"),
    (lambda c: pjrt_hub.Client.__new__(pjrt_hub.Client).devices, (ClosedError, AttributeError), ""),
    (
        lambda c: LoadedExecutable.__new__(LoadedExecutable).serialize(),
        (ClosedError, AttributeError),
        "",
    ),
    (lambda c: Event().add_done_callback(print), ClosedError, "never made"),
    (lambda c: pickle.dumps(c.client), TypeError, "belong to their process"),
    (
        lambda c: pickle.dumps(c.client.plugin),
        TypeError,
        "a plugin is loaded into its process .*\n\nhint: .*executables, topologies and buffers",
    ),
    (lambda c: pickle.dumps(c.f.device), TypeError, "belongs to its process"),
    (lambda c: pickle.dumps(c.f.ready), TypeError, "pickle"),
    (lambda c: pickle.dumps(c.f.memory), TypeError, "belongs to its process"),
    (lambda c: pickle.dumps(c.add.stepper({0: 0})), TypeError, "belongs to its process"),
    (lambda c: copy.copy(c.f), TypeError, "not copied this way\n\nhint: .*copy_to_device"),
    (lambda c: copy.deepcopy(c.f), TypeError, "not copied this way\n\nhint: .*copy_to_device"),
    (lambda c: pickle.dumps(c.deleted), ClosedError, "deleted"),
    (lambda c: pickle.dumps(c.shut), ClosedError, "closed"),
    # Wrong uses of events
    (lambda c: c.promise.buffer.ready.wait(0), TimeoutError, "not ready after"),
    (lambda c: c.f.ready.wait("1"), TypeError, "str"),
    (lambda c: c.failed().ready.wait(), PluginInternalError, "on purpose"),
    (lambda c: c.f.ready.add_done_callback(5), TypeError, "5"),
    (lambda c: c.stale_event.wait(), ClosedError, "closed"),
    # Functions that older plugins lack
    (
        lambda c: c.older.client.create_error_buffer(FAILED, (8,)),
        UnsupportedByPluginError,
        r"PJRT_Client_CreateErrorBuffer: it came with PJRT API 0.82, the plugin .*has 0\.\d+",
    ),
    *(
        (partial(of_older, use), UnsupportedByPluginError, f"lacks PJRT_{name}: it .* API {since}")
        for use, name, since in [
            (
                lambda b: pjrt_hub.Transfer(b.client, [((8,), "f32")]).transfer_literal(0, NUMBERS),
                ".*TransferLiteral",
                "0.83",
            ),
            (lambda b: pjrt_hub.SettableEvent(b.client), "Event_Set", "0.89"),
            (lambda b: b.bitcast("i32", (8,)), "Buffer_Bitcast", "0.98"),
            (lambda b: pjrt_hub.ControlDependency(b), "Buffer_DonateWithControl.*", "0.88"),
            (lambda b: pjrt_hub.RawCopy(b), "Buffer_CopyRawToHostFuture", "0.84"),
            (lambda b: b.device.poison_execution(1, FAILED), "Device_PoisonExecution", "0.85"),
            (lambda b: b.device.clear_memory_stats(), "Device_ClearMemoryStats", "0.106"),
            (lambda b: b.device.get_attributes(), "Device_GetAttributes", "0.92"),
            (lambda b: pjrt_hub.AsyncTrackingEvent(b.device, "x"), "Device_CreateAsync.*", "0.86"),
            (lambda b: b.client.topology.fingerprint, "Topology.*_Fingerprint", "0.101"),
            (lambda b: b.client.topology.memory_space_kind_ids, "Topology.*KindIds", "0.110"),
        ]
    ),
]
