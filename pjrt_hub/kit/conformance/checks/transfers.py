"""Transfers: from device to host, whole and in parts, between devices, and how fast."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Unsupported, equal, expect
from pjrt_hub.kit.conformance.refusal import GIVEN_ERROR, expect_given_error, expect_refusal
from pjrt_hub.kit.conformance.slow import slow, slow_arguments, slow_program
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.array import memory_layout
from pjrt_hub.running.capi import irregular

NUMBERS = np.arange(1, 7, dtype=np.float32)
MATRIX = NUMBERS.reshape(2, 3)


@check(number=105)
def size_for_the_host(subject: Subject) -> None:
    """Ask for the size of a copy to the host -> the bytes of the array."""
    answer = subject.call("PJRT_Buffer_ToHostBuffer", src=subject.put(MATRIX))
    equal(answer.dst_size, MATRIX.nbytes, "the size for f32[2,3]")


@check(number=105)
def small_destination(subject: Subject) -> None:
    """Copy 24 bytes to the host into memory of 23 -> refused."""
    buffer, array = subject.put(MATRIX), np.empty(MATRIX.nbytes, np.uint8)
    copy = partial(subject.copy_to_host, buffer, array, dst_size=MATRIX.nbytes - 1)
    expect_refusal(subject, copy, "a copy of 24 bytes into 23")


@check(number=105)
def source_destroyed_early(subject: Subject) -> None:
    """Copy to the host and destroy the buffer at once -> the values arrive."""
    given = np.arange(1 << 20, dtype=np.float32)
    buffer, found = subject.put(given), np.zeros_like(given)
    place = {"dst": found.ctypes.data, "dst_size": found.nbytes}
    answer = subject.call("PJRT_Buffer_ToHostBuffer", src=buffer, **place)
    subject.destroy(buffer)
    subject.await_(answer.event)
    expect(np.array_equal(found, given), "the copy of a buffer destroyed early has other values")


_BY_COLUMNS = """
func.func @main(%a: tensor<2x3xf32>) -> (tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"}) {
  %sum = stablehlo.add %a, %a : tensor<2x3xf32>
  return %sum : tensor<2x3xf32>
}
"""


def _by_columns(subject: Subject) -> int:
    """Return twice the matrix, column-major where the plugin heeds layouts at all."""
    (buffer,) = subject.execute(subject.compile(_BY_COLUMNS), [subject.put(MATRIX)])
    return buffer


def _in_order(
    subject: Subject, buffer: int, order: tuple[int, ...], size: int = MATRIX.size
) -> list[float]:
    """Copy an array in an order of dimensions, and return it as it lies there."""
    found = np.full(size, -1, np.float32)
    subject.copy_to_host(buffer, found, host_layout=memory_layout.members(order))
    return found.tolist()


def _order(subject: Subject, buffer: int) -> tuple[int, ...]:
    order = irregular.minor_to_major(subject.api, buffer)
    if order is None:
        raise Unsupported("the layout is of strides")
    return order


@check(number=106)
def with_host_layout(subject: Subject) -> None:
    """Copy to the host in each order of two and three dimensions, or none -> so, or refused."""
    buffer = subject.put(MATRIX)
    found = _in_order(subject, buffer, (0, 1))
    equal(found, MATRIX.T.reshape(-1).tolist(), "the values by columns")
    for none in ((0, 0), (0,)):
        expect_refusal(subject, partial(_in_order, subject, buffer, none), f"the order {none}")
    cube = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    buffer = subject.put(cube)
    for order in itertools.permutations(range(3)):
        right = memory_layout.to_memory(cube, order).reshape(-1).tolist()
        equal(_in_order(subject, buffer, order, cube.size), right, f"the values by {order}")
    turned = _by_columns(subject)
    equal(subject.get(turned).tolist(), (2 * MATRIX).tolist(), "the values by rows")


@check(number=98)
def device_layout(subject: Subject) -> None:
    """Put a matrix with a column-major layout -> it reports that layout, and has its values."""
    buffer = subject.put(MATRIX, device_layout=memory_layout.members((0, 1)))
    order = _order(subject, buffer)
    equal(tuple(order), (0, 1), "the layout of what was put by columns")
    equal(subject.get(buffer).tolist(), MATRIX.tolist(), "the values")


@check(number=106)
def without_host_layout(subject: Subject) -> None:
    """Copy a column-major output without a host layout -> the values in the device's order."""
    buffer = _by_columns(subject)
    order, found = _order(subject, buffer), np.empty(MATRIX.size, np.float32)
    subject.copy_to_host(buffer, found)
    stored = memory_layout.to_memory(2 * MATRIX, order)
    equal(found.tolist(), stored.reshape(-1).tolist(), f"the values in the order {order}")
    if order == (0, 1):
        subject.note("a copy without a host layout has the device's order, here by columns")


def require_rows(subject: Subject, buffer: int) -> None:
    """Raise Unsupported where a matrix lies in tiles: its bytes are the plugin's own matter."""
    if irregular.byte_strides(subject.api, buffer, (1, 1), 1) is None:
        raise Unsupported("the layout is of tiles")


@check(since=56, number=107)
def raw(subject: Subject) -> None:
    """Copy raw bytes: all, some from the middle, none -> the bytes of the values."""
    buffer, wanted = subject.put(NUMBERS), NUMBERS.tobytes()
    for start, end in ((0, 24), (4, 12), (20, 24), (8, 8)):
        found = subject.raw(buffer, start, end - start)
        equal(found.hex(), wanted[start:end].hex(), f"the bytes from {start} to {end}")


@check(since=56, number=107)
def raw_of_running_work(subject: Subject) -> None:
    """Copy raw bytes of an output whose run waits for another -> the bytes of its values."""
    _, rounds = slow_arguments(subject)
    (buffer,) = subject.execute(slow_program(subject), [slow(subject), rounds])
    found, wanted = subject.raw(buffer), subject.get(buffer).tobytes()
    require_rows(subject, buffer)
    expect(found[: len(wanted)] == wanted, "expected the bytes of the output, found other ones")


@check(since=56, number=107)
def raw_past_the_end(subject: Subject) -> None:
    """Copy raw bytes from past the end -> refused, by the call or the event."""
    buffer = subject.put(NUMBERS)
    size = subject.call("PJRT_Buffer_OnDeviceSizeInBytes", buffer=buffer)
    for offset, count in ((size, 4), (size - 4, 8), (0, size + 1)):
        read = partial(subject.raw, buffer, offset, count)
        expect_refusal(subject, read, f"{count} raw bytes from {offset} of {size}")


@check(since=56, number=107)
def raw_from_before(subject: Subject) -> None:
    """Copy raw bytes from a negative offset -> refused, by the call or the event."""
    buffer = subject.put(NUMBERS)
    expect_refusal(subject, partial(subject.raw, buffer, -4, 4), "4 raw bytes from -4")


def _raw_later(subject: Subject, buffer: int, offset: int) -> tuple[int, Callable[..., object]]:
    """Begin a copy of 8 raw bytes; return its event, and what tells the place or an error."""
    name = "PJRT_Buffer_CopyRawToHostFuture"
    answer = subject.call(name, buffer=buffer, offset=offset, transfer_size=8)
    given = f"{name}_Callback_Args", answer.future_ready_callback, answer.callback_data
    return subject.own("Event", answer.event), partial(irregular.answer, *given)


@check(since=84, number=108)
def raw_later(subject: Subject) -> None:
    """Copy raw bytes to a destination that is given later -> they arrive then, not before."""
    buffer, memory = subject.put(NUMBERS), np.zeros(8, np.uint8)
    event, tell = _raw_later(subject, buffer, 4)
    subject.expect_ready(event, "before the place is told", False)
    tell(0, "", memory.ctypes.data)
    subject.await_(event)
    equal(memory.tobytes().hex(), NUMBERS[1:3].tobytes().hex(), "the bytes from 4 to 12")


@check(since=84, number=108)
def raw_never(subject: Subject) -> None:
    """Copy raw bytes to a destination that fails -> the event has the error's text."""
    event, tell = _raw_later(subject, subject.put(NUMBERS), 0)
    tell(*GIVEN_ERROR.values())
    expect_given_error(subject, lambda: subject.await_(event), "awaiting the copy")


def _copy_to_device(subject: Subject, buffer: int, device: int) -> int:
    made = subject.call("PJRT_Buffer_CopyToDevice", buffer=buffer, dst_device=device)
    return subject.own("Buffer", made)


@check(needs="devices:2", number=109)
def to_another_device(subject: Subject) -> None:
    """Copy to the second device, destroy the source -> the values, on that device."""
    source, second = subject.put(NUMBERS), subject.devices[1]
    copy = _copy_to_device(subject, source, second)
    subject.destroy(source)
    equal(subject.get(copy).tolist(), NUMBERS.tolist(), "the values of the copy")
    equal(subject.call("PJRT_Buffer_Device", buffer=copy), second, "the device of the copy")


@check(number=109)
def to_the_same_device(subject: Subject) -> None:
    """Copy to the device on which it is -> a copy with the values, or refused."""
    source = subject.put(NUMBERS)
    try:
        found = subject.get(_copy_to_device(subject, source, subject.device))
    except PjrtError:
        subject.usable()
        return
    subject.note("a copy to the same device is made; the header calls it an error")
    equal(found.tolist(), NUMBERS.tolist(), "the values of the copy")
    copy = _copy_to_device(subject, subject.put(NUMBERS[:0]), subject.device)
    equal(subject.get(copy).shape, (0,), "the shape of a copy of no numbers")


@check(number=109)
def copy_is_not_early(subject: Subject) -> None:
    """Copy an output of running work to each memory and device -> ready only when the output is."""
    memories = subject.call("PJRT_Device_AddressableMemories", device=subject.device)
    makes = [partial(_copy_to_memory, memory=each) for each in memories]
    makes += [partial(_copy_to_device, device=each) for each in subject.devices[1:2]]
    for make in makes:
        source = slow(subject)
        try:
            copy = make(subject, source)
        except (PjrtError, Unsupported) as exc:
            subject.note(str(exc))
            continue
        subject.await_(subject.ready(copy))
        # Events of what is done fire on threads of the plugin, in any order, but in a fifth of the
        # time that slow work takes.
        is_done = subject.is_ready_within(subject.ready(source), 0.02)
        expect(is_done, "a copy: expected it pending like what is copied, found it ready")


def _copy_to_memory(subject: Subject, buffer: int, memory: int) -> int:
    made = subject.call("PJRT_Buffer_CopyToMemory", buffer=buffer, dst_memory=memory)
    return subject.own("Buffer", made)


@check(needs="devices:2", number=109)
def sixteen_copies(subject: Subject) -> None:
    """Copy 16 times to the second device at once, destroy the source -> 16 times the values."""
    given = np.arange(1 << 16, dtype=np.float32)
    source = subject.put(given)
    copies = [_copy_to_device(subject, source, subject.devices[1]) for _ in range(16)]
    subject.destroy(source)
    right = [np.array_equal(subject.get(each), given) for each in copies]
    equal(right, [True] * 16, "whether each copy has the values")


@check(seconds=60, number=113)
def bandwidth(subject: Subject) -> None:
    """Put 256 MiB and copy them back -> the same bytes; both speeds are noted."""
    given = np.random.default_rng(0).integers(0, 1 << 62, 1 << 25)
    found = np.ones_like(given)  # The memory is touched first, so that no page fault is measured.
    start = time.monotonic()
    buffer = subject.put(given)
    there = time.monotonic()
    subject.copy_to_host(buffer, found)
    back = time.monotonic()
    expect(np.array_equal(found, given), "256 MiB come back with other bytes")
    up, down = (given.nbytes / 1e9 / max(each, 1e-9) for each in (there - start, back - there))
    subject.note(f"256 MiB: {up:.1f} GB/s to the device, {down:.1f} GB/s back")
