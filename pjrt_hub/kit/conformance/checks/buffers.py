"""Buffers: what they tell about themselves, their end, and those made without a value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pjrt_hub.errors import DataLossError, PjrtError, ResourceExhaustedError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Unsupported, equal, expect, expect_error
from pjrt_hub.kit.conformance.programs import ADD
from pjrt_hub.kit.conformance.refusal import (
    GIVEN_ERROR,
    GIVEN_ERROR_AND_MORE,
    expect_given_error,
    expect_refusal,
)
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.array import dtypes, memory_layout
from pjrt_hub.running.capi import irregular

NUMBERS = np.arange(1, 5, dtype=np.float32)
F32, S32 = dtypes.of_numpy("float32").code, dtypes.of_numpy("int32").code
_INVALID, _TOKEN, _UNKNOWN = 0, 23, 99


def _refuses_type(subject: Subject, code: int) -> None:
    expect_refusal(
        subject,
        lambda: subject.put(NUMBERS, type=code),
        f"a host array of PJRT_Buffer_Type {code}",
    )


@check(number=93)
def type_invalid(subject: Subject) -> None:
    """Put a host array of the type INVALID -> refused."""
    _refuses_type(subject, _INVALID)


@check(number=93)
def type_unknown(subject: Subject) -> None:
    """Put a host array of the type 99 -> refused."""
    _refuses_type(subject, _UNKNOWN)


@check(number=93)
def type_token(subject: Subject) -> None:
    """Put a host array of the type TOKEN -> refused."""
    _refuses_type(subject, _TOKEN)


def _refuses_dimensions(subject: Subject, *dims: int) -> None:
    what = f"an array of {list(dims)}"
    expect_refusal(subject, lambda: subject.put(NUMBERS, dims=dims), what)


@check(number=93)
def dimension_negative(subject: Subject) -> None:
    """Put a host array with a negative dimension -> refused."""
    _refuses_dimensions(subject, -4)


@check(number=93)
def dimensions_overflow(subject: Subject) -> None:
    """Put a host array of more bytes than 64 bits can count -> refused."""
    _refuses_dimensions(subject, 1 << 32, 1 << 32)  # Their product wraps to 0 in 64 bits.


@check(number=97)
def on_device_size(subject: Subject) -> None:
    """Ask for the size on the device -> at least the bytes of the elements."""
    for shape in ((4,), (3, 5), (1,), (128, 129)):
        array = np.zeros(shape, np.float32)
        size = subject.call("PJRT_Buffer_OnDeviceSizeInBytes", buffer=subject.put(array))
        expect(
            size >= array.nbytes,
            f"the size on the device of f32{list(shape)}: expected at least {array.nbytes}, "
            f"found {size}",
        )


@check(since=56, number=97)
def on_device_size_can_be_copied(subject: Subject) -> None:
    """Copy as many raw bytes as the size on the device -> success."""
    buffer = subject.put(NUMBERS)
    size = subject.call("PJRT_Buffer_OnDeviceSizeInBytes", buffer=buffer)
    memory = np.zeros(size, np.uint8)
    event = subject.call(
        "PJRT_Buffer_CopyRawToHost",
        buffer=buffer,
        dst=memory.ctypes.data,
        offset=0,
        transfer_size=size,
    )
    subject.await_(event)


@check(number=98)
def dimensions(subject: Subject) -> None:
    """Put arrays of rank 0 to 6 -> their dimensions, also unpadded, none dynamic."""
    for rank in range(7):
        shape = list(range(1, rank + 1))
        buffer = subject.put(np.zeros(shape, np.float32))
        equal(subject.call("PJRT_Buffer_Dimensions", buffer=buffer), shape, "the dimensions")
        unpadded = subject.call("PJRT_Buffer_UnpaddedDimensions", buffer=buffer)
        equal(unpadded, shape, "the unpadded dimensions")
        dynamic = subject.call("PJRT_Buffer_DynamicDimensionIndices", buffer=buffer)
        equal(dynamic, [], f"the dynamic dimensions of f32{shape}")


_FIRST_ROWS = """
func.func @main(%a: tensor<4x3xf32>, %n: tensor<i32>)
    -> tensor<?x3xf32, #stablehlo.bounds<4, ?>> {
  %r = "stablehlo.set_dimension_size"(%a, %n) {dimension = 0 : i64}
      : (tensor<4x3xf32>, tensor<i32>) -> tensor<?x3xf32, #stablehlo.bounds<4, ?>>
  return %r : tensor<?x3xf32, #stablehlo.bounds<4, ?>>
}
"""


@check(number=98)
def bounded_dimensions(subject: Subject) -> None:
    """Return 2 rows of at most 4 -> dimensions [4, 3], unpadded [2, 3], dynamic [0]."""
    try:
        executable = subject.compile(_FIRST_ROWS)
    except PjrtError as exc:
        raise Unsupported(f"it compiles no bounded dimension: {exc.message}") from exc
    rows = subject.put(np.ones((4, 3), np.float32)), subject.put(np.array(2, np.int32))
    (buffer,) = subject.execute(executable, rows)
    equal(subject.call("PJRT_Buffer_Dimensions", buffer=buffer), [4, 3], "the dimensions")
    unpadded = subject.call("PJRT_Buffer_UnpaddedDimensions", buffer=buffer)
    equal(unpadded, [2, 3], "the unpadded dimensions")
    dynamic = subject.call("PJRT_Buffer_DynamicDimensionIndices", buffer=buffer)
    equal(dynamic, [0], "the dynamic dimensions")


@check(number=99)
def device(subject: Subject) -> None:
    """Put an array on each device -> the buffer's Device is that device."""
    for each in subject.devices:
        buffer = subject.put(NUMBERS, device=each)
        equal(subject.call("PJRT_Buffer_Device", buffer=buffer), each, "the buffer's device")


@check(number=99)
def memory(subject: Subject) -> None:
    """Put an array into each memory of each device -> the buffer's Memory is that memory."""
    ask = "PJRT_Device_AddressableMemories"
    for each in [each for of in subject.devices for each in subject.call(ask, device=of)]:
        kind = subject.call("PJRT_Memory_Kind", memory=each).decode()
        buffer = subject.put(NUMBERS, memory=each)
        found = subject.call("PJRT_Buffer_Memory", buffer=buffer)
        equal(found, each, f"the memory of a buffer in {kind}")
        equal(subject.get(buffer).tolist(), NUMBERS.tolist(), f"the value in {kind}")


@check(number=99)
def default_memory(subject: Subject) -> None:
    """Put an array on each device without a memory -> it lies in the device's default memory."""
    for each in subject.devices:
        buffer = subject.put(NUMBERS, device=each)
        wanted = subject.call("PJRT_Device_DefaultMemory", device=each)
        equal(subject.call("PJRT_Buffer_Memory", buffer=buffer), wanted, "the buffer's memory")


@check(number=100)
def delete(subject: Subject) -> None:
    """Delete a buffer twice -> IsDeleted is false before and true after."""
    buffer = subject.put(NUMBERS)
    equal(subject.call("PJRT_Buffer_IsDeleted", buffer=buffer), False, "IsDeleted before Delete")
    for _ in range(2):
        subject.call("PJRT_Buffer_Delete", buffer=buffer)
        equal(subject.call("PJRT_Buffer_IsDeleted", buffer=buffer), True, "IsDeleted after Delete")


def _deleted_buffer(subject: Subject) -> int:
    buffer = subject.put(NUMBERS)
    subject.call("PJRT_Buffer_Delete", buffer=buffer)
    return buffer


@check(number=100)
def ready_event_of_deleted(subject: Subject) -> None:
    """Await the ready event of a deleted buffer -> refused, by the call or the event."""
    buffer = _deleted_buffer(subject)
    expect_refusal(
        subject,
        lambda: subject.await_(subject.ready(buffer)),
        "the ready event of a deleted buffer",
    )


@check(number=100)
def read_of_deleted(subject: Subject) -> None:
    """Copy a deleted buffer to the host -> refused, by the call or the event."""
    buffer = _deleted_buffer(subject)
    expect_refusal(subject, lambda: subject.get(buffer, np.float32), "a copy of a deleted buffer")


@check(number=100)
def copy_of_deleted(subject: Subject) -> None:
    """Copy a deleted buffer to the device's memory -> refused, by the call or the copy's event."""
    buffer = _deleted_buffer(subject)
    place = subject.call("PJRT_Device_DefaultMemory", device=subject.device)

    def copy() -> None:
        made = subject.call("PJRT_Buffer_CopyToMemory", buffer=buffer, dst_memory=place)
        subject.await_(subject.ready(subject.own("Buffer", made)))

    expect_refusal(subject, copy, "a copy of a deleted buffer")


def _shape(subject: Subject) -> dict[str, Any]:
    """Return the fields that functions share which make an f32[4] from nothing."""
    return {
        "client": subject.client,
        "memory": subject.call("PJRT_Device_DefaultMemory", device=subject.device),
        "shape_dims": [4],
        "shape_element_type": F32,
        "shape_layout": memory_layout.members((0,)),
    }


@check(since=69, number=101)
def uninitialized(subject: Subject) -> None:
    """Create an uninitialized f32[4] -> its type, dimensions, memory; it becomes ready."""
    fields = _shape(subject)
    made = subject.call("PJRT_Client_CreateUninitializedBuffer", **fields)
    buffer = subject.own("Buffer", made)
    equal(subject.call("PJRT_Buffer_ElementType", buffer=buffer), F32, "the element type")
    equal(subject.call("PJRT_Buffer_Dimensions", buffer=buffer), [4], "the dimensions")
    found = subject.call("PJRT_Buffer_Memory", buffer=buffer)
    equal(found, fields["memory"], "the memory")
    subject.await_(subject.ready(buffer))


@check(since=69, number=101)
def uninitialized_without_end(subject: Subject) -> None:
    """Create an uninitialized array of a pebibyte -> refused, usually with RESOURCE_EXHAUSTED."""
    fields = {**_shape(subject), "shape_dims": [1 << 48]}

    def make() -> None:
        made = subject.call("PJRT_Client_CreateUninitializedBuffer", **fields)
        subject.await_(subject.ready(subject.own("Buffer", made)))

    expect_refusal(subject, make, "an array of a pebibyte", code=ResourceExhaustedError.code)


def _error_buffer(subject: Subject, **fields: Any) -> int:
    inputs = {
        **_shape(subject),
        **GIVEN_ERROR,
        **fields,
    }
    if subject.minor >= 117:
        inputs["device_layout"] = memory_layout.members((0,))
    made = subject.call("PJRT_Client_CreateErrorBuffer", **inputs)
    return subject.own("Buffer", made)


@check(since=82, number=102)
def error_buffer(subject: Subject) -> None:
    """Create an error buffer -> its event and a copy have the error's code and text."""
    buffer = _error_buffer(subject)
    for what, call in {
        "awaiting it": lambda: subject.await_(subject.ready(buffer)),
        "copying it": lambda: subject.get(buffer, np.float32),
    }.items():
        expect_given_error(subject, call, what, DataLossError.code)
    subject.usable()


@check(since=82, number=102)
def error_buffer_in_words(subject: Subject) -> None:
    """Create an error buffer with text behind the given size -> its event has no more."""
    buffer = _error_buffer(subject, **GIVEN_ERROR_AND_MORE)
    expect_given_error(subject, lambda: subject.await_(subject.ready(buffer)), "awaiting it")


@check(since=82, number=102)
def error_buffer_as_argument(subject: Subject) -> None:
    """Run a program on an error buffer -> its output fails with the same text."""
    executable = subject.compile(ADD)
    arguments = [_error_buffer(subject), subject.put(NUMBERS)]

    def run() -> object:
        (output,) = subject.execute(executable, arguments)
        return subject.get(output, np.float32).tolist()

    expect_given_error(subject, run, "reading the output of a failed argument")
    subject.usable()


@check(since=103, number=102)
def error_buffer_with_payload(subject: Subject) -> None:
    """Create an error buffer with a payload -> the error of its event has it."""
    buffer = _error_buffer(subject, payload={"pjrt.hub/reason": "tested"})
    error = expect_error(lambda: subject.await_(subject.ready(buffer)), what="awaiting it")
    equal(dict(error.payloads), {"pjrt.hub/reason": b"tested"}, "the payloads")


def _alias(subject: Subject) -> tuple[int, int]:
    """Make an alias buffer, and return what fulfills it as well."""
    answer = subject.call("PJRT_Client_CreateAliasBuffer", **_shape(subject))
    return subject.own("Buffer", answer.alias_buffer), answer.fulfill_alias_buffer_cb


@check(since=77, number=103)
def alias(subject: Subject) -> None:
    """Create an alias and fulfill it with a buffer -> pending before, then ready with its value."""
    buffer, fulfil = _alias(subject)
    event = subject.ready(buffer)
    expect(
        not subject.call("PJRT_Event_IsReady", event=event),
        "IsReady of an alias of nothing: expected false, found true",
    )
    subject.call(
        "PJRT_Client_FulfillAliasBuffer",
        client=subject.client,
        buffer=subject.put(NUMBERS),
        status_code=0,
        error_message="",
        fulfill_alias_buffer_cb=fulfil,
    )
    subject.await_(event)
    equal(subject.get(buffer).tolist(), NUMBERS.tolist(), "the alias's value")


@check(since=77, number=103)
def alias_fails(subject: Subject) -> None:
    """Create an alias and fulfill it with an error -> its event has the error's text."""
    buffer, fulfil = _alias(subject)
    try:
        subject.call(
            "PJRT_Client_FulfillAliasBuffer",
            client=subject.client,
            buffer=0,
            status_code=GIVEN_ERROR["error_code"],
            error_message=GIVEN_ERROR["error_message"],
            fulfill_alias_buffer_cb=fulfil,
        )
    except DataLossError:
        subject.note("FulfillAliasBuffer returns the very error that it was given")
    expect_given_error(subject, lambda: subject.await_(subject.ready(buffer)), "awaiting the alias")


def _bitcast(subject: Subject, buffer: int, code: int, dims: list[int]) -> int:
    order = tuple(reversed(range(len(dims))))
    made = subject.call(
        "PJRT_Buffer_Bitcast",
        buffer=buffer,
        element_type=code,
        dims=dims,
        device_layout=memory_layout.members(order),
    )
    return subject.own("Buffer", made)


@check(since=98, number=104)
def bitcast(subject: Subject) -> None:
    """Bitcast an f32[4] to s32[2,2] -> the same bytes, and the source is deleted."""
    source = subject.put(NUMBERS)
    cast = _bitcast(subject, source, S32, [2, 2])
    found = subject.get(cast)
    equal(found.tolist(), NUMBERS.view(np.int32).reshape(2, 2).tolist(), "the cast's value")
    equal(subject.call("PJRT_Buffer_IsDeleted", buffer=source), True, "IsDeleted of the source")


@check(since=98, number=104)
def bitcast_to_another_size(subject: Subject) -> None:
    """Bitcast an f32[4] to s32[5] -> refused."""
    source = subject.put(NUMBERS)
    expect_refusal(
        subject, lambda: _bitcast(subject, source, S32, [5]), "a bitcast of 16 bytes to 20 bytes"
    )


@check(number=98)
def layout(subject: Subject) -> None:
    """Ask for the memory layouts of f32[2,3] and f32[3,2,4] -> the elements lie where they say."""
    for shape in ((2, 3), (3, 2, 4)):
        array = np.arange(1, 1 + math.prod(shape), dtype=np.float32).reshape(shape)
        buffer = subject.put(array)
        order = irregular.minor_to_major(subject.api, buffer)
        if order is not None:
            equal(sorted(order), [*range(len(shape))], "the dimensions in minor_to_major")
        strides = irregular.byte_strides(subject.api, buffer, shape, array.itemsize)
        if strides is None:
            raise Unsupported("the layout is of tiles")
        memory = np.frombuffer(_raw(subject, buffer), np.uint8)
        end = array.itemsize + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        inside = min(strides) > 0 and end <= memory.size
        expect(inside, f"expected byte strides inside {memory.size} bytes, found {strides}")
        found = np.lib.stride_tricks.as_strided(memory[:4].view(np.float32), shape, strides)
        what = f"f32{list(shape)} in memory, by the layout {order or strides}"
        equal(found.tolist(), array.tolist(), what)


def _raw(subject: Subject, buffer: int) -> bytes:
    """Return the bytes of a buffer as they lie on the device."""
    size = subject.call("PJRT_Buffer_OnDeviceSizeInBytes", buffer=buffer)
    memory = np.zeros(size, np.uint8)
    into = {"dst": memory.ctypes.data, "offset": 0, "transfer_size": size}
    subject.await_(subject.call("PJRT_Buffer_CopyRawToHost", buffer=buffer, **into))
    return memory.tobytes()


@check(number=100)
def each_of_its_own(subject: Subject) -> None:
    """Put one array twice, delete the first buffer -> the second is a different one, and stays."""
    first, second = subject.put(NUMBERS), subject.put(NUMBERS)
    expect(second != first, "expected a buffer for each call, found one for both")
    subject.call("PJRT_Buffer_Delete", buffer=first)
    equal(subject.get(second).tolist(), NUMBERS.tolist(), "the second buffer's values")
