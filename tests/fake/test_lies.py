"""Plugins that lie: the consequence is an error or nothing at all, and no death.

They answer without an error and leave out what they should give, or call back twice.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import time
import weakref

import numpy as np
import pytest
from children import in_threads
from stubbed import (
    ONE_TO_FOUR,
    begin,
    func,
    functions,
    live,
    number,
    path,
    raises,
    replace,
    soon,
    stay,
    with_stub,
)

import pjrt_hub
from pjrt_hub import ExecuteOptions, errors
from pjrt_hub.running.capi import hotpath
from pjrt_hub.running.capi._pjrt import ffi
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin


def walk(plugin):
    """Every use of a plugin, one after the other."""
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
    buffer = client.buffer_from_host(ONE_TO_FOUR)
    specs = [((4,), "f32")]
    yield lambda: buffer.to_numpy().tolist()
    yield lambda: memoryview(buffer).tolist()
    yield lambda: buffer.layout
    yield lambda: buffer.memory
    yield lambda: buffer.ready.wait(1)
    yield lambda: np.from_dlpack(buffer).tolist()
    yield lambda: buffer.on_device_nbytes
    yield lambda: buffer.copy_raw_to_host(np.zeros(4, np.float32)).wait(1)
    yield lambda: client.create_error_buffer(errors.PjrtError("x"), (4,))
    yield lambda: pjrt_hub.Transfer(client, specs).retrieve_buffer(0)
    yield lambda: pjrt_hub.ExternalReference(buffer).pointer
    yield lambda: buffer.bitcast("i32", (4,))
    exe = client.compile(func("add"))
    a = client.buffer_from_host(ONE_TO_FOUR)
    bound = exe.bind(a, a)
    yield lambda: exe(a, a)
    yield lambda: exe(ONE_TO_FOUR, a)
    yield bound
    yield lambda: exe.name
    yield lambda: exe.execute([[a, a]], return_events=True)[1][0].wait(1)
    yield lambda: exe.parameter_memory_kinds
    yield lambda: exe.output_memory_kinds
    yield lambda: exe.addressable_device_logical_ids
    yield lambda: exe.is_deleted
    yield lambda: exe.compile_options


def errors_of(plugin):
    """The errors of a walk's uses, and the error that ends it."""
    said, answers = [], []
    try:
        for use in walk(plugin):
            try:
                answers.append(use())
            except (errors.PjrtHubError, BufferError, ValueError) as exc:
                said.append(str(exc))
    except (errors.PjrtHubError, ValueError, IndexError, TypeError) as exc:
        said.append(str(exc))
    stay(answers)  # nothing of such a plugin can be freed
    return said


#: Function -> the words of the error at the first use that needs it.
SILENT = {
    name: f"{name}: the plugin answered"
    for name in (
        *functions("Client_", "Create BufferFromHostBuffer Compile CreateErrorBuffer"),
        *functions("Client_", "CreateBuffersForAsyncHostToDevice"),
        *functions("Device_", "GetDescription DefaultMemory"),
        *functions("Buffer_", "Memory Bitcast"),
        *functions("AsyncHostToDeviceTransferManager_", "RetrieveBuffer"),
        *functions("LoadedExecutable_", "GetExecutable Execute"),
    )
}
SILENT |= {
    "PJRT_Client_Devices": "made a client of ",
    "PJRT_Buffer_ReadyEvent": "no event",
    "PJRT_Buffer_OpaqueDeviceMemoryDataPointer": "no address of a value's memory",
    "PJRT_Buffer_CopyRawToHost": "no event",
}
SILENT |= dict.fromkeys(functions("Executable_", "Name ParameterMemoryKinds GetCompileOptions"), "")
SILENT |= dict.fromkeys(functions("LoadedExecutable_", "AddressableDevices"), "")
SILENT |= dict.fromkeys(functions("", "Client_AddressableDevices Device_GetAttributes"), "")


#: Values are asked for their address only in the host's memory.
ON_HOST = "PJRT_Buffer_OpaqueDeviceMemoryDataPointer"


def on_both(functions, host=(), elsewhere=()):
    """Run each function on a plugin for the host and on another, but a listed one on one only."""
    cases = [(each, "cpu") for each in functions if each not in elsewhere]
    cases += [(each, "other") for each in functions if each not in host]
    return pytest.mark.parametrize(("function", "platform"), cases)


@on_both(SILENT, host=[ON_HOST])
@pytest.mark.slow
@pytest.mark.night
@with_stub('PLATFORM="{platform}"')
def test_what_is_left_out_is_an_error(function, platform):
    plugin = Plugin(load(path))
    replace(function, lambda truth, args: None)
    said = "\n".join(errors_of(plugin))
    assert SILENT[function] in said, said
    os._exit(0)


#: Numbers that are too large for anything that exists.
LIES = (2**64 - 1, 2**63, 2**62 + 1, 2**33)

#: Function -> the field whose number is a lie.
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


#: A value in the host's memory is read in place and has rows, so it does not need these.
OFF_HOST = ("PJRT_Buffer_GetMemoryLayout", "PJRT_Buffer_ToHostBuffer")


@on_both(NUMBERS, elsewhere=OFF_HOST)
@pytest.mark.slow
@pytest.mark.night
@with_stub('PLATFORM="{platform}"')
def test_an_absurd_number_is_an_error(function, platform):
    """The rest of the plugin's answer is true."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))  # a giant allocation fails now
    *behind, last = NUMBERS[function].split(",")
    offset = ffi.offsetof(f"{function}_Args", *behind, last)

    def lie(truth, args):
        error = truth(args)
        ctypes.c_uint64.from_address(args + offset).value = told
        return error

    plugin, said = Plugin(load(path)), []
    replace(function, lie)
    for told in LIES:  # noqa: B007 (`lie` tells it)
        said += errors_of(plugin)
    start = f"{function}: the plugin answered without an error and gave "
    refused = [each for each in said if each.startswith(start)]
    if function == "PJRT_Buffer_GetMemoryLayout":  # any number but the rank is refused
        assert len(refused) >= len(LIES), said
    else:
        for each in LIES:
            assert any(f"gave {each} as " in line for line in refused), said
    os._exit(0)


def late(least):
    soon(lambda: number("stub_late") >= least)


def wait(client, a):
    exe = client.compile(func("add later"))
    [[result]], [event] = exe.execute([[a, a]], return_events=True)
    event.wait()
    assert result.tolist() == [2, 4, 6, 8]


def wait_for_a_failure(client, a):
    exe = client.compile(func("add later fails"))
    _, [event] = exe.execute([[a, a]], return_events=True)
    assert "the stub failed later" in str(raises(errors.PluginInternalError, event.wait))


def wait_in_threads(client, a):
    result = client.compile(func("add later"))(a, a)
    in_threads(*[result.ready.wait] * 8)
    assert result.tolist() == [2, 4, 6, 8]


def register_functions(client, a):
    came = []
    for words in ("add later", "add later fails", "add"):
        result = client.compile(func(words))(a, a)
        result.ready.add_done_callback(lambda event, words=words: came.append(words))
        soon(lambda words=words: came[-1:] == [words])
        late(1)
    assert came == ["add later", "add later fails", "add"], came


def launch(client, a):
    exe = client.compile(func("add later"))
    results = [exe(a, a) for _ in range(100)]
    assert all(each.tolist() == [2, 4, 6, 8] for each in results)


def upload(client, a):
    ones = np.ones(1 << 20, np.float32)
    for _ in range(3):
        assert client.buffer_from_host(ones).to_numpy().sum() == 1 << 20


def lend(client, a):
    options = ExecuteOptions(recv_callbacks=[{3: lambda stream: stream.add_chunk(-ONE_TO_FOUR)}])
    [[result]] = client.compile(func("exchange")).execute([[a]], options)
    assert result.tolist() == [-1, -2, -3, -4]


def exchange(client, a):
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


#: The uses that wait for a callback.
USES = [wait, wait_for_a_failure, wait_in_threads, register_functions, launch, upload, lend]
USES += [exchange]


@pytest.mark.parametrize("use", [each.__name__ for each in USES])
@pytest.mark.slow
@with_stub("TWICE=1", env={"MALLOC_PERTURB_": "165"})  # freed memory is filled, so its use is seen
def test_a_callback_that_comes_twice_is_nothing(use):
    """It comes again at once, and much later on another thread, when its objects are gone."""
    client = begin()
    a = client.buffer_from_host(ONE_TO_FOUR)
    globals()[use](client, a)
    late(1)
    time.sleep(0.5)
    for _ in range(1000):  # these would meet spoilt memory
        bytearray(64), bytearray(128)
    assert a.tolist() == [1, 2, 3, 4]
    del a
    client.close()
    assert live() == {}, live()


@with_stub()
def test_a_state_of_a_custom_call_is_let_go_once():
    class State:
        pass

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


#: A call of the visitor keeps Python's lock, as a plugin's call does.
VISIT = ctypes.PYFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p
)


@pytest.mark.parametrize("number", LIES)
@with_stub()
def test_an_error_of_an_absurd_size_is_raised_all_the_same(client, number):
    """The sizes are those of its message, which is lost, and of its payloads."""

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

    replace("PJRT_Error_Message", message)
    replace("PJRT_Error_ForEachPayload", payloads)
    said = raises(errors.InvalidArgumentError, client.compile, func("reject error=3:payload"))
    assert "PJRT_Client_Compile" in str(said), said
    assert said.payloads == {"key": b"value"}, said.payloads
    client.close()


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@with_stub('PLATFORM="{platform}"')
def test_memory_without_an_address_is_lent_to_nobody(client, platform):
    """An array with elements needs an address; an empty one needs none."""
    replace("PJRT_Buffer_OpaqueDeviceMemoryDataPointer", lambda truth, args: None)
    full = client.buffer_from_host(np.ones((2, 3), np.float32))
    empty = client.buffer_from_host(np.ones((2, 0), np.float32))

    def lent(buffer):
        if client.platform_name == "cuda":
            return buffer.__cuda_array_interface__["data"]
        return buffer.__dlpack__()

    for use in (pjrt_hub.ExternalReference, lent):
        said = raises(errors.PluginError, use, full)
        assert "gave no address of a value's memory" in str(said), said
    with pjrt_hub.ExternalReference(empty) as held:
        assert held.pointer == 0
    del held
    assert lent(empty) is not None
    del full, empty
    client.close()
    soon(lambda: not live())
