"""Element types: every one that the plugin's API version knows, to the device and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Skipped, Unsupported, equal
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.array.dtypes import ElementType

_SIGNED = ("i4", "i2", "s1")
_ROW_MAJOR = {"type": 0, "tiled": {"minor_to_major": (1, 0)}}


def _bytes(element: ElementType) -> np.ndarray[Any, Any]:
    """Values as host bytes, [2, elements of a row, bytes of an element], different where possible.

    An element of less than a byte has a whole one. No NaN: which of them comes back is open.
    """
    if element.bits < 8:
        return _patterns(element).reshape(2, -1, 1)
    if element.name == "i1":
        return np.array([0, 1, 1, 0, 1, 0, 0, 0], np.uint8).reshape(2, 4, 1)
    try:
        dtype = dtypes.numpy_dtype(element.code)
    except TypeError as exc:
        raise Skipped(str(exc)) from exc
    count = 256 if element.bits == 8 else 512
    memory = np.arange(256, dtype=np.uint8).tobytes()
    if element.bits > 8:
        memory = np.random.default_rng(0).bytes(count * dtype.itemsize)
    values = np.frombuffer(memory, dtype)
    numbers = values[values == values]
    return (
        np.asarray(numbers[: len(numbers) // 2 * 2]).view(np.uint8).reshape(2, -1, dtype.itemsize)
    )


def _patterns(element: ElementType) -> np.ndarray[Any, Any]:
    """List every value of a sub-byte type, in the two's complement of a byte if signed."""
    count = 1 << element.bits
    patterns = np.arange(count, dtype=np.uint8)
    negative = (patterns >= count // 2) & (element.name in _SIGNED)
    return patterns | np.where(negative, 0x100 - count, 0).astype(np.uint8)


def _put(subject: Subject, element: ElementType, given: np.ndarray[Any, Any], **fields: Any) -> int:
    try:
        return subject.put(given, type=element.code, dims=given.shape[:2], **fields)
    except PjrtError as exc:
        raise Unsupported(f"it takes no {element.name}: {exc.message}") from exc


def _equal_bytes(
    subject: Subject, buffer: int, element: ElementType, given: np.ndarray[Any, Any]
) -> None:
    found = np.empty_like(given)
    answer = subject.call(
        "PJRT_Buffer_ToHostBuffer",
        src=buffer,
        host_layout=_ROW_MAJOR,
        dst=found.ctypes.data,
        dst_size=found.nbytes,
    )
    subject.await_(answer.event)
    bits = 0xFF if element.bits >= 8 else (1 << element.bits) - 1  # The bits above are not defined.
    equal(
        (found & bits).tobytes().hex(), (given & bits).tobytes().hex(), "the bytes that come back"
    )


def _round_trip(element: ElementType) -> Callable[[Subject], None]:
    def run(subject: Subject) -> None:
        given = _bytes(element)
        buffer = _put(subject, element, given)
        found = subject.call("PJRT_Buffer_ElementType", buffer=buffer)
        equal(found, element.code, "the PJRT_Buffer_Type")
        dims = list(given.shape[:2])
        equal(subject.call("PJRT_Buffer_Dimensions", buffer=buffer), dims, "the dimensions")
        _equal_bytes(subject, buffer, element, given)

    return run


def _transposition(element: ElementType) -> Callable[[Subject], None]:
    def run(subject: Subject) -> None:
        given = _bytes(element)
        by_columns = np.ascontiguousarray(given.transpose(1, 0, 2))
        strides = (1, 2)  # Rows are 1 byte apart, columns 2.
        buffer = _put(subject, element, given, data=by_columns.ctypes.data, byte_strides=strides)
        _equal_bytes(subject, buffer, element, given)

    return run


for _element in dtypes.ELEMENT_TYPES:
    check(
        area="buffers",
        since=_element.since,
        number=92,
        name=f"round_trip_{_element.numpy}",
        title=f"Put {_element.name} and copy it back -> the same type, dimensions and bytes.",
    )(_round_trip(_element))
    if _element.bits < 8:
        check(
            area="buffers",
            since=_element.since,
            number=94,
            name=f"transposed_{_element.numpy}",
            title=f"Put {_element.name} by columns and copy it back by rows -> the same values.",
        )(_transposition(_element))
