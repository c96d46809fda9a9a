"""Plugins that lie: an error or nothing at all, no death.

They answer without an error and leave out what they should give, or call back twice.
"""

from __future__ import annotations

import pytest

#: A walk through the runtime, and the slot of the function that lies.
WALK = """
from pjrt_hub.running.capi import table
from pjrt_hub.running.capi._pjrt import ffi

lie = sys.argv[2]
library = ctypes.CDLL(path)
library.GetPjrtApi.restype = ctypes.c_void_p
slot = ctypes.c_void_p.from_address(library.GetPjrtApi() + 40 + 8 * table.FUNCTIONS[lie].slot)
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def walk(plugin):
    client = plugin.client()
    device = client.devices[0]
    yield lambda: (device.id, device.kind, device.process_index, client.all_devices)
    yield lambda: client.process_index
    yield lambda: device.default_memory.kind
    yield lambda: device.default_memory.devices
    yield lambda: device.memory_stats()
    yield lambda: device.get_attributes()
    yield lambda: plugin.attributes
    yield lambda: client.platform_name
    yield lambda: client.compile(func("reject error=3:payload"))
    put = [client.buffer_from_host(ONE_TO_FOUR)]
    buffer = put[0]
    for use in (
        lambda: buffer.to_numpy().tolist(), lambda: memoryview(buffer).tolist(),
        lambda: buffer.layout, lambda: buffer.memory, lambda: buffer.ready.wait(1),
        lambda: np.from_dlpack(buffer).tolist(), lambda: buffer.on_device_nbytes,
        lambda: buffer.copy_raw_to_host(np.zeros(4, np.float32)).wait(1),
        lambda: client.create_error_buffer(errors.PjrtError("x"), (4,)),
        lambda: client.create_buffers_for_async_host_to_device([((4,), "f32")]).retrieve_buffer(0),
        lambda: buffer.external_reference().pointer, lambda: buffer.bitcast("i32", (4,)),
    ):
        yield use
    exe = client.compile(func("add"))
    a = client.buffer_from_host(ONE_TO_FOUR)
    for use in (
        lambda: exe(a, a), lambda: exe(ONE_TO_FOUR, a), exe.bind(a, a), lambda: exe.name,
        lambda: exe.execute([[a, a]], return_events=True)[1][0].wait(1),
        lambda: exe.parameter_memory_kinds, lambda: exe.output_memory_kinds,
        lambda: exe.addressable_device_logical_ids, lambda: exe.is_deleted,
        lambda: exe.compile_options,
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
truth = FUNCTION(slot.value)
lying = FUNCTION(answer)  # bound at its first use, so that it is the same for every lie
slot.value = ctypes.cast(lying, ctypes.c_void_p).value
for now in LIES:
    tried(plugin)
print("\\n".join(said))
sys.stdout.flush()
os._exit(0)  # nothing of such a plugin can be freed
"""

SILENCE = """
LIES = [None]

def answer(args):
    return None
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
    "PJRT_Executable_Name": "",
    "PJRT_Executable_ParameterMemoryKinds": "",
    "PJRT_Executable_GetCompileOptions": "",
    "PJRT_Device_GetAttributes": "",
}


#: Only the host's memory is looked into.
ON_HOST = "PJRT_Buffer_OpaqueDeviceMemoryDataPointer"


@pytest.mark.parametrize(
    ("function", "platform"),
    [(each, "cpu") for each in SILENT] + [(each, "other") for each in SILENT if each != ON_HOST],
)
@pytest.mark.slow
def test_what_is_left_out_is_an_error(run, stub, function, platform):
    ended = run(stub(f'PLATFORM="{platform}"'), SILENCE + WALK, function)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    assert SILENT[function] in ended.stdout, ended.stdout


#: What is no number of anything that is there.
LIES = (2**64 - 1, 2**63, 2**62 + 1, 2**33)

#: One of them in an answer that is true but for it.
ABSURD = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))  # so that a giant allocation fails

LIES = [int(each) for each in sys.argv[4:]]

def answer(args):
    error = truth(args)
    *behind, last = sys.argv[3].split(",")
    struct, at = f"{lie}_Args", args
    if behind == ["program"]:
        at = ctypes.c_void_p.from_address(at + ffi.offsetof(struct, "program")).value
        at += ffi.offsetof("PJRT_Program", last)
    else:
        at += ffi.offsetof(struct, *behind, last)
    ctypes.c_uint64.from_address(at).value = now
    return error
"""

#: Function -> the number about which it lies.
NUMBERS = {
    "PJRT_Client_PlatformName": "platform_name_size",
    "PJRT_Client_Devices": "num_devices",
    "PJRT_Client_AddressableDevices": "num_addressable_devices",
    "PJRT_DeviceDescription_Kind": "device_kind_size",
    "PJRT_Device_GetAttributes": "num_attributes",
    "PJRT_Memory_Kind": "kind_size",
    "PJRT_Memory_AddressableByDevices": "num_devices",
    "PJRT_Buffer_GetMemoryLayout": "layout,tiled,minor_to_major_size",
    "PJRT_Buffer_ToHostBuffer": "dst_size",
    "PJRT_Executable_Name": "executable_name_size",
    "PJRT_Executable_ParameterMemoryKinds": "num_parameters",
    "PJRT_Executable_OutputMemoryKinds": "num_outputs",
    "PJRT_Executable_GetCompileOptions": "serialized_bytes_size",
    "PJRT_LoadedExecutable_AddressableDevices": "num_addressable_devices",
    "PJRT_LoadedExecutable_AddressableDeviceLogicalIds": "num_addressable_device_logical_ids",
}


#: A value in the host's memory is read where it lies, and rows are what it has.
OFF_HOST = ("PJRT_Buffer_GetMemoryLayout", "PJRT_Buffer_ToHostBuffer")


@pytest.mark.parametrize(
    ("function", "platform"),
    [(each, "cpu") for each in NUMBERS if each not in OFF_HOST]
    + [(each, "other") for each in NUMBERS],
)
@pytest.mark.slow
def test_an_absurd_number_is_an_error(run, stub, function, platform):
    library = stub(f'PLATFORM="{platform}"')
    ended = run(library, ABSURD + WALK, function, NUMBERS[function], *map(str, LIES))
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    said = f"{function}: the plugin answered without an error and gave "
    refused = [line for line in ended.stdout.splitlines() if line.startswith(said)]
    if function == "PJRT_Buffer_GetMemoryLayout":  # there is one number that is right
        assert len(refused) >= len(LIES), ended.stdout
        return
    for number in LIES:
        assert any(f"gave {number} as " in line for line in refused), ended.stdout


#: Who waits for a callback -> a use of it, with what it is then.
TWICE = {
    "a wait": """
exe = client.compile(func("add later"))
[[result]], [event] = exe.execute([[a, a]], return_events=True)
event.wait()
assert result.tolist() == [2, 4, 6, 8]
""",
    "a wait for a failure": """
[[result]], [event] = client.compile(func("add later fails")).execute([[a, a]], return_events=True)
assert "the stub failed later" in str(raises(errors.PluginInternalError, event.wait))
""",
    "two who wait": """
exe = client.compile(func("add later"))
result = exe(a, a)
threads = [threading.Thread(target=result.ready.wait) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
assert result.tolist() == [2, 4, 6, 8]
""",
    "a function": """
came = []
for words in ("add later", "add later fails", "add"):
    result = client.compile(func(words))(a, a)
    result.ready.add_done_callback(lambda event: came.append(words))
    soon(lambda: came[-1:] == [words])
    late(1)
assert came == ["add later", "add later fails", "add"], came
""",
    "a launch": """
exe = client.compile(func("add later"))
results = [exe(a, a) for _ in range(100)]
assert all(each.tolist() == [2, 4, 6, 8] for each in results)
""",
    "an upload": """
ones = np.ones(1 << 20, np.float32)
for _ in range(3):
    assert client.buffer_from_host(ones).to_numpy().sum() == 1 << 20
""",
    "memory that is lent": """
options = ExecuteOptions(recv_callbacks=[{3: lambda stream: stream.add_chunk(-ONE_TO_FOUR)}])
[[result]] = client.compile(func("exchange")).execute([[a]], options)
assert result.tolist() == [-1, -2, -3, -4]
""",
    "an exchange": """
came = []
options = ExecuteOptions(
    send_callbacks=[{1: lambda *chunk: came.append("sent")}],
    hlo_output_callbacks={2: (lambda *value: came.append("output"), 1)},
)
[[result]] = client.compile(func("exchange")).execute([[a]], options)
assert result.tolist() == ONE_TO_FOUR.tolist()
assert came == ["output", "sent", "sent"], came
del result, options
gc.collect()
late(1)
assert came == ["output", "sent", "sent"], came
""",
}


@pytest.mark.parametrize("who", TWICE)
@pytest.mark.slow
def test_a_callback_that_comes_twice_is_nothing(run, stub, who):
    """At once and much later, on another thread, when all that it was for is gone."""
    script = """
import threading
from pjrt_hub import ExecuteOptions

def late(least):
    soon(lambda: ctypes.c_long.in_dll(ctypes.CDLL(path), "stub_late").value >= least)

client = Plugin(load(path)).client()
a = client.buffer_from_host(ONE_TO_FOUR)
"""
    end = """
late(1)
time.sleep(0.5)
for _ in range(1000):  # in whatever was spoilt
    bytearray(64), bytearray(128)
assert a.tolist() == [1, 2, 3, 4]
a = result = results = event = exe = None
client.close()
assert live() == {}, live()
"""
    library = stub("TWICE=1")
    # What is freed is filled, so that a use of it is seen.
    ended = run(library, script + TWICE[who] + end, env={"MALLOC_PERTURB_": "165"})
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr


def test_a_state_of_a_custom_call_is_let_go_once(check, stub):
    script = """
import weakref
from pjrt_hub.running.capi import hotpath

class State: pass

let_go = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(hotpath.ffi_deleter())
states = [State() for _ in range(100)]
tickets = [hotpath.ffi_keep(each) for each in states]
assert [hotpath.ffi_kept(each, False) for each in tickets] == states
gone = weakref.ref(states.pop(50))
let_go(tickets[50])
assert gone() is None
newer = hotpath.ffi_keep(states[0])
let_go(tickets[50])
for wrong in (tickets[50], 0, 1, 2**64 - 1):
    said = raises(errors.PluginError, hotpath.ffi_kept, wrong, False)
    assert "gave a state that was let go" in str(said), said
assert hotpath.ffi_kept(newer, True) is states[0]
tickets.pop(50)
assert [hotpath.ffi_kept(each, True) for each in tickets] == states
"""
    check(stub(), script)


@pytest.mark.parametrize("number", LIES)
def test_an_error_of_an_absurd_size_is_raised_all_the_same(check, stub, number):
    """In its message, which is lost, and in what belongs to it."""
    script = """
from pjrt_hub.running.capi import table
from pjrt_hub.running.capi._pjrt import ffi

number = int(sys.argv[2])
library = ctypes.CDLL(path)
library.GetPjrtApi.restype = ctypes.c_void_p
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
VISIT = ctypes.PYFUNCTYPE(  # keeps Python's lock, as a plugin does
    None, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p)


def replace(name, answer):
    at = library.GetPjrtApi() + 40 + 8 * table.FUNCTIONS[name].slot
    slot = ctypes.c_void_p.from_address(at)
    truth = FUNCTION(slot.value)
    kept.append(FUNCTION(lambda args: answer(truth, args)))
    slot.value = ctypes.cast(kept[-1], ctypes.c_void_p).value


def message(truth, args):
    truth(args)
    place = args + ffi.offsetof("PJRT_Error_Message_Args", "message_size")
    ctypes.c_uint64.from_address(place).value = number


def payloads(truth, args):
    given = ffi.cast("PJRT_Error_ForEachPayload_Args*", args)
    visit = VISIT(int(ffi.cast("uintptr_t", given.visitor)))
    user_arg = int(ffi.cast("uintptr_t", given.user_arg))
    visit(b"key", number, b"", 0, user_arg)
    visit(b"key", 3, b"", number, user_arg)
    visit(None, 3, b"", 0, user_arg)
    visit(b"key", 3, b"value", 5, user_arg)


kept = []
client = Plugin(load(path)).client()
replace("PJRT_Error_Message", message)
replace("PJRT_Error_ForEachPayload", payloads)
said = raises(errors.InvalidArgumentError, client.compile, func("reject error=3:payload"))
assert "PJRT_Client_Compile" in str(said), said
assert said.payloads == {"key": b"value"}, said.payloads
client.close()
"""
    check(stub(), script, str(number))


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_memory_without_an_address_is_lent_to_nobody(check, stub, platform):
    """Where there are elements; an empty array needs none."""
    script = """
from pjrt_hub.running.capi import table

library = ctypes.CDLL(path)
library.GetPjrtApi.restype = ctypes.c_void_p
number = table.FUNCTIONS["PJRT_Buffer_OpaqueDeviceMemoryDataPointer"].slot
silence = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda args: None)
slot = ctypes.c_void_p.from_address(library.GetPjrtApi() + 40 + 8 * number)
slot.value = ctypes.cast(silence, ctypes.c_void_p).value

client = Plugin(load(path)).client()
full = client.buffer_from_host(np.ones((2, 3), np.float32))
empty = client.buffer_from_host(np.ones((2, 0), np.float32))
def lent(buffer):
    if client.platform_name == "cuda":
        return buffer.__cuda_array_interface__["data"]
    return buffer.__dlpack__()

for use in (full.external_reference, lambda: lent(full)):
    said = raises(errors.PluginError, use)
    assert "gave no address of a value's memory" in str(said), said
with empty.external_reference() as held:
    assert held.pointer == 0
del held
assert lent(empty) is not None
del full, empty
client.close()
soon(lambda: not live())
"""
    check(stub(f'PLATFORM="{platform}"'), script)
