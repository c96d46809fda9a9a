"""Errors of calls: the class per code, the words whatever they are, and every error freed."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest
from stubbed import ONE_TO_FOUR, func, live, path, raises, with_stub

from pjrt_hub import errors
from pjrt_hub.running.capi import library, table
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin
from pjrt_hub.running.executable import signature_sources

ROOT = Path(__file__).parents[2]


@with_stub()
def test_every_status_code_has_its_class():
    classes = {
        each.code: each
        for each in vars(errors).values()
        if isinstance(each, type)
        and issubclass(each, errors.PjrtError)
        and each is not errors.PjrtError
    }
    client = Plugin(load(path)).client()
    a = client.buffer_from_host(ONE_TO_FOUR)
    for code in range(1, 17):
        exe = client.compile(func(f"identity error={code}:words"))
        error = raises(classes[code], exe, a)
        assert error.code == code, error
        assert error.message == "PJRT_LoadedExecutable_Execute: words", error
        assert error.function == "PJRT_LoadedExecutable_Execute", error
        assert error.payloads == {}, error
        raises(classes[code], client.compile, func(f"reject error={code}:words"))
    exe = client.compile(func("identity error=77:words"))
    error = raises(errors.PjrtError, exe, a)
    assert error.code == 77, error
    assert "error" not in live(), live()
    client.close()
    assert live() == {}, live()


@pytest.mark.parametrize(
    ("word", "code", "message"),
    [
        ("empty", 13, "INTERNAL: a broken invariant inside the plugin, by its own account."),
        ("bytes", 13, "caf\N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER}!"),
        ("huge", 13, "x" * (1 << 16)),
        ("codeless", 2, "codeless"),
    ],
)
def test_words_of_an_error(stub, check, word: str, code: int, message: str) -> None:
    check(
        stub(),
        """
        word, code, message = sys.argv[2:]
        client = Plugin(load(path)).client()
        for _ in range(3):
            try:
                client.compile(func(f"reject error=13:{word}"))
            except errors.PjrtError as exc:
                assert exc.code == int(code), exc.code
                assert exc.message == f"PJRT_Client_Compile: {message}", exc.message[:100]
        assert live() == {"client": 1}, live()
        """,
        word,
        str(code),
        message,
    )


PAYLOADS = """
client = Plugin(load(path)).client()
exe = client.compile(func("identity error=8:payload"))
error = raises(errors.ResourceExhaustedError, exe, client.buffer_from_host(ONE_TO_FOUR))
assert error.payloads == EXPECTED, error.payloads
del exe
client.close()
assert live() == {}, live()
"""


def test_payloads_are_read(stub, check) -> None:
    both = r"EXPECTED = {'stub/first': b'\0\1', 'stub/\N{REPLACEMENT CHARACTER}': b''}"
    check(stub(), both + PAYLOADS)


def test_no_payloads_past_the_end_of_an_older_table(stub, check) -> None:
    older = stub("MINOR=81", "TABLE_SIZE=offsetof(PJRT_Api,PJRT_Error_ForEachPayload)")
    check(older, "EXPECTED = {}" + PAYLOADS)


@with_stub()
def test_errors_in_every_place_are_freed():
    client = Plugin(load(path)).client()
    a = client.buffer_from_host(ONE_TO_FOUR)
    failing = client.compile(func("identity fails"))
    for _ in range(3):
        out = failing(a)
        error = raises(errors.PluginInternalError, out.ready.wait)
        assert (error.message, error.function) == ("the stub failed later", ""), error
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
def test_a_program_runs_without_the_optimized_one(stub, check, fault: str) -> None:
    check(
        stub(f"ON_OPTIMIZED_PROGRAM=leave(exe); leave(view); {fault}"),
        """
        client = Plugin(load(path)).client()
        exe = client.compile(func("add"))
        assert str(exe.signature) == "(4xf32, 4xf32) -> (4xf32)", exe.signature
        assert exe(ONE_TO_FOUR, ONE_TO_FOUR).to_numpy().tolist() == [2, 4, 6, 8]
        raises(TypeError, exe, ONE_TO_FOUR)
        raises(TypeError, exe, ONE_TO_FOUR, ONE_TO_FOUR.astype("int32"))
        raises(ValueError, exe, ONE_TO_FOUR, ONE_TO_FOUR[:2])
        """,
    )


@with_stub()
def test_an_error_while_a_program_is_loaded_frees_it():
    client = Plugin(load(path)).client()
    signature_sources.of_executable = None  # called, it raises
    raises(TypeError, client.compile, func("identity"))
    assert live() == {"client": 1}, live()


#: An operation for each function that the runtime asks for by name.
OPTIONAL = {
    "PJRT_Buffer_Bitcast": "a.bitcast('int32', (4,))",
    "PJRT_Buffer_CopyRawToHostFuture": "a.copy_raw_to_host_future()",
    "PJRT_Buffer_CopyToDevice": "a.copy_to_device(client.devices[0])",
    "PJRT_Buffer_CopyToMemory": "a.copy_to_memory(space())",
    "PJRT_Buffer_DonateWithControlDependency": "a.donate_with_control_dependency()",
    "PJRT_Buffer_DynamicDimensionIndices": "a.dynamic_dimensions",
    "PJRT_Buffer_IsOnCpu": "a.is_on_cpu",
    "PJRT_Buffer_Memory": "a.memory",
    "PJRT_Buffer_OnDeviceSizeInBytes": "a.on_device_nbytes",
    "PJRT_Buffer_ToHostBuffer": "off_host().to_numpy()",
    "PJRT_Buffer_UnpaddedDimensions": "a.logical_shape",
    "PJRT_Buffer_UnsafePointer": "a.unsafe_pointer()",
    "PJRT_Client_AddressableDevices": "plugin.client().devices",
    "PJRT_Client_AddressableMemories": "client.memories",
    "PJRT_Client_Compile": "client.compile(func('identity'))",
    "PJRT_Client_Create": "plugin.client()",
    "PJRT_Client_CreateAliasBuffer": "client.create_alias_buffer((4,), 'f32', memory=space())",
    "PJRT_Client_CreateBuffersForAsyncHostToDevice": "filled()",
    "PJRT_Client_CreateErrorBuffer": "failed()",
    "PJRT_Client_CreateUninitializedBuffer": "client.create_uninitialized_buffer((4,), 'f32')",
    "PJRT_Client_DefaultDeviceAssignment": "client.default_device_assignment()",
    "PJRT_Client_Devices": "plugin.client().all_devices",
    "PJRT_Client_DmaMap": "client.dma_map(ONE_TO_FOUR)",
    "PJRT_Client_Load": "loaded_again()",
    "PJRT_Client_LookupAddressableDevice": "client.lookup_addressable_device(0)",
    "PJRT_Client_LookupDevice": "client.lookup_device(0)",
    "PJRT_Client_PlatformName": "plugin.client()",
    "PJRT_Client_PlatformVersion": "client.platform_version",
    "PJRT_Client_ProcessIndex": "client.process_index",
    "PJRT_Client_TopologyDescription": "plugin.client().topology",
    "PJRT_Client_UpdateGlobalProcessInfo": "client.update_global_process_info([])",
    "PJRT_Compile": "described().compile(func('identity'))",
    "PJRT_CopyToDeviceStream_AddChunk": "receiving()",
    "PJRT_CopyToDeviceStream_CurrentBytes": "receiving()",
    "PJRT_CopyToDeviceStream_GranuleSize": "receiving()",
    "PJRT_CopyToDeviceStream_TotalBytes": "receiving()",
    "PJRT_DeviceDescription_Attributes": "plugin.client().devices[0].attributes",
    "PJRT_DeviceDescription_DebugString": "plugin.client().devices[0].debug_string",
    "PJRT_DeviceDescription_Id": "plugin.client().devices[0].id",
    "PJRT_DeviceDescription_Kind": "plugin.client().devices[0].kind",
    "PJRT_DeviceDescription_ProcessIndex": "plugin.client().devices[0].process_index",
    "PJRT_DeviceDescription_ToString": "plugin.client().devices[0].to_string()",
    "PJRT_Device_AddressableMemories": "plugin.client().devices[0].memories",
    "PJRT_Device_ClearMemoryStats": "client.devices[0].clear_memory_stats()",
    "PJRT_Device_CreateAsyncTrackingEvent": "client.devices[0].create_async_tracking_event('x')",
    "PJRT_Device_DefaultMemory": "plugin.client().devices[0].default_memory",
    "PJRT_Device_GetAttributes": "client.devices[0].get_attributes()",
    "PJRT_Device_GetDescription": "plugin.client().devices",
    "PJRT_Device_IsAddressable": "plugin.client().devices[0].is_addressable",
    "PJRT_Device_LocalHardwareId": "plugin.client().devices[0].local_hardware_id",
    "PJRT_Device_MemoryStats": "plugin.client().devices[0].memory_stats()",
    "PJRT_Device_PoisonExecution": "client.devices[0].poison_execution(1, errors.PjrtError('x'))",
    "PJRT_Event_Create": "client.create_event()",
    "PJRT_Executable_DeserializeAndLoad": "loaded(b'x')",
    "PJRT_Executable_Fingerprint": "exe.fingerprint",
    "PJRT_Executable_GetCompileOptions": "unknown(exe).compile_options",
    "PJRT_Executable_GetCompiledMemoryStats": "exe.memory_stats()",
    "PJRT_Executable_GetCostAnalysis": "exe.cost_analysis()",
    "PJRT_Executable_Name": "exe.name",
    "PJRT_Executable_NumPartitions": "exe.num_partitions",
    "PJRT_Executable_NumReplicas": "exe.num_replicas",
    "PJRT_Executable_OptimizedProgram": "exe.optimized_program()",
    "PJRT_Executable_OutputElementTypes": "Executable.output_types.func(exe)",
    "PJRT_Executable_OutputMemoryKinds": "exe.output_memory_kinds",
    "PJRT_Executable_ParameterMemoryKinds": "exe.parameter_memory_kinds",
    "PJRT_Executable_Serialize": "exe.serialize()",
    "PJRT_Executable_SizeOfGeneratedCodeInBytes": "exe.generated_code_nbytes",
    "PJRT_ExecuteContext_Create": "ExecuteContext(client)",
    "PJRT_LoadedExecutable_Delete": "exe.delete()",
    "PJRT_LoadedExecutable_GetDeviceAssignment": "exe.device_assignment",
    "PJRT_LoadedExecutable_GetExecutable": "exe.name",
    "PJRT_LoadedExecutable_IsDeleted": "exe.is_deleted",
    "PJRT_Memory_AddressableByDevices": "Memory(client, 1).devices",
    "PJRT_Memory_DebugString": "Memory(client, 1).debug_string",
    "PJRT_Memory_Id": "Memory(client, 1).id",
    "PJRT_Memory_Kind": "Memory(client, 1).kind",
    "PJRT_Memory_Kind_Id": "Memory(client, 1).kind_id",
    "PJRT_Memory_ToString": "Memory(client, 1).to_string()",
    "PJRT_TopologyDescription_Attributes": "described().attributes",
    "PJRT_TopologyDescription_Create": "plugin.topology('x')",
    "PJRT_TopologyDescription_Deserialize": "plugin.deserialize_topology(b'x')",
    "PJRT_TopologyDescription_Fingerprint": "described().fingerprint",
    "PJRT_TopologyDescription_GetDeviceDescriptions": "described(()).device_descriptions",
    "PJRT_TopologyDescription_GetMemorySpaceKindIds": "described().memory_space_kind_ids",
    "PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace": "shaped()",
    "PJRT_TopologyDescription_PlatformName": "described().platform_name",
    "PJRT_TopologyDescription_PlatformVersion": "described().platform_version",
    "PJRT_TopologyDescription_Serialize": "described().serialize()",
}

#: Asked for by the compiled path itself: absent, the copy takes the place of the view.
LENDING = {
    "PJRT_Buffer_IncreaseExternalReferenceCount",
    "PJRT_Buffer_DecreaseExternalReferenceCount",
    "PJRT_Buffer_OpaqueDeviceMemoryDataPointer",
}

#: Called by the compiled call path, which names what is not there; values are waited for otherwise.
COMPILED = {
    "PJRT_Buffer_IsDeleted": "a.is_deleted",
    "PJRT_Buffer_ReadyEvent": "client.buffer_from_host(ONE_TO_FOUR).ready",
    "PJRT_Client_BufferFromHostBuffer": "client.buffer_from_host(ONE_TO_FOUR)",
    "PJRT_Event_OnReady": "a.ready.add_done_callback(print)",
    "PJRT_LoadedExecutable_Execute": "exe(a)",
}

#: What is not given back by it goes with the process, and nobody can do more.
ENDING = {
    "PJRT_Buffer_Delete",
    "PJRT_Buffer_Destroy",
    "PJRT_Client_Destroy",
    "PJRT_Event_Destroy",
    "PJRT_LoadedExecutable_Destroy",
}

#: Looked for in the table by the compiled call path, which does without.
ASKED_FIRST = {
    "PJRT_Buffer_ElementType",
    "PJRT_Buffer_Dimensions",
    "PJRT_Error_ForEachPayload",
    "PJRT_Buffer_DynamicDimensionIndices",
    "PJRT_Buffer_GetMemoryLayout",
    "PJRT_Client_AddressableDevices",
    "PJRT_Buffer_CopyRawToHost",
    "PJRT_Buffer_CopyToDevice",
    "PJRT_Buffer_OnDeviceSizeInBytes",
}

#: Of the compiled call path, and asked for by the runtime before a program receives.
RECEIVING = {
    f"PJRT_CopyToDeviceStream_{each}"
    for each in ("AddChunk", "CurrentBytes", "Destroy", "GranuleSize", "TotalBytes")
}

#: Asked for only where the plugin has it, because there is another way.
CHOSEN = {
    "PJRT_LoadedExecutable_AddressableDevices",
    "PJRT_Executable_NumOutputs",
    "PJRT_Buffer_CopyRawToHost",
    "PJRT_Buffer_GetMemoryLayout",
    "PJRT_Client_CreateViewOfDeviceBuffer",
    "PJRT_LoadedExecutable_AddressableDeviceLogicalIds",
}

#: Asked for only where another function gave what it is asked about.
AFTER = {
    "PJRT_AsyncHostToDeviceTransferManager_AddMetadata",
    "PJRT_AsyncHostToDeviceTransferManager_BufferCount",
    "PJRT_AsyncHostToDeviceTransferManager_BufferSize",
    "PJRT_AsyncHostToDeviceTransferManager_Destroy",
    "PJRT_AsyncHostToDeviceTransferManager_Device",
    "PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer",
    "PJRT_AsyncHostToDeviceTransferManager_SetBufferError",
    "PJRT_AsyncHostToDeviceTransferManager_TransferData",
    "PJRT_AsyncHostToDeviceTransferManager_TransferLiteral",
    "PJRT_AsyncTrackingEvent_Destroy",
    "PJRT_Client_DmaUnmap",
    "PJRT_Client_FulfillAliasBuffer",
    "PJRT_Event_Set",
    "PJRT_Executable_Destroy",
    "PJRT_Executable_OutputDimensions",
    "PJRT_ExecuteContext_Destroy",
    "PJRT_TopologyDescription_Destroy",
}


def test_every_function_that_is_called_is_in_one_of_the_lists() -> None:
    package = ROOT / "pjrt_hub"
    named: set[str] = set()
    capi = package / "running" / "capi"
    sources = {*package.glob("running/**/*.py")} - {*capi.glob("*.py")}
    for source in [*sources, capi / "handle.py", capi / "irregular.py"]:
        named |= set(re.findall(r'"(PJRT_\w+)"', source.read_text())) & table.FUNCTIONS.keys()
    named -= AFTER | CHOSEN | LENDING | ENDING | COMPILED.keys()
    assert named == OPTIONAL.keys()
    compiled: set[str] = set()
    for source in package.glob("running/capi/native/*.c"):
        compiled |= set(re.findall(r"api->(PJRT_\w+)", source.read_text()))
    assert compiled - LENDING - ASKED_FIRST - RECEIVING - ENDING <= set(library.REQUIRED)


WITHOUT = """
from pjrt_hub.running.capi import table
from types import SimpleNamespace
from pjrt_hub.running.compilation import compilation
from pjrt_hub.running.device.device import Memory
from pjrt_hub.running.executable.executable import Executable
from pjrt_hub.running.extensions.execute_context import ExecuteContext
from pjrt_hub.running.executable.execute_options import ExecuteOptions
from pjrt_hub.running.client.topology import Topology
from pjrt_hub.running.buffer.transfer import ShapeSpec

plugin = Plugin(load(path))
off_host_plugin = Plugin(load(sys.argv[2]))


class Without:
    def __init__(self, api, name):
        self.slot = ctypes.c_void_p.from_address(api.address + 40 + 8 * table.FUNCTIONS[name].slot)
        self.api, self.name = api, name

    def __enter__(self):
        self.pointer, self.slot.value = self.slot.value, None
        self.bound = self.api._functions.pop(self.name, None)

    def __exit__(self, *_):
        self.slot.value = self.pointer


def off_host():
    return off_host_plugin.client().buffer_from_host(ONE_TO_FOUR)


def described(known=("device_descriptions",)):
    topology = Topology(plugin.api, 1, client)  # a client's, so that it is never freed
    vars(topology).update(dict.fromkeys(known, (None,)))
    return topology


def shaped():
    topology = described(("memory_space_kind_ids",))
    return topology.make_canonical_shape(None, [2], "float32")


def space():
    memory = Memory(client, 1)
    vars(memory)["devices"] = client.devices
    return memory


def filled():
    specs = [ShapeSpec((4,), "f32")]
    return client.create_buffers_for_async_host_to_device(specs, memory=space())


def failed():
    error = errors.PjrtError("x")
    return client.create_error_buffer(error, (4,), "f32", memory=space())


def loaded(code):
    name = "PJRT_Executable_DeserializeAndLoad"
    return compilation._loaded(client, name, serialized_executable=code)


def loaded_again():
    return compilation.loaded(client, SimpleNamespace(_api=client.api))


def receiving():
    return exe.execute([[a]], options=ExecuteOptions(recv_callbacks=[{3: print}]))


def unknown(exe):
    exe._given_options = None
    return exe
"""


def test_a_missing_function_is_refused_by_name(stub, check) -> None:
    check(
        stub(),
        WITHOUT
        + f"OPTIONAL = {OPTIONAL | COMPILED!r}\n"
        + """
client = plugin.client()
a = client.buffer_from_host(ONE_TO_FOUR)
exe = client.compile(func("identity"))
for name, operation in OPTIONAL.items():
    api = off_host_plugin.api if "off_host" in operation else plugin.api
    with Without(api, name):
        error = raises(errors.UnsupportedByPluginError, eval, operation, globals())
    since = f"0.{table.FUNCTIONS[name].since}"
    assert (error.function, error.since, error.have) == (name, since, "0.117"), error
    assert name in error.message
    del error
gc.collect()
assert live() == {"client": 1, "buffer": 1, "event": 1, "executable": 1}, live()  # its `ready`
client.close()
assert live() == {}, live()
""",
        str(stub('PLATFORM="stub"')),
    )


@with_stub()
def test_a_plugin_whose_errors_cannot_be_read_is_refused():
    address = ctypes.CDLL(path).GetPjrtApi
    address.restype = ctypes.c_void_p
    for name in library.REQUIRED:
        offset = 40 + 8 * table.FUNCTIONS[name].slot
        slot = ctypes.c_void_p.from_address(address() + offset)
        pointer, slot.value = slot.value, None
        error = raises(errors.UnsupportedByPluginError, load, path)
        assert error.function == name, error
        slot.value = pointer
    Plugin(load(path)).client().close()


def test_what_cannot_be_given_back_goes_with_the_process(stub, check) -> None:
    check(
        stub(),
        WITHOUT
        + f"ENDING = {sorted(ENDING)!r}\n"
        + """
for name in ENDING:
    before = live()
    with Without(plugin.api, name):
        with plugin.client() as client:
            a = client.buffer_from_host(ONE_TO_FOUR)
            assert client.compile(func("identity"))(a).to_numpy().tolist() == [1, 2, 3, 4]
            a.delete()
            assert a.is_deleted
    kept = {kind: number - before.get(kind, 0) for kind, number in live().items()}
    noun = name.split("_")[1].lower().replace("loadedexecutable", "executable")
    staying = {noun, "client"} if name.endswith("_Destroy") else set()
    assert {kind for kind, number in kept.items() if number} <= staying, (name, kept)
""",
        str(stub('PLATFORM="stub"')),
    )


def test_without_lent_memory_the_value_is_copied(stub, check) -> None:
    check(
        stub(),
        WITHOUT
        + f"LENDING = {sorted(LENDING)!r}\n"
        + """
for name in [*LENDING, "PJRT_Buffer_ReadyEvent"]:
    with Without(plugin.api, name), plugin.client() as client:
        a = client.buffer_from_host(ONE_TO_FOUR)
        assert a.to_numpy().tolist() == [1, 2, 3, 4]
        del a
assert live() == {}, live()
""",
        str(stub('PLATFORM="stub"')),
    )


@with_stub(
    "MINOR=58",
    "TABLE_SIZE=offsetof(PJRT_Api,PJRT_Executable_GetCompiledMemoryStats)",
    "ON_LOAD=api.PJRT_Executable_GetCompiledMemoryStats=(void*)1",
)
def test_a_slot_past_the_end_is_not_read():
    exe = Plugin(load(path)).client().compile(func("identity"))
    error = raises(errors.UnsupportedByPluginError, exe.memory_stats)
    assert error.function == "PJRT_Executable_GetCompiledMemoryStats", error
    assert (error.since, error.have) == ("0.40", "0.58"), error
    assert "it came with PJRT API 0.40, the plugin has 0.58" in error.message, error
