"""Buffers: their properties and deletion, buffers without a value, and element types."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pjrt_hub.errors import DataLossError, ResourceExhaustedError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Skipped, Unsupported, equal, expect, raise_as
from pjrt_hub.kit.conformance.programs import ADD, NUMBERS
from pjrt_hub.kit.conformance.subject import GIVEN_ERROR, GIVEN_ERROR_AND_MORE, Subject
from pjrt_hub.running.array import dtypes, memory_layout
from pjrt_hub.running.array.dtypes import ElementType
from pjrt_hub.running.capi import irregular

F32, S32 = dtypes.of_numpy("float32").code, dtypes.of_numpy("int32").code
_HUGE = (1 << 32, 1 << 32)


def _refuses_put(subject: Subject, what: str, **fields: Any) -> None:
    subject.expect_refusal(lambda: subject.put(NUMBERS, **fields), what)


for _name, _words, _what, _fields in (
    ("type_invalid", "of the type INVALID", "PJRT_Buffer_Type 0", {"type": 0}),
    ("type_unknown", "of the type 99", "PJRT_Buffer_Type 99", {"type": 99}),
    ("type_token", "of the type TOKEN", "PJRT_Buffer_Type 23", {"type": 23}),
    ("dimension_negative", "with a negative dimension", "[-4]", {"dims": (-4,)}),
    # The product of its dimensions wraps to 0 in 64 bits.
    ("dimensions_overflow", "of more bytes than 64 bits can count", "2^64", {"dims": _HUGE}),
):
    check(number=93, name=_name, title=f"Put a host array {_words} -> refused")(
        partial(_refuses_put, what=f"a host array of {_what}", **_fields)
    )


@check(number=97)
def on_device_size(subject: Subject) -> None:
    """Ask for a buffer's size on the device -> at least the bytes of the elements."""
    for shape in ((4,), (3, 5), (1,), (128, 129)):
        array = np.zeros(shape, np.float32)
        size = subject.call("PJRT_Buffer_OnDeviceSizeInBytes", buffer=subject.put(array))
        what = f"the size on the device of f32{list(shape)}"
        expect(size >= array.nbytes, f"{what}: expected at least {array.nbytes}, found {size}")


@check(since=56, number=97)
def on_device_size_can_be_copied(subject: Subject) -> None:
    """Copy as many raw bytes as a buffer's size on the device -> success."""
    subject.raw(subject.put(NUMBERS))


@check(number=98)
def dimensions(subject: Subject) -> None:
    """Put arrays of rank 0 to 6 -> their dimensions, also unpadded, none dynamic."""
    for rank in range(7):
        shape = list(range(1, rank + 1))
        _has_dimensions(subject, subject.put(np.zeros(shape, np.float32)), shape, shape, [])


def _has_dimensions(
    subject: Subject, buffer: int, shape: list[int], unpadded: list[int], dynamic: list[int]
) -> None:
    for function, wanted, what in (
        ("Dimensions", shape, "the dimensions"),
        ("UnpaddedDimensions", unpadded, "the unpadded dimensions"),
        ("DynamicDimensionIndices", dynamic, f"the dynamic dimensions of f32{shape}"),
    ):
        equal(subject.call(f"PJRT_Buffer_{function}", buffer=buffer), wanted, what)


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
    with raise_as(Unsupported, "it compiles no bounded dimension:"):
        executable = subject.compile(_FIRST_ROWS)
    rows = subject.put(np.ones((4, 3), np.float32)), subject.put(np.array(2, np.int32))
    (buffer,) = subject.execute(executable, rows)
    _has_dimensions(subject, buffer, [4, 3], [2, 3], [0])


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
    wait = partial(subject.wait, _deleted_buffer(subject))
    subject.expect_refusal(wait, "the ready event of a deleted buffer")


@check(number=100)
def read_of_deleted(subject: Subject) -> None:
    """Copy a deleted buffer to the host -> refused, by the call or the event."""
    buffer = _deleted_buffer(subject)
    subject.expect_refusal(lambda: subject.get(buffer, np.float32), "a copy of a deleted buffer")


@check(number=100)
def copy_of_deleted(subject: Subject) -> None:
    """Copy a deleted buffer to the device's memory -> refused, by the call or the copy's event."""
    buffer, place = _deleted_buffer(subject), subject.default_memory
    copy = partial(subject.copy, buffer, memory=place)
    subject.expect_refusal(lambda: subject.wait(copy()), "a copy of a deleted buffer")


def _shape(subject: Subject) -> dict[str, Any]:
    """Return the fields shared by the functions that create an f32[4] without data."""
    return {
        "client": subject.client,
        "memory": subject.default_memory,
        "shape_dims": [4],
        "shape_element_type": F32,
        "shape_layout": memory_layout.members((0,)),
    }


def _uninitialized(subject: Subject, fields: dict[str, Any]) -> int:
    return subject.own("Buffer", subject.call("PJRT_Client_CreateUninitializedBuffer", **fields))


@check(since=69, number=101)
def uninitialized(subject: Subject) -> None:
    """Create an uninitialized f32[4] -> right type, dimensions and memory; it becomes ready."""
    buffer = _uninitialized(subject, _shape(subject))
    equal(subject.call("PJRT_Buffer_ElementType", buffer=buffer), F32, "the element type")
    equal(subject.call("PJRT_Buffer_Dimensions", buffer=buffer), [4], "the dimensions")
    found = subject.call("PJRT_Buffer_Memory", buffer=buffer)
    equal(found, subject.default_memory, "the memory")
    subject.wait(buffer)


@check(since=69, number=101)
def uninitialized_without_end(subject: Subject) -> None:
    """Create an uninitialized array of a pebibyte -> refused, usually with RESOURCE_EXHAUSTED."""
    make = partial(_uninitialized, subject, {**_shape(subject), "shape_dims": [1 << 48]})
    code = ResourceExhaustedError.code
    subject.expect_refusal(lambda: subject.wait(make()), "an array of a pebibyte", code=code)


def _error_buffer(subject: Subject, **fields: Any) -> int:
    inputs = {**_shape(subject), **GIVEN_ERROR, **fields}
    if subject.minor >= 117:
        inputs["device_layout"] = memory_layout.members((0,))
    return subject.own("Buffer", subject.call("PJRT_Client_CreateErrorBuffer", **inputs))


@check(since=82, number=102)
def error_buffer(subject: Subject) -> None:
    """Create an error buffer -> its event and a copy have the error's code and text."""
    buffer, code = _error_buffer(subject), DataLossError.code
    subject.expect_given_error(lambda: subject.wait(buffer), "awaiting it", code)
    subject.expect_given_error(lambda: subject.get(buffer, np.float32), "copying it", code)
    subject.usable()


@check(since=82, number=102)
def error_buffer_in_words(subject: Subject) -> None:
    """Create an error buffer whose text goes on past its size -> the event's text does not."""
    buffer = _error_buffer(subject, **GIVEN_ERROR_AND_MORE)
    subject.expect_given_error(lambda: subject.wait(buffer), "awaiting it")


@check(since=82, number=102)
def error_buffer_as_argument(subject: Subject) -> None:
    """Run a program on an error buffer -> its output fails with the same text."""
    executable = subject.compile(ADD)
    arguments = [_error_buffer(subject), subject.put(NUMBERS)]
    what = "reading the output of a failed argument"
    read = partial(subject.values, executable, arguments, np.float32)
    subject.expect_given_error(read, what)
    subject.usable()


@check(since=103, number=102)
def error_buffer_with_payload(subject: Subject) -> None:
    """Create an error buffer with a payload -> the error of its event has that payload."""
    buffer = _error_buffer(subject, payload={"pjrt.hub/reason": "tested"})
    error = subject.expect_error(lambda: subject.wait(buffer), "awaiting it")
    equal(dict(error.payloads), {"pjrt.hub/reason": b"tested"}, "the payloads")


def _alias(subject: Subject) -> tuple[int, Callable[[int, int, str], object]]:
    """Make an alias buffer; return it and a function that fulfills it with a buffer or an error."""
    answer = subject.call("PJRT_Client_CreateAliasBuffer", **_shape(subject))

    def fulfil(buffer: int, code: int, message: str) -> None:
        subject.call(
            "PJRT_Client_FulfillAliasBuffer",
            client=subject.client,
            buffer=buffer,
            status_code=code,
            error_message=message,
            fulfill_alias_buffer_cb=answer.fulfill_alias_buffer_cb,
        )

    return subject.own("Buffer", answer.alias_buffer), fulfil


@check(since=77, number=103)
def alias(subject: Subject) -> None:
    """Create an alias, fulfill it with a buffer -> pending before, then ready with that value."""
    buffer, fulfil = _alias(subject)
    event = subject.ready(buffer)
    subject.expect_ready(event, "of an alias of nothing", False)
    fulfil(subject.put(NUMBERS), 0, "")
    subject.await_(event)
    equal(subject.get(buffer).tolist(), NUMBERS.tolist(), "the alias's value")


@check(since=77, number=103)
def alias_fails(subject: Subject) -> None:
    """Create an alias and fulfill it with an error -> its event has the error's text."""
    buffer, fulfil = _alias(subject)
    try:
        fulfil(0, *GIVEN_ERROR.values())
    except DataLossError:
        subject.note("FulfillAliasBuffer returns the very error that it was given")
    subject.expect_given_error(lambda: subject.wait(buffer), "awaiting the alias")


def _bitcast(subject: Subject, buffer: int, code: int, dims: list[int]) -> int:
    layout = memory_layout.members(tuple(reversed(range(len(dims)))))
    given = {"element_type": code, "dims": dims, "device_layout": layout}
    return subject.own("Buffer", subject.call("PJRT_Buffer_Bitcast", buffer=buffer, **given))


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
    cast = partial(_bitcast, subject, subject.put(NUMBERS), S32, [5])
    subject.expect_refusal(cast, "a bitcast of 16 bytes to 20 bytes")


@check(number=98)
def layout(subject: Subject) -> None:
    """Ask for the layouts of f32[2,3] and f32[3,2,4] -> the elements lie where the layouts say."""
    for shape in ((2, 3), (3, 2, 4)):
        array = np.arange(1, 1 + math.prod(shape), dtype=np.float32).reshape(shape)
        buffer = subject.put(array)
        order = irregular.minor_to_major(subject.api, buffer)
        if order is not None:
            equal(sorted(order), [*range(len(shape))], "the dimensions in minor_to_major")
        strides = irregular.byte_strides(subject.api, buffer, shape, array.itemsize)
        if strides is None:
            raise Unsupported("the layout is of tiles")
        memory = np.frombuffer(subject.raw(buffer), np.uint8)
        end = array.itemsize + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        inside = min(strides) > 0 and end <= memory.size
        expect(inside, f"expected byte strides inside {memory.size} bytes, found {strides}")
        found = np.lib.stride_tricks.as_strided(memory[:4].view(np.float32), shape, strides)
        what = f"f32{list(shape)} in memory, by the layout {order or strides}"
        equal(found.tolist(), array.tolist(), what)


@check(number=100)
def each_of_its_own(subject: Subject) -> None:
    """Put one array twice, delete the first buffer -> the second is another, with its values."""
    first, second = subject.put(NUMBERS), subject.put(NUMBERS)
    expect(second != first, "expected a buffer for each call, found one for both")
    subject.call("PJRT_Buffer_Delete", buffer=first)
    equal(subject.get(second).tolist(), NUMBERS.tolist(), "the second buffer's values")


_SIGNED = ("i4", "i2", "s1")


def _bytes(element: ElementType) -> np.ndarray[Any, Any]:
    """Return host bytes of a type's values: [2, elements of a row, bytes of an element].

    An element of less than a byte takes a whole one. No value is NaN: any NaN may come back.
    """
    if element.bits < 8:
        return _patterns(element).reshape(2, -1, 1)
    if element.name == "i1":
        return np.array([0, 1, 1, 0, 1, 0, 0, 0], np.uint8).reshape(2, 4, 1)
    with raise_as(Skipped, of=TypeError):
        dtype = dtypes.numpy_dtype(element.code)
    count = 256 if element.bits == 8 else 512
    memory = np.arange(256, dtype=np.uint8).tobytes()
    if element.bits > 8:
        memory = np.random.default_rng(0).bytes(count * dtype.itemsize)
    values = np.frombuffer(memory, dtype)
    numbers = values[values == values]
    even = np.asarray(numbers[: len(numbers) // 2 * 2])
    return even.view(np.uint8).reshape(2, -1, dtype.itemsize)


def _patterns(element: ElementType) -> np.ndarray[Any, Any]:
    """List every value of a sub-byte type as a byte, in two's complement if the type is signed."""
    count = 1 << element.bits
    patterns = np.arange(count, dtype=np.uint8)
    negative = (patterns >= count // 2) & (element.name in _SIGNED)
    return patterns | np.where(negative, 0x100 - count, 0).astype(np.uint8)


def _put(subject: Subject, element: ElementType, given: np.ndarray[Any, Any], **fields: Any) -> int:
    with raise_as(Unsupported, f"it takes no {element.name}:"):
        return subject.put(given, type=element.code, dims=given.shape[:2], **fields)


def _equal_bytes(
    subject: Subject, buffer: int, element: ElementType, given: np.ndarray[Any, Any]
) -> None:
    found = np.empty_like(given)
    subject.copy_to_host(buffer, found, host_layout=memory_layout.members((1, 0)))
    bits = 0xFF if element.bits >= 8 else (1 << element.bits) - 1  # Higher bits are undefined.
    came, wanted = ((each & bits).tobytes().hex() for each in (found, given))
    equal(came, wanted, "the bytes that come back")


def _round_trip(subject: Subject, element: ElementType) -> None:
    given = _bytes(element)
    buffer = _put(subject, element, given)
    found = subject.call("PJRT_Buffer_ElementType", buffer=buffer)
    equal(found, element.code, "the PJRT_Buffer_Type")
    dims = list(given.shape[:2])
    equal(subject.call("PJRT_Buffer_Dimensions", buffer=buffer), dims, "the dimensions")
    _equal_bytes(subject, buffer, element, given)


def _transposition(subject: Subject, element: ElementType) -> None:
    given = _bytes(element)
    by_columns = np.ascontiguousarray(given.transpose(1, 0, 2))
    strides = (1, 2)  # Rows are 1 byte apart, columns 2 bytes.
    buffer = _put(subject, element, given, data=by_columns.ctypes.data, byte_strides=strides)
    _equal_bytes(subject, buffer, element, given)


for _element in dtypes.ELEMENT_TYPES:
    check(
        since=_element.since,
        number=92,
        name=f"round_trip_{_element.numpy}",
        title=f"Put {_element.name} and copy it back -> the same type, dimensions and bytes.",
    )(partial(_round_trip, element=_element))
    if _element.bits < 8:
        check(
            since=_element.since,
            number=94,
            name=f"transposed_{_element.numpy}",
            title=f"Put {_element.name} by columns and copy it back by rows -> the same values.",
        )(partial(_transposition, element=_element))
