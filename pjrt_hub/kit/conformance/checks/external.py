"""Memory shared with others: pointers to a device's memory, references, views of given memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Skipped, ask_twice, equal, expect
from pjrt_hub.kit.conformance.programs import DOUBLE, NUMBERS
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.array import dtypes, memory_layout
from pjrt_hub.running.array.host_array import empty_aligned
from pjrt_hub.running.capi import custom_calls
from pjrt_hub.running.capi.call_counter import CallCounter


def _pointer(subject: Subject, buffer: int) -> int:
    found = subject.call("PJRT_Buffer_OpaqueDeviceMemoryDataPointer", buffer=buffer)
    expect(bool(found), "OpaqueDeviceMemoryDataPointer: expected an address, found NULL")
    return int(found)


def _on_host(subject: Subject, buffer: int) -> None:
    if not subject.call("PJRT_Buffer_IsOnCpu", buffer=buffer):
        raise Skipped("the device's memory is not the host's to read")


def _read(address: int) -> list[float]:
    return list(np.frombuffer(custom_calls.memory(address, NUMBERS.nbytes), np.float32).tolist())


@check(number=132)
def pointer(subject: Subject) -> None:
    """Ask twice for the pointer to a ready buffer's memory -> the same, not NULL."""
    ask_twice(partial(_pointer, subject, subject.put(NUMBERS)), "the pointer")


@check(number=132)
def pointer_on_host(subject: Subject) -> None:
    """Read at a buffer's pointer, if device memory is host memory -> the values."""
    buffer = subject.put(NUMBERS)
    _on_host(subject, buffer)
    equal(_read(_pointer(subject, buffer)), NUMBERS.tolist(), "the values at the pointer")


@check(number=132)
def unsafe_pointer(subject: Subject) -> None:
    """Ask for UnsafePointer -> the address that OpaqueDeviceMemoryDataPointer returns."""
    buffer = subject.put(NUMBERS)
    found = subject.call("PJRT_Buffer_UnsafePointer", buffer=buffer)
    equal(found, _pointer(subject, buffer), "UnsafePointer")


def _count(subject: Subject, way: str, buffer: int) -> None:
    subject.call(f"PJRT_Buffer_{way}ExternalReferenceCount", buffer=buffer)


@check(number=133)
def references(subject: Subject) -> None:
    """Increase and decrease the external references twice -> success, the values are kept."""
    buffer = subject.put(NUMBERS)
    for way in ("Increase", "Increase", "Decrease", "Decrease"):
        _count(subject, way, buffer)
    equal(subject.get(buffer).tolist(), NUMBERS.tolist(), "the values")


@check(number=133)
def too_few_references(subject: Subject) -> None:
    """Increase the external references once, decrease them twice -> the last one is refused."""
    buffer = subject.put(NUMBERS)
    _count(subject, "Increase", buffer)
    _count(subject, "Decrease", buffer)
    subject.expect_refusal(lambda: _count(subject, "Decrease", buffer), "a decrease below zero")


@check(number=138)
def reference_outlives_delete(subject: Subject) -> None:
    """Increase the external references, delete -> the memory is kept until the decrease."""
    buffer = subject.put(NUMBERS)
    _on_host(subject, buffer)
    address = _pointer(subject, buffer)
    _count(subject, "Increase", buffer)
    subject.call("PJRT_Buffer_Delete", buffer=buffer)
    # These buffers would reuse the memory if it had been freed too early.
    others = [subject.put(np.full(4, -1, np.float32)) for _ in range(16)]
    equal(_read(address), NUMBERS.tolist(), "the values of the referenced memory")
    _count(subject, "Decrease", buffer)
    subject.destroy(*others)


def _view(subject: Subject, address: int) -> tuple[int, CallCounter]:
    """Make a view of four numbers in the device's memory; return it and a counter of callbacks."""
    deleted = CallCounter()
    place = {"device": subject.device}
    if subject.minor >= 66:
        place["memory"] = subject.default_memory
    buffer = subject.call(
        "PJRT_Client_CreateViewOfDeviceBuffer",
        client=subject.client,
        device_buffer_ptr=address,
        dims=NUMBERS.shape,
        element_type=dtypes.of_numpy("float32").code,
        layout=memory_layout.members((0,)),
        on_delete_callback=deleted.address,
        on_delete_callback_arg=0,
        stream=0,
        **place,
    )
    return subject.own("Buffer", buffer), deleted


def _host_memory(subject: Subject, shift: int = 0) -> np.ndarray[Any, Any]:
    """Put the numbers into host memory, `shift` elements after a boundary of 64 bytes."""
    _on_host(subject, subject.put(NUMBERS))
    memory = empty_aligned(64)[shift : shift + 4]
    memory[:] = NUMBERS
    return memory


@check(number=134)
def view(subject: Subject) -> None:
    """Create a view of aligned host memory, read it -> its values, type, dimensions and device."""
    memory = _host_memory(subject)
    buffer, _ = _view(subject, memory.ctypes.data)
    equal(subject.get(buffer).tolist(), NUMBERS.tolist(), "the view's values")
    equal(subject.call("PJRT_Buffer_Dimensions", buffer=buffer), [4], "its dimensions")
    equal(subject.call("PJRT_Buffer_Device", buffer=buffer), subject.device, "its device")


@check(number=134)
def view_as_argument(subject: Subject) -> None:
    """Run a program on a view -> the exact values."""
    memory = _host_memory(subject)
    argument, _ = _view(subject, memory.ctypes.data)
    (found,) = subject.values(subject.compile(DOUBLE), [argument])
    equal(found, (2 * NUMBERS).tolist(), "twice the view")


@check(number=134)
def view_destroyed(subject: Subject) -> None:
    """Destroy a view -> its callback is called once, not before."""
    memory = _host_memory(subject)
    view, deleted = _view(subject, memory.ctypes.data)
    equal(len(deleted.calls), 0, "how often the callback came before the end")
    subject.destroy(view)
    equal(len(deleted.wait()), 1, "how often the callback came")


@check(number=134)
def view_deleted(subject: Subject) -> None:
    """Delete a view, then destroy it -> its callback is called once."""
    memory = _host_memory(subject)
    view, deleted = _view(subject, memory.ctypes.data)
    subject.call("PJRT_Buffer_Delete", buffer=view)
    subject.destroy(view)
    equal(len(deleted.wait()), 1, "how often the callback came")


@check(number=138)
def view_referenced(subject: Subject) -> None:
    """Refer to a view, delete it, drop the reference -> only then one call of its callback."""
    memory = _host_memory(subject)
    view, deleted = _view(subject, memory.ctypes.data)
    _count(subject, "Increase", view)
    subject.call("PJRT_Buffer_Delete", buffer=view)
    equal(len(deleted.calls), 0, "how often the callback came before the reference went")
    _count(subject, "Decrease", view)
    equal(len(deleted.wait()), 1, "how often the callback came")


@check(number=135)
def view_of_changing_memory(subject: Subject) -> None:
    """Write to the memory of a view -> a copy of the view has the new values."""
    memory = _host_memory(subject)
    buffer, _ = _view(subject, memory.ctypes.data)
    memory[:] = 7
    equal(subject.get(buffer).tolist(), [7.0] * 4, "the view's values after the write")


@check(number=136)
def view_of_unaligned_memory(subject: Subject) -> None:
    """Create a view of memory that is not aligned to 64 bytes -> the values, or refused."""
    memory = _host_memory(subject, shift=1)
    try:
        buffer, _ = _view(subject, memory.ctypes.data)
    except PjrtError:
        subject.usable()
        return
    subject.note("memory of a view may begin at any element")
    equal(subject.get(buffer).tolist(), NUMBERS.tolist(), "the view's values")


@check(number=137)
def view_of_a_buffer(subject: Subject) -> None:
    """Create a view of a buffer's memory, destroy it -> the values; the buffer keeps them."""
    source = subject.put(NUMBERS)
    _count(subject, "Increase", source)
    try:
        view, deleted = _view(subject, _pointer(subject, source))
        equal(subject.get(view).tolist(), NUMBERS.tolist(), "the view's values")
        subject.destroy(view)
        equal(len(deleted.wait()), 1, "how often the callback came")
    finally:
        _count(subject, "Decrease", source)
    equal(subject.get(source).tolist(), NUMBERS.tolist(), "the values of what was viewed")
