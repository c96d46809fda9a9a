"""Errors of calls: each code has its class, any message is kept, and every error is freed."""

from __future__ import annotations

import gc
import re
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from types import SimpleNamespace

import pytest
from stubbed import (
    CLASSES,
    ONE_TO_FOUR,
    begin,
    func,
    functions,
    live,
    path,
    raises,
    slot,
    with_stub,
)

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.running.buffer.transfer import ShapeSpec
from pjrt_hub.running.capi import library, table
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin
from pjrt_hub.running.client.topology import Topology
from pjrt_hub.running.compilation import compilation
from pjrt_hub.running.device.device import Memory
from pjrt_hub.running.distributed import process_info
from pjrt_hub.running.executable import signature_sources
from pjrt_hub.running.executable.executable import Executable
from pjrt_hub.running.executable.execute_options import ExecuteOptions
from pjrt_hub.running.extensions.execute_context import ExecuteContext

ROOT = Path(__file__).parents[2]


def waste(client):
    """Make a buffer that only a collection of garbage frees."""
    cycle = [client.buffer_from_host(ONE_TO_FOUR)]
    cycle.append(cycle)


@with_stub()
def test_what_lacks_memory_is_tried_once_more_when_garbage_is_collected(client, a):
    gc.disable()
    exe = client.compile(func("identity error=8:full crowd=1"))
    options = ExecuteOptions(launch_id=1)
    for make in (
        lambda: client.compile(func("reject error=8:full crowd=1")),
        lambda: exe(a),
        lambda: exe(a, options=options),
        exe.bind(a),
        lambda: exe.execute([[a]]),
    ):
        waste(client)
        assert live()["buffer"] == 2
        make()
        assert live()["buffer"] == 1


@with_stub()
def test_what_lacks_memory_in_vain_is_tried_twice(client, a):
    gc.disable()
    exe, kept = client.compile(func("identity error=8:full crowd=1")), client.buffer_from_host([1])
    collected = []
    gc.callbacks.append(lambda phase, _: collected.append(phase) if phase == "start" else None)
    calls = [
        lambda: client.compile(func("reject error=8:full crowd=1")),
        lambda: exe(a),
        exe.bind(a),
        lambda: exe.execute([[a]]),
    ]
    for count, make in enumerate(calls, 1):
        error = raises(errors.ResourceExhaustedError, make)
        assert error.message.endswith(": full")
        assert "16 B: 1 x f32[4] on cpu:0\n  4 B: 1 x i32[1] on cpu:0" in error.hint, error.hint
        assert len(collected) == 2 * count  # before the second try, and before holders are named
    del kept
    assert list(exe(a).to_numpy()) == [1, 2, 3, 4]


@with_stub()
def test_what_a_collection_closes_is_not_called_again(client, a):
    gc.disable()

    class Closing:
        def __init__(self, exe):
            self.exe, self.itself = exe, self

        def __del__(self):
            self.exe.close()

    for is_bound in (False, True):
        exe = client.compile(func("identity error=8:full crowd=1"))
        call = exe.bind(a) if is_bound else lambda exe=exe: exe(a)
        waste(client)
        Closing(exe)
        raises(errors.ClosedError, call)


@with_stub()
def test_every_status_code_has_its_class(client, a):
    for code in range(1, 17):
        exe = client.compile(func(f"identity error={code}:words"))
        error = raises(CLASSES[code], exe, a)
        assert (error.code, error.payloads) == (code, {}), error
        assert error.message == f"{error.function}: words", error
        assert error.function == "PJRT_LoadedExecutable_Execute", error
        raises(CLASSES[code], client.compile, func(f"reject error={code}:words"))
    exe = client.compile(func("identity error=77:words"))
    error = raises(errors.PjrtError, exe, a)
    assert error.code == 77, error
    assert "error" not in live(), live()
    client.close()
    assert live() == {}, live()


@pytest.mark.parametrize(
    ("word", "code", "message"),
    [
        ("empty", 13, "The plugin reports an error of its own (INTERNAL)."),
        ("bytes", 13, "caf\N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER}!"),
        ("huge", 13, "x" * (1 << 16)),
        ("codeless", 2, "codeless"),
    ],
)
@with_stub()
def test_words_of_an_error(client, word, code, message):
    for _ in range(3):
        with pytest.raises(errors.PjrtError) as caught:
            client.compile(func(f"reject error=13:{word}"))
        assert caught.value.code == code
        assert caught.value.message == f"PJRT_Client_Compile: {message}"
    del caught
    assert live() == {"client": 1}, live()


NO_PAYLOADS = "offsetof(PJRT_Api, PJRT_Error_ForEachPayload)"
PAYLOADS = {"stub/first": b"\0\1", "stub/\N{REPLACEMENT CHARACTER}": b""}


@pytest.mark.parametrize(
    ("size", "payloads"), [("PJRT_Api_STRUCT_SIZE", PAYLOADS), (NO_PAYLOADS, {})]
)
@with_stub("MINOR=81", "TABLE_SIZE={size}")
def test_payloads_are_read_but_not_past_the_end_of_a_table(client, size, payloads):
    exe = client.compile(func("identity error=8:payload"))
    error = raises(errors.ResourceExhaustedError, exe, client.buffer_from_host(ONE_TO_FOUR))
    assert error.payloads == payloads
    del exe
    client.close()
    assert live() == {}, live()


@with_stub()
def test_errors_in_every_place_are_freed(client, a):
    failing = client.compile(func("identity fails"))
    for _ in range(3):
        out = failing(a)
        error = raises(errors.PluginInternalError, out.ready.wait)
        assert (error.message, error.function) == ("the stub failed later", ""), error
        assert out.ready.done()
        raises(errors.PluginInternalError, out.ready.result, 1)
        called = Queue()
        out.ready.add_done_callback(called.put)
        assert called.get(timeout=10) is out.ready
        raises(errors.PluginInternalError, out.to_numpy)
        assert repr(out).startswith("<Buffer failed: the stub failed later"), repr(out)
    donating = client.compile(func("donate"))
    out = donating(a)
    assert a.is_deleted
    error = raises(errors.ClosedError, donating, a)
    assert "argument 0" in error.message, error
    raises(errors.ClosedError, a.to_numpy)
    raises(errors.ClosedError, lambda: a.ready)
    assert out.tolist() == [1, 2, 3, 4]
    assert "error" not in live(), live()
    del error
    client.close()
    assert live() == {}, live()


@pytest.mark.parametrize(
    "fault",
    [
        'return fail(12, "absent")',
        'return fail(13, "broken")',
        "return program->code_size = 1, NULL",
        "return program->code_size = (size_t)-1, NULL",
        'if (program->code) memcpy(program->code, "infeed", 6); '
        'return program->format = "hlo", program->format_size = 3, program->code_size = 6, NULL',
        'return program->format = "mlir", program->format_size = 4, program->code_size = 0, NULL',
        'return program->format = "odd", program->format_size = 3, program->code_size = 3, NULL',
    ],
)
@pytest.mark.slow
@with_stub("ON_OPTIMIZED_PROGRAM=leave(exe); leave(view); {fault}")
def test_a_program_runs_without_the_optimized_one(client, fault):
    exe = client.compile(func("add"))
    assert str(exe.signature) == "(f32[4], f32[4]) -> (f32[4])", exe.signature
    assert exe(ONE_TO_FOUR, ONE_TO_FOUR).to_numpy().tolist() == [2, 4, 6, 8]
    raises(TypeError, exe, ONE_TO_FOUR)
    raises(TypeError, exe, ONE_TO_FOUR, ONE_TO_FOUR.astype("int32"))
    raises(ValueError, exe, ONE_TO_FOUR, ONE_TO_FOUR[:2])


@with_stub()
def test_an_error_while_a_program_is_loaded_frees_it(client):
    signature_sources.of_executable = None  # a call of None raises
    raises(TypeError, client.compile, func("identity"))
    assert live() == {"client": 1}, live()


#: An operation for each function that the runtime asks for by name.
OPTIONAL = {
    "PJRT_Buffer_Bitcast": lambda it: it.a.bitcast("int32", (4,)),
    "PJRT_Buffer_CopyRawToHostFuture": lambda it: pjrt_hub.RawCopy(it.a),
    "PJRT_Buffer_CopyToDevice": lambda it: it.a.copy_to_device(it.device),
    "PJRT_Buffer_CopyToMemory": lambda it: it.a.copy_to_memory(it.space()),
    "PJRT_Buffer_DonateWithControlDependency": lambda it: pjrt_hub.ControlDependency(it.a),
    "PJRT_Buffer_DynamicDimensionIndices": lambda it: it.a.dynamic_dimensions,
    "PJRT_Buffer_IsOnCpu": lambda it: it.a.is_on_cpu,
    "PJRT_Buffer_Memory": lambda it: it.a.memory,
    "PJRT_Buffer_OnDeviceSizeInBytes": lambda it: it.a.on_device_nbytes,
    "PJRT_Buffer_ToHostBuffer": lambda it: it.off_host().to_numpy(),
    "PJRT_Buffer_UnpaddedDimensions": lambda it: it.a.logical_shape,
    "PJRT_Buffer_UnsafePointer": lambda it: it.a.unsafe_pointer(),
    "PJRT_Client_AddressableDevices": lambda it: it.plugin.client().devices,
    "PJRT_Client_AddressableMemories": lambda it: it.client.memories,
    "PJRT_Client_Compile": lambda it: it.client.compile(func("identity")),
    "PJRT_Client_Create": lambda it: it.plugin.client(),
    "PJRT_Client_CreateAliasBuffer": lambda it: it.promised(),
    "PJRT_Client_CreateBuffersForAsyncHostToDevice": lambda it: it.filled(),
    "PJRT_Client_CreateErrorBuffer": lambda it: it.failed(),
    "PJRT_Client_CreateUninitializedBuffer": lambda it: it.uninitialized(),
    "PJRT_Client_DefaultDeviceAssignment": lambda it: it.client.default_device_assignment(),
    "PJRT_Client_Devices": lambda it: it.plugin.client().all_devices,
    "PJRT_Client_DmaMap": lambda it: pjrt_hub.DmaMapping(it.client, ONE_TO_FOUR),
    "PJRT_Client_Load": lambda it: it.loaded_again(),
    "PJRT_Client_LookupAddressableDevice": lambda it: it.client.lookup_device(0, local=True),
    "PJRT_Client_LookupDevice": lambda it: it.client.lookup_device(0),
    "PJRT_Client_PlatformName": lambda it: it.plugin.client(),
    "PJRT_Client_PlatformVersion": lambda it: it.client.platform_version,
    "PJRT_Client_ProcessIndex": lambda it: it.client.process_index,
    "PJRT_Client_TopologyDescription": lambda it: it.plugin.client().topology,
    "PJRT_Client_UpdateGlobalProcessInfo": lambda it: process_info.update(it.client, []),
    "PJRT_Compile": lambda it: it.described().compile(func("identity")),
    "PJRT_CopyToDeviceStream_AddChunk": lambda it: it.receiving(),
    "PJRT_CopyToDeviceStream_CurrentBytes": lambda it: it.receiving(),
    "PJRT_CopyToDeviceStream_GranuleSize": lambda it: it.receiving(),
    "PJRT_CopyToDeviceStream_TotalBytes": lambda it: it.receiving(),
    "PJRT_DeviceDescription_Attributes": lambda it: it.plugin.client().devices[0].attributes,
    "PJRT_DeviceDescription_DebugString": lambda it: it.plugin.client().devices[0].debug_string,
    "PJRT_DeviceDescription_Id": lambda it: it.plugin.client().devices[0].id,
    "PJRT_DeviceDescription_Kind": lambda it: it.plugin.client().devices[0].kind,
    "PJRT_DeviceDescription_ProcessIndex": lambda it: it.plugin.client().devices[0].process_index,
    "PJRT_DeviceDescription_ToString": lambda it: it.plugin.client().devices[0].to_string(),
    "PJRT_Device_AddressableMemories": lambda it: it.plugin.client().devices[0].memories,
    "PJRT_Device_ClearMemoryStats": lambda it: it.device.clear_memory_stats(),
    "PJRT_Device_CreateAsyncTrackingEvent": lambda it: pjrt_hub.AsyncTrackingEvent(it.device, "x"),
    "PJRT_Device_DefaultMemory": lambda it: it.plugin.client().devices[0].default_memory,
    "PJRT_Device_GetAttributes": lambda it: it.device.get_attributes(),
    "PJRT_Device_GetDescription": lambda it: it.plugin.client().devices,
    "PJRT_Device_IsAddressable": lambda it: it.plugin.client().devices[0].is_addressable,
    "PJRT_Device_LocalHardwareId": lambda it: it.plugin.client().devices[0].local_hardware_id,
    "PJRT_Device_PoisonExecution": lambda it: it.device.poison_execution(1, errors.PjrtError("x")),
    "PJRT_Event_Create": lambda it: pjrt_hub.SettableEvent(it.client),
    "PJRT_Executable_DeserializeAndLoad": lambda it: it.loaded(b"x"),
    "PJRT_Executable_Fingerprint": lambda it: it.exe.fingerprint,
    "PJRT_Executable_GetCompileOptions": lambda it: it.unknown().compile_options,
    "PJRT_Executable_Name": lambda it: it.exe.name,
    "PJRT_Executable_NumPartitions": lambda it: it.exe.num_partitions,
    "PJRT_Executable_NumReplicas": lambda it: it.exe.num_replicas,
    "PJRT_Executable_OptimizedProgram": lambda it: it.exe.optimized_program(),
    "PJRT_Executable_OutputElementTypes": lambda it: Executable.output_element_types.func(it.exe),
    "PJRT_Executable_OutputMemoryKinds": lambda it: it.exe.output_memory_kinds,
    "PJRT_Executable_ParameterMemoryKinds": lambda it: it.exe.parameter_memory_kinds,
    "PJRT_Executable_Serialize": lambda it: it.exe.serialize(),
    "PJRT_Executable_SizeOfGeneratedCodeInBytes": lambda it: it.exe.generated_code_nbytes,
    "PJRT_ExecuteContext_Create": lambda it: ExecuteContext(it.client),
    "PJRT_LoadedExecutable_Delete": lambda it: it.exe.delete(),
    "PJRT_LoadedExecutable_GetDeviceAssignment": lambda it: it.exe.device_assignment,
    "PJRT_LoadedExecutable_GetExecutable": lambda it: it.exe.name,
    "PJRT_LoadedExecutable_IsDeleted": lambda it: it.exe.is_deleted,
    "PJRT_Memory_AddressableByDevices": lambda it: Memory(it.client, 1).devices,
    "PJRT_Memory_DebugString": lambda it: Memory(it.client, 1).debug_string,
    "PJRT_Memory_Id": lambda it: Memory(it.client, 1).id,
    "PJRT_Memory_Kind": lambda it: Memory(it.client, 1).kind,
    "PJRT_Memory_Kind_Id": lambda it: Memory(it.client, 1).kind_id,
    "PJRT_Memory_ToString": lambda it: Memory(it.client, 1).to_string(),
    "PJRT_TopologyDescription_Attributes": lambda it: it.described().attributes,
    "PJRT_TopologyDescription_Create": lambda it: it.plugin.topology("x"),
    "PJRT_TopologyDescription_Deserialize": lambda it: it.plugin.deserialize_topology(b"x"),
    "PJRT_TopologyDescription_Fingerprint": lambda it: it.described().fingerprint,
    "PJRT_TopologyDescription_GetDeviceDescriptions": lambda it: it.description(),
    "PJRT_TopologyDescription_GetMemorySpaceKindIds": lambda it: it.memory_kinds(),
    "PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace": lambda it: it.shaped(),
    "PJRT_TopologyDescription_PlatformName": lambda it: it.described().platform_name,
    "PJRT_TopologyDescription_PlatformVersion": lambda it: it.described().platform_version,
    "PJRT_TopologyDescription_Serialize": lambda it: it.described().serialize(),
}


#: The compiled call path looks for these itself; without them, a copy replaces a view.
LENDING = functions("Buffer_", "IncreaseExternalReferenceCount DecreaseExternalReferenceCount")
LENDING |= {"PJRT_Buffer_OpaqueDeviceMemoryDataPointer"}

#: The compiled call path calls these and names a missing one; it can await values in another way.
COMPILED = {
    "PJRT_Buffer_IsDeleted": lambda it: it.a.is_deleted,
    "PJRT_Buffer_ReadyEvent": lambda it: it.client.buffer_from_host(ONE_TO_FOUR).ready,
    "PJRT_Client_BufferFromHostBuffer": lambda it: it.client.buffer_from_host(ONE_TO_FOUR),
    "PJRT_Event_OnReady": lambda it: it.a.ready.add_done_callback(print),
    "PJRT_LoadedExecutable_Execute": lambda it: it.exe(it.a),
}

#: Statistics, which are None if the plugin has no function for them.
COUNTS = {
    "PJRT_Device_MemoryStats": lambda it: it.device.memory_stats(),
    "PJRT_Executable_GetCompiledMemoryStats": lambda it: it.exe.memory_stats(),
    "PJRT_Executable_GetCostAnalysis": lambda it: it.exe.cost_analysis(),
}

#: These release objects; without them, the objects stay until the process ends.
ENDING = functions("Buffer_", "Delete Destroy")
ENDING |= functions("", "Client_Destroy Event_Destroy LoadedExecutable_Destroy")

#: The compiled call path looks for these in the table, and works without them.
ASKED_FIRST = functions(
    "Buffer_",
    "ElementType Dimensions DynamicDimensionIndices GetMemoryLayout CopyRawToHost CopyToDevice "
    "OnDeviceSizeInBytes",
)
ASKED_FIRST |= functions("", "Error_ForEachPayload Client_AddressableDevices")

#: The compiled call path calls these; the runtime looks for them before a program receives.
RECEIVING = functions("CopyToDeviceStream_", "AddChunk CurrentBytes Destroy GranuleSize TotalBytes")

#: The runtime calls these only if the plugin has them, because there is another way.
CHOSEN = functions("LoadedExecutable_", "AddressableDevices AddressableDeviceLogicalIds")
CHOSEN |= functions("Buffer_", "CopyRawToHost GetMemoryLayout")
CHOSEN |= functions("", "Executable_NumOutputs Client_CreateViewOfDeviceBuffer")

#: The runtime calls these only for objects that another function gave.
AFTER = functions(
    "AsyncHostToDeviceTransferManager_",
    "AddMetadata BufferCount BufferSize Destroy Device RetrieveBuffer SetBufferError TransferData "
    "TransferLiteral",
)
AFTER |= functions(
    "",
    "AsyncTrackingEvent_Destroy Client_DmaUnmap Client_FulfillAliasBuffer Event_Set "
    "Executable_Destroy Executable_OutputDimensions ExecuteContext_Destroy "
    "TopologyDescription_Destroy",
)


def test_every_function_that_is_called_is_in_one_of_the_lists() -> None:
    package = ROOT / "pjrt_hub"
    named: set[str] = set()
    capi = package / "running" / "capi"
    sources = {*package.glob("running/**/*.py")} - {*capi.glob("*.py")}
    for source in [*sources, capi / "handle.py", capi / "irregular.py"]:
        named |= set(re.findall(r'"(PJRT_\w+)"', source.read_text())) & table.FUNCTIONS.keys()
    named -= AFTER | CHOSEN | LENDING | ENDING | COMPILED.keys() | COUNTS.keys()
    assert named == OPTIONAL.keys()
    compiled: set[str] = set()
    for source in package.glob("running/capi/native/*.c"):
        compiled |= set(re.findall(r"api->(PJRT_\w+)", source.read_text()))
    assert compiled - LENDING - ASKED_FIRST - RECEIVING - ENDING <= set(library.REQUIRED)


@contextmanager
def without(api, name):
    """Take a function out of a plugin's table for a while."""
    at = slot(name, api.address)
    pointer, at.value = at.value, None
    api._functions.pop(name, None)
    yield
    at.value = pointer


class Life:
    """A client, a buffer and a program, and objects for some of the operations."""

    def __init__(self, other):
        self.plugin, self.off_host_plugin = Plugin(load(path)), Plugin(load(other))
        self.client = self.plugin.client()
        self.device = self.client.devices[0]
        self.a = self.client.buffer_from_host(ONE_TO_FOUR)
        self.exe = self.client.compile(func("identity"))

    def off_host(self):
        return self.off_host_plugin.client().buffer_from_host(ONE_TO_FOUR)

    def described(self, known=("device_descriptions",)):
        topology = Topology(self.plugin.api, 1, self.client)  # nobody frees a client's
        vars(topology).update(dict.fromkeys(known, (None,)))
        return topology

    def shaped(self):
        topology = self.described(("memory_space_kind_ids",))
        return topology.make_canonical_shape(None, [2], "float32")

    def space(self):
        memory = Memory(self.client, 1)
        vars(memory)["devices"] = self.client.devices
        return memory

    def filled(self):
        specs = [ShapeSpec((4,), "f32")]
        return pjrt_hub.Transfer(self.client, specs, memory=self.space())

    def description(self):
        return self.described(()).device_descriptions

    def memory_kinds(self):
        return self.described().memory_space_kind_ids

    def promised(self):
        return pjrt_hub.Alias(self.client, (4,), "f32", memory=self.space())

    def uninitialized(self):
        return self.client.create_uninitialized_buffer((4,), "f32")

    def failed(self):
        error = errors.PjrtError("x")
        return self.client.create_error_buffer(error, (4,), "f32", memory=self.space())

    def loaded(self, code):
        name = "PJRT_Executable_DeserializeAndLoad"
        return compilation.obtain(self.client, name, serialized_executable=code)

    def loaded_again(self):
        return compilation.load_executable(self.client, SimpleNamespace(api=self.client.api))

    def receiving(self):
        return self.exe.execute([[self.a]], ExecuteOptions(recv_callbacks=[{3: print}]))

    def unknown(self):
        self.exe._given_options = None
        return self.exe


@with_stub(other='PLATFORM="stub"')
def test_a_missing_function_is_refused_by_name(other):
    it = Life(other)
    for name, operation in (OPTIONAL | COMPILED).items():
        off_host = name == "PJRT_Buffer_ToHostBuffer"
        with without((it.off_host_plugin if off_host else it.plugin).api, name):
            error = raises(errors.UnsupportedByPluginError, operation, it)
        since = f"0.{table.FUNCTIONS[name].since}"
        assert (error.function, error.since, error.have) == (name, since, "0.117"), error
        assert name in error.message
        del error
    gc.collect()
    # The event is that of `it.a.ready`.
    assert live() == {"client": 1, "buffer": 1, "event": 1, "executable": 1}, live()
    it.client.close()
    assert live() == {}, live()


@with_stub()
def test_what_a_plugin_does_not_count_is_none():
    it = Life(path)
    for name, operation in COUNTS.items():
        with without(it.plugin.api, name):
            assert operation(it) is None, name


@with_stub(
    "MINOR=58",
    "TABLE_SIZE=offsetof(PJRT_Api,PJRT_Executable_GetCompiledMemoryStats)",
    "ON_LOAD=api.PJRT_Executable_GetCompiledMemoryStats=(void*)1",
)
def test_a_slot_past_the_end_is_not_read():
    exe, name = begin().compile(func("identity")), "PJRT_Executable_GetCompiledMemoryStats"
    assert exe.memory_stats() is None
    error = raises(errors.UnsupportedByPluginError, exe._ask, name)
    assert error.function == name, error
    assert (error.since, error.have) == ("0.40", "0.58"), error
    assert "it came with PJRT API 0.40, the plugin leaves it out and has 0.58" in str(error), error


@with_stub('ON_COMPILE=return fail(14, "No PTX compilation provider is available. Neither ptxas")')
def test_a_missing_compiler_names_what_brings_it():
    """Its code alone would mean that another process holds the device."""
    client = pjrt_hub.load(path, offline=True).client()
    error = raises(errors.UnavailableError, client.compile, func("add"))
    assert error.hint.startswith("`pip install 'pjrt-hub[cuda]'` brings ptxas and libdevice")
