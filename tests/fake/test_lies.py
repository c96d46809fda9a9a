"""Plugins that answer without an error and leave out what they should give: an error, no death."""

from __future__ import annotations

import pytest

#: For each function that a walk through the runtime calls: what makes it write nothing.
WALK = """
from pjrt_hub._capi import table
lie = sys.argv[2]
library = ctypes.CDLL(path)
library.GetPjrtApi.restype = ctypes.c_void_p
slot = ctypes.c_void_p.from_address(library.GetPjrtApi() + 40 + 8 * table.FUNCTIONS[lie].slot)
silence = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda args: None)


def walk(plugin):
    client = plugin.client()
    device = client.devices[0]
    yield lambda: (device.id, device.kind, device.process_index, client.all_devices)
    yield lambda: client.process_index
    yield lambda: device.default_memory.kind
    yield lambda: device.default_memory.devices
    yield lambda: device.memory_stats()
    put = [client.buffer_from_host(ONE_TO_FOUR)]
    buffer = put[0]
    for use in (
        lambda: buffer.to_numpy().tolist(), lambda: memoryview(buffer).tolist(),
        lambda: buffer.layout, lambda: buffer.memory, lambda: buffer.ready.wait(1),
        lambda: np.from_dlpack(buffer).tolist(), lambda: buffer.on_device_nbytes,
        lambda: buffer.copy_raw_to_host(np.zeros(4, np.float32)).wait(1),
        lambda: client.create_error_buffer(errors.PjrtError("x"), (4,)),
        lambda: client.create_buffers_for_async_host_to_device([((4,), "f32")]).retrieve_buffer(0),
        lambda: buffer.bitcast("i32", (4,)),
    ):
        yield use
    exe = client.compile(func("add"))
    a = client.buffer_from_host(ONE_TO_FOUR)
    for use in (
        lambda: exe(a, a), lambda: exe(ONE_TO_FOUR, a), exe.bind(a, a), lambda: exe.name,
        lambda: exe.execute([[a, a]], return_events=True)[1][0].wait(1),
        lambda: exe.parameter_memory_kinds, lambda: exe.output_memory_kinds,
        lambda: exe.addressable_device_logical_ids, lambda: exe.is_deleted,
    ):
        yield use


def tried(plugin):
    try:
        for use in walk(plugin):
            try:
                answer = use()
            except (errors.PjrtHubError, BufferError, ValueError) as exc:
                said.append(str(exc))
    except (errors.PjrtHubError, ValueError, IndexError, TypeError) as exc:
        said.append(str(exc))


said = []
plugin = Plugin(load(path))
slot.value = ctypes.cast(silence, ctypes.c_void_p).value
tried(plugin)
print("\\n".join(said))
sys.stdout.flush()
os._exit(0)  # nothing of such a plugin can be freed
"""

#: Function -> what is said of it; it is written into `said` by the first use that needs it.
SILENT = {
    "PJRT_Client_Create": "PJRT_Client_Create: the plugin answered without an error and gave NULL",
    "PJRT_Client_Devices": "made a client of ",
    "PJRT_Client_AddressableDevices": "",
    "PJRT_Client_BufferFromHostBuffer": "PJRT_Client_BufferFromHostBuffer: the plugin answered",
    "PJRT_Client_Compile": "PJRT_Client_Compile: the plugin answered without an error and gave",
    "PJRT_Device_GetDescription": "PJRT_Device_GetDescription: the plugin answered",
    "PJRT_Device_DefaultMemory": "PJRT_Device_DefaultMemory: the plugin answered",
    "PJRT_Buffer_Memory": "PJRT_Buffer_Memory: the plugin answered",
    "PJRT_Buffer_ReadyEvent": "no event",
    "PJRT_Buffer_OpaqueDeviceMemoryDataPointer": "no address of a value's memory",
    "PJRT_Buffer_CopyRawToHost": "no event",
    "PJRT_Buffer_Bitcast": "PJRT_Buffer_Bitcast: the plugin answered",
    "PJRT_Client_CreateErrorBuffer": "PJRT_Client_CreateErrorBuffer: the plugin answered",
    "PJRT_Client_CreateBuffersForAsyncHostToDevice": "AsyncHostToDevice: the plugin answered",
    "PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer": "RetrieveBuffer: the plugin answered",
    "PJRT_LoadedExecutable_GetExecutable": "PJRT_LoadedExecutable_GetExecutable: the plugin",
    "PJRT_LoadedExecutable_AddressableDevices": "",
    "PJRT_LoadedExecutable_Execute": "PJRT_LoadedExecutable_Execute: the plugin answered",
    "PJRT_Executable_OptimizedProgram": "",
    "PJRT_Executable_Name": "",
    "PJRT_Executable_ParameterMemoryKinds": "",
}


#: Only the host's memory is looked into.
ON_HOST = "PJRT_Buffer_OpaqueDeviceMemoryDataPointer"


@pytest.mark.parametrize(
    ("function", "platform"),
    [(each, "cpu") for each in SILENT] + [(each, "other") for each in SILENT if each != ON_HOST],
)
def test_what_is_left_out_is_an_error(run, stub, function, platform):
    ended = run(stub(f'PLATFORM="{platform}"'), WALK, function)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    assert SILENT[function] in ended.stdout, ended.stdout
