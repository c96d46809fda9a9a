"""Transfers: to the host, between devices, from the host whole and in parts; host memory."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Unsupported, equal, expect, raise_as
from pjrt_hub.kit.conformance.slow import is_identity, slow, slow_arguments, slow_program
from pjrt_hub.kit.conformance.subject import GIVEN_ERROR, Subject
from pjrt_hub.running.array import dtypes, memory_layout
from pjrt_hub.running.array.host_array import empty_aligned
from pjrt_hub.running.capi import irregular
from pjrt_hub.running.capi.call import Struct

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
    subject.expect_refusal(copy, "a copy of 24 bytes into 23")


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
    """Return twice the matrix, column-major if the plugin heeds layouts at all."""
    (buffer,) = subject.execute(subject.compile(_BY_COLUMNS), [subject.put(MATRIX)])
    return buffer


def _in_order(
    subject: Subject, buffer: int, order: tuple[int, ...], size: int = MATRIX.size
) -> list[float]:
    """Copy a buffer to the host in an order of dimensions; return elements as they lie there."""
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
    """Copy to the host in orders of dimensions -> that order; refused if it is no permutation."""
    buffer = subject.put(MATRIX)
    found = _in_order(subject, buffer, (0, 1))
    equal(found, MATRIX.T.reshape(-1).tolist(), "the values by columns")
    for none in ((0, 0), (0,)):
        subject.expect_refusal(partial(_in_order, subject, buffer, none), f"the order {none}")
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
    """Raise Unsupported if a matrix lies in tiles, in an order that only the plugin knows."""
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
    """Copy raw bytes of an output of a run that waits for another -> the bytes of its values."""
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
        subject.expect_refusal(read, f"{count} raw bytes from {offset} of {size}")


@check(since=56, number=107)
def raw_from_before(subject: Subject) -> None:
    """Copy raw bytes from a negative offset -> refused, by the call or the event."""
    buffer = subject.put(NUMBERS)
    subject.expect_refusal(partial(subject.raw, buffer, -4, 4), "4 raw bytes from -4")


def _raw_later(subject: Subject, buffer: int, offset: int) -> tuple[int, Callable[..., object]]:
    """Begin a copy of 8 raw bytes; return its event, and a function for its place or an error."""
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
    """Begin a copy of raw bytes, fail its destination -> the event has the error's text."""
    event, tell = _raw_later(subject, subject.put(NUMBERS), 0)
    tell(*GIVEN_ERROR.values())
    subject.expect_given_error(lambda: subject.await_(event), "awaiting the copy")


@check(needs="devices:2", number=109)
def to_another_device(subject: Subject) -> None:
    """Copy to the second device, destroy the source -> the values, on that device."""
    source, second = subject.put(NUMBERS), subject.devices[1]
    copy = subject.copy(source, device=second)
    subject.destroy(source)
    equal(subject.get(copy).tolist(), NUMBERS.tolist(), "the values of the copy")
    equal(subject.call("PJRT_Buffer_Device", buffer=copy), second, "the device of the copy")


@check(number=109)
def to_the_same_device(subject: Subject) -> None:
    """Copy a buffer to its own device -> a copy with the values, or refused."""
    source = subject.put(NUMBERS)
    try:
        found = subject.get(subject.copy(source, device=subject.device))
    except PjrtError:
        subject.usable()
        return
    subject.note("a copy to the same device is made; the header calls it an error")
    equal(found.tolist(), NUMBERS.tolist(), "the values of the copy")
    copy = subject.copy(subject.put(NUMBERS[:0]), device=subject.device)
    equal(subject.get(copy).shape, (0,), "the shape of a copy of no numbers")


@check(number=109)
def copy_is_not_early(subject: Subject) -> None:
    """Copy an output of running work to each memory and device -> ready only when the output is."""
    memories = subject.call("PJRT_Device_AddressableMemories", device=subject.device)
    places = [{"memory": each} for each in memories]
    for place in [*places, *({"device": each} for each in subject.devices[1:2])]:
        source = slow(subject)
        try:
            copy = subject.copy(source, **place)
        except (PjrtError, Unsupported) as exc:
            subject.note(str(exc))
            continue
        subject.wait(copy)
        # Events of finished work fire on threads of the plugin, in any order, but within a fifth
        # of the time that slow work takes.
        is_done = subject.is_ready_within(subject.ready(source), 0.02)
        expect(is_done, "a copy: expected it pending like what is copied, found it ready")


@check(needs="devices:2", number=109)
def sixteen_copies(subject: Subject) -> None:
    """Copy 16 times to the second device at once, destroy the source -> 16 times the values."""
    given = np.arange(1 << 16, dtype=np.float32)
    source = subject.put(given)
    copies = [subject.copy(source, device=subject.devices[1]) for _ in range(16)]
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


EIGHT = np.arange(1, 9, dtype=np.float32)
_MANAGER = "AsyncHostToDeviceTransferManager"


class Transfer:
    """A `PJRT_AsyncHostToDeviceTransferManager` for f32 buffers of given shapes."""

    def __init__(
        self, subject: Subject, *shapes: Sequence[int], layouts: Sequence[Any] = ()
    ) -> None:
        self._subject = subject
        f32 = dtypes.of_numpy("float32").code
        self._address = subject.call(
            "PJRT_Client_CreateBuffersForAsyncHostToDevice",
            client=subject.client,
            shape_specs=[{"dims": shape, "element_type": f32} for shape in shapes],
            device_layouts=[each.address for each in layouts],
            memory=subject.default_memory,
        )
        subject.own(_MANAGER, self._address)

    def call(self, function: str, **fields: Any) -> Any:
        """Call one of the manager's functions, by the end of its name."""
        name = f"PJRT_{_MANAGER}_{function}"
        return self._subject.call(name, transfer_manager=self._address, **fields)

    def buffer(self, index: int) -> int:
        """Retrieve a buffer."""
        return self._subject.own("Buffer", self.call("RetrieveBuffer", buffer_index=index))

    def end(self) -> None:
        """Destroy the manager."""
        self._subject.destroy(self._address)

    def send(self, index: int, part: np.ndarray[Any, Any], offset: int, last: bool = False) -> None:
        """Send a part of a buffer, and wait until it is there."""
        given = {"data": part.ctypes.data, "offset": offset, "transfer_size": part.nbytes}
        event = self.call("TransferData", buffer_index=index, is_last_transfer=last, **given)
        self._subject.await_(event)


@check(since=60, number=110)
def parts(subject: Subject) -> None:
    """Send the second half, then the first as the last part -> pending before, then the values."""
    transfer = Transfer(subject, [8])
    buffer = transfer.buffer(0)
    event = subject.ready(buffer)
    transfer.send(0, EIGHT[4:], 16)
    subject.expect_ready(event, "before the last part", False)
    transfer.send(0, EIGHT[:4], 0, last=True)
    subject.await_(event)
    equal(subject.get(buffer).tolist(), EIGHT.tolist(), "the values")


@check(since=60, number=110)
def parts_memory_is_free(subject: Subject) -> None:
    """Overwrite each part's memory once its event fires -> the buffer has the old values."""
    transfer = Transfer(subject, [8])
    buffer = transfer.buffer(0)
    for start in (0, 4):
        memory = EIGHT[start : start + 4].copy()
        transfer.send(0, memory, 4 * start, last=start > 0)
        memory[:] = -1
    equal(subject.get(buffer).tolist(), EIGHT.tolist(), "the values")


@check(since=62, number=110)
def parts_manager(subject: Subject) -> None:
    """Ask the manager of f32[8] and f32[4] -> 2 buffers, their sizes, the device."""
    transfer = Transfer(subject, [8], [4])
    equal(transfer.call("BufferCount"), 2, "the number of buffers")
    for index, nbytes in enumerate((32, 16)):
        size = transfer.call("BufferSize", buffer_index=index)
        expect(size >= nbytes, f"the size of buffer {index}: expected {nbytes}, found {size}")
    equal(transfer.call("Device"), subject.device, "the manager's device")
    transfer.call("AddMetadata", transfer_metadata={"what": "weights"})


@check(since=60, number=110)
def parts_buffers(subject: Subject) -> None:
    """Retrieve the pending buffers of f32[8] and f32[2,3] -> their dimensions and memory."""
    transfer, home = Transfer(subject, [8], [2, 3]), subject.default_memory
    for index, dims in enumerate(([8], [2, 3])):
        buffer = transfer.buffer(index)
        equal(subject.call("PJRT_Buffer_Dimensions", buffer=buffer), dims, "the dimensions")
        equal(subject.call("PJRT_Buffer_Memory", buffer=buffer), home, "the memory")


@check(since=60, number=110, seconds=5)
def parts_past_the_end(subject: Subject) -> None:
    """Send 8 bytes to a buffer's last 4, destroy the manager -> refused; both calls return."""
    transfer = Transfer(subject, [8])
    size = transfer.call("BufferSize", buffer_index=0)
    subject.expect_refusal(lambda: transfer.send(0, EIGHT[:2], size - 4), "a part past the end")
    transfer.end()  # This waits for ever if the plugin counts the refused part as pending.


@check(since=62, number=111)
def parts_of_a_failed_buffer(subject: Subject) -> None:
    """Fail one of two buffers, fill the other -> the first has the error, the other its values."""
    transfer = Transfer(subject, [8], [8])
    failed, filled = transfer.buffer(0), transfer.buffer(1)
    transfer.call("SetBufferError", buffer_index=0, **GIVEN_ERROR)
    transfer.send(1, EIGHT, 0, last=True)
    event = subject.ready(failed)
    subject.expect_given_error(lambda: subject.await_(event), "awaiting the failed one")
    equal(subject.get(filled).tolist(), EIGHT.tolist(), "the values of the other buffer")


@check(since=60, number=111)
def parts_abandoned(subject: Subject) -> None:
    """Destroy the manager before the last part -> the buffer becomes ready with an error."""
    transfer = Transfer(subject, [8])
    buffer = transfer.buffer(0)
    transfer.send(0, EIGHT[:4], 0)
    transfer.end()
    subject.expect_error(lambda: subject.wait(buffer), "awaiting an abandoned buffer")
    subject.usable()


@check(since=60, number=112)
def parts_with_layout(subject: Subject) -> None:
    """Send an f32[2,3] to a buffer with a column-major layout -> its values in that layout."""
    columns = memory_layout.members((0, 1))
    wish = Struct("PJRT_Buffer_MemoryLayout", columns, subject.api.version)
    with raise_as(Unsupported, "it takes no device layout:"):
        transfer = Transfer(subject, [2, 3], layouts=[wish])
    buffer = transfer.buffer(0)
    order = irregular.minor_to_major(subject.api, buffer)
    if order != (0, 1):
        raise Unsupported(f"it ignores the layout that is asked for: the buffer's is {order}")
    require_rows(subject, buffer)
    transfer.send(0, memory_layout.to_memory(MATRIX, order), 0, last=True)
    found = np.empty(MATRIX.size, np.float32)
    subject.copy_to_host(buffer, found)
    equal(found.tolist(), MATRIX.T.reshape(-1).tolist(), "the values by columns")


@check(since=83, number=112)
def literal(subject: Subject) -> None:
    """Send an f32[2,3] as a literal -> its values."""
    transfer = Transfer(subject, [2, 3])
    buffer = transfer.buffer(0)
    event = transfer.call(
        "TransferLiteral",
        buffer_index=0,
        data=MATRIX.ctypes.data,
        shape_dims=[2, 3],
        shape_element_type=dtypes.of_numpy("float32").code,
        shape_layout=memory_layout.members((1, 0)),
    )
    subject.await_(event)
    equal(subject.get(buffer).tolist(), MATRIX.tolist(), "the values")


# The numbers are those of PJRT_HostBufferSemantics.
_DURING_CALL, _UNTIL_TRANSFER, _IMMUTABLE, _MUTABLE = range(4)

_ARRAY = np.arange(24, dtype=np.float32).reshape(4, 6)
_STRIDED: dict[str, tuple[str, np.ndarray[Any, Any]]] = {
    "by_columns": ("by columns", np.asfortranarray(_ARRAY)),
    "padded_rows": ("with room behind each row", _ARRAY[:, :4]),
    "every_other": ("that skips every other column", _ARRAY[:, ::2]),
    "backwards": ("backwards, with a negative stride", _ARRAY[::-1]),
    "repeated": ("of one row, three times", np.broadcast_to(_ARRAY[1], (3, 6))),
}


def _strided_put(subject: Subject, array: np.ndarray[Any, Any]) -> None:
    with raise_as(Unsupported, "it takes no such strides:"):
        buffer = subject.put(array, data=array.ctypes.data, byte_strides=array.strides)
    equal(subject.get(buffer).tolist(), array.tolist(), "the values")


for _name, (_words, _array) in _STRIDED.items():
    check(
        number=95,
        name=f"strides_{_name}",
        title=f"Put an array {_words} -> the values come back by rows.",
    )(partial(_strided_put, array=_array))


_LONG = np.arange(1 << 16, dtype=np.float32)


class _Put(NamedTuple):
    """An array on its way: its host memory, its buffer, and the event that frees the memory."""

    memory: np.ndarray[Any, Any]
    buffer: int
    done: int


def _put(subject: Subject, semantics: int, array: np.ndarray[Any, Any] = _LONG) -> _Put:
    memory = empty_aligned(array.shape)
    memory[:] = array
    buffer, done = subject.send(memory, host_buffer_semantics=semantics)
    return _Put(memory, buffer, subject.own("Event", done))


def _has_values(subject: Subject, put: _Put) -> None:
    found = subject.get(put.buffer)
    expect(np.array_equal(found, _LONG), "the buffer has other values than were put")


def _expect_done(subject: Subject, put: _Put, of: str = "") -> None:
    """Fail unless the event that frees the host memory fires within seconds."""
    fired = subject.is_ready_within(put.done, 10)
    expect(fired, f"done_with_host_buffer{of}: expected to fire, found pending")


@check(number=96)
def memory_only_during_call(subject: Subject) -> None:
    """Put with ImmutableOnlyDuringCall, overwrite the memory at once -> the old values."""
    put = _put(subject, _DURING_CALL)
    put.memory[:] = -1
    _has_values(subject, put)
    _expect_done(subject, put)


@check(number=96)
def memory_until_transfer(subject: Subject) -> None:
    """Put with ImmutableUntilTransferCompletes, await done, overwrite -> the old values."""
    put = _put(subject, _UNTIL_TRANSFER)
    _expect_done(subject, put)
    put.memory[:] = -1
    _has_values(subject, put)


def _zero_copy(subject: Subject, semantics: int) -> None:
    put = _put(subject, semantics)
    _has_values(subject, put)
    if not subject.call("PJRT_Event_IsReady", event=put.done):
        subject.note("the memory is shared: its event waits for the buffer's end")
    subject.destroy(put.buffer)
    _expect_done(subject, put, " of a destroyed buffer")


@check(number=96)
def memory_immutable_zero_copy(subject: Subject) -> None:
    """Put with ImmutableZeroCopy, destroy the buffer -> the values; done fires by then."""
    _zero_copy(subject, _IMMUTABLE)


@check(since=48, number=96)
def memory_mutable_zero_copy(subject: Subject) -> None:
    """Put with MutableZeroCopy, destroy the buffer -> the values; done fires by then."""
    _zero_copy(subject, _MUTABLE)


@check(number=96)
def memory_of_running_work(subject: Subject) -> None:
    """Run on a zero-copy buffer, destroy it, overwrite the memory when done fires -> old values."""
    identity, rounds = slow_arguments(subject)
    put = _put(subject, _IMMUTABLE, subject.get(identity))
    (output,) = subject.execute(slow_program(subject), [put.buffer, rounds])
    subject.destroy(put.buffer)
    _expect_done(subject, put)
    put.memory[:] = -1
    expect(is_identity(subject, output), "the output is another value than computed")
