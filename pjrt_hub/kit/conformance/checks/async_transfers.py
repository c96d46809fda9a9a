"""Transfers in parts: buffers that a manager fills from the host, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.checks.transfers import require_rows
from pjrt_hub.kit.conformance.finding import Unsupported, equal, expect, expect_error, raise_as
from pjrt_hub.kit.conformance.refusal import GIVEN_ERROR, expect_given_error, expect_refusal
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.array import dtypes, memory_layout
from pjrt_hub.running.capi import irregular
from pjrt_hub.running.capi.call import Struct

NUMBERS = np.arange(1, 9, dtype=np.float32)
MATRIX = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
_MANAGER = "AsyncHostToDeviceTransferManager"


class Transfer:
    """A `PJRT_AsyncHostToDeviceTransferManager` for f32 buffers of these shapes."""

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
        """Destroy it."""
        self._subject.destroy(self._address)

    def send(self, index: int, part: np.ndarray[Any, Any], offset: int, last: bool = False) -> None:
        """Send a part of a buffer, and wait until it is there."""
        given = {"data": part.ctypes.data, "offset": offset, "transfer_size": part.nbytes}
        event = self.call("TransferData", buffer_index=index, is_last_transfer=last, **given)
        self._subject.await_(event)


@check(area="transfers", since=60, number=110)
def parts(subject: Subject) -> None:
    """Send the second half, then the first as the last part -> pending before, then the values."""
    transfer = Transfer(subject, [8])
    buffer = transfer.buffer(0)
    event = subject.ready(buffer)
    transfer.send(0, NUMBERS[4:], 16)
    subject.expect_ready(event, "before the last part", False)
    transfer.send(0, NUMBERS[:4], 0, last=True)
    subject.await_(event)
    equal(subject.get(buffer).tolist(), NUMBERS.tolist(), "the values")


@check(area="transfers", since=60, number=110)
def parts_memory_is_free(subject: Subject) -> None:
    """Overwrite each part's memory once its event fires -> the buffer has the old values."""
    transfer = Transfer(subject, [8])
    buffer = transfer.buffer(0)
    for start in (0, 4):
        memory = NUMBERS[start : start + 4].copy()
        transfer.send(0, memory, 4 * start, last=start > 0)
        memory[:] = -1
    equal(subject.get(buffer).tolist(), NUMBERS.tolist(), "the values")


@check(area="transfers", since=62, number=110)
def parts_manager(subject: Subject) -> None:
    """Ask the manager of f32[8] and f32[4] -> 2 buffers, their sizes, the device."""
    transfer = Transfer(subject, [8], [4])
    equal(transfer.call("BufferCount"), 2, "the number of buffers")
    for index, nbytes in enumerate((32, 16)):
        size = transfer.call("BufferSize", buffer_index=index)
        expect(size >= nbytes, f"the size of buffer {index}: expected {nbytes}, found {size}")
    equal(transfer.call("Device"), subject.device, "the manager's device")
    transfer.call("AddMetadata", transfer_metadata={"what": "weights"})


@check(area="transfers", since=60, number=110)
def parts_buffers(subject: Subject) -> None:
    """Retrieve the pending buffers of f32[8] and f32[2,3] -> their dimensions and memory."""
    transfer, home = Transfer(subject, [8], [2, 3]), subject.default_memory
    for index, dims in enumerate(([8], [2, 3])):
        buffer = transfer.buffer(index)
        equal(subject.call("PJRT_Buffer_Dimensions", buffer=buffer), dims, "the dimensions")
        equal(subject.call("PJRT_Buffer_Memory", buffer=buffer), home, "the memory")


@check(area="transfers", since=60, number=110, seconds=5)
def parts_past_the_end(subject: Subject) -> None:
    """Send 8 bytes to the last 4, destroy the manager -> the part is refused, both return."""
    transfer = Transfer(subject, [8])
    size = transfer.call("BufferSize", buffer_index=0)
    expect_refusal(subject, lambda: transfer.send(0, NUMBERS[:2], size - 4), "a part past the end")
    transfer.end()  # This waits for ever if the plugin counts the refused part as pending.


@check(area="transfers", since=62, number=111)
def parts_of_a_failed_buffer(subject: Subject) -> None:
    """Fail one of two buffers, fill the other -> the first has the error, the other its values."""
    transfer = Transfer(subject, [8], [8])
    failed, filled = transfer.buffer(0), transfer.buffer(1)
    transfer.call("SetBufferError", buffer_index=0, **GIVEN_ERROR)
    transfer.send(1, NUMBERS, 0, last=True)
    event = subject.ready(failed)
    expect_given_error(subject, lambda: subject.await_(event), "awaiting the failed one")
    equal(subject.get(filled).tolist(), NUMBERS.tolist(), "the values of the other buffer")


@check(area="transfers", since=60, number=111)
def parts_abandoned(subject: Subject) -> None:
    """Destroy the manager before the last part -> the buffer becomes ready with an error."""
    transfer = Transfer(subject, [8])
    buffer = transfer.buffer(0)
    transfer.send(0, NUMBERS[:4], 0)
    transfer.end()
    expect_error(lambda: subject.await_(subject.ready(buffer)), what="awaiting an abandoned buffer")
    subject.usable()


@check(area="transfers", since=60, number=112)
def parts_with_layout(subject: Subject) -> None:
    """Send a column-major f32[2,3] as such -> its values."""
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


@check(area="transfers", since=83, number=112)
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
