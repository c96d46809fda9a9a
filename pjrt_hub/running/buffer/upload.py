"""Uploads: bytes of files put on devices, read once and copied as little as possible.

Owns the memory that they are read into: on the host the buffer's own, elsewhere a few parts that
are filled again while the device takes the others. Must not know what files mean.
"""

from __future__ import annotations

import operator
import os
from typing import Any

from pjrt_hub.errors import FileFormatError, UnsupportedByPluginError
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.array.host_array import as_bytes, empty_aligned
from pjrt_hub.running.array.shape_spec import ShapeSpec
from pjrt_hub.running.buffer import placement
from pjrt_hub.running.buffer.buffer import Buffer, HostBufferSemantics
from pjrt_hub.running.buffer.transfer import Transfer
from pjrt_hub.running.capi import hotpath, irregular
from pjrt_hub.running.device.device import Device, DeviceClient, Memory, choose_place
from pjrt_hub.running.device.event import Event

#: The size in bytes and the number of the parts held at once for a device with its own memory.
PART_NBYTES, PARTS = 8 << 20, 3
#: The size in bytes of one read; a system call reads less than 2 GiB.
_READ_NBYTES = 1 << 30


def from_file(
    client: DeviceClient,
    file: str | os.PathLike[str] | int,
    spec: ShapeSpec,
    offset: int,
    device: Device | None = None,
    memory: Memory | None = None,
) -> Buffer:
    """Serve `Client.buffer_from_file`; `file` may also be a descriptor, whose position stays."""
    if spec.element.bits < 8:
        raise TypeError(f"{spec} has elements that share bytes, which lie otherwise in files")
    start = operator.index(offset)
    if start < 0:
        raise ValueError(f"the offset {start} is negative")
    try:
        if isinstance(file, int):
            return _read(client, file, spec, start, device, memory)
        with open(file, "rb") as opened:
            return _read(client, opened.fileno(), spec, start, device, memory)
    except EOFError as exc:
        raise FileFormatError(
            f"{file} is too short for {spec} at byte {start}: {exc}",
            path=str(file),
            hint="check the shape, the dtype and the offset, or make the file again",
        ) from None


def _read(
    client: DeviceClient,
    fd: int,
    spec: ShapeSpec,
    start: int,
    device: Device | None,
    memory: Memory | None,
) -> Buffer:
    choose_place(client, device, memory)  # This refuses a wrong place before anything is read.
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, start, spec.nbytes, os.POSIX_FADV_SEQUENTIAL)
    if not client._is_on_host and spec.nbytes > PART_NBYTES:
        taken = in_parts(client, fd, spec, start, device, memory)
        if taken is not None:
            return taken
    dtype = dtypes.numpy_dtype(spec.element.code)
    staging: Any = hotpath.Staging.of(spec.nbytes) if spec.nbytes else None
    if staging is None:  # Huge pages are missing or of no use.
        array = empty_aligned(spec.shape, dtype)
    else:
        import numpy

        array = numpy.ndarray(spec.shape, dtype, staging)
    fill(array, fd, start)
    owned = HostBufferSemantics.MUTABLE_ZERO_COPY  # Nothing else uses this memory.
    return placement.from_host(client, array, None, (device, memory), owned, None)


def in_parts(
    client: DeviceClient,
    fd: int,
    spec: ShapeSpec,
    start: int,
    device: Device | None = None,
    memory: Memory | None = None,
    *,
    part_nbytes: int = PART_NBYTES,
) -> Buffer | None:
    """Read each part of a file while the device copies earlier ones; None if the plugin cannot."""
    if memory is None:
        memory = (device or client.devices[0]).default_memory
    try:
        transfer = Transfer(client, [(spec.shape, spec.element.name)], memory=memory)
    except UnsupportedByPluginError:
        return None
    with transfer:
        buffer = transfer.retrieve_buffer(0)
        if transfer.buffer_size(0) != spec.nbytes or not irregular.is_plain(
            client.api, buffer.address, len(spec.shape)
        ):
            return None
        ring: list[tuple[Any, Event | None]] = [
            (empty_aligned(part_nbytes, "uint8"), None) for _ in range(PARTS)
        ]
        for number, position in enumerate(range(0, spec.nbytes, part_nbytes)):
            array, copied = ring[number % PARTS]
            if copied is not None:
                copied.wait()
            part = array[: spec.nbytes - position]
            fill(part, fd, start + position)
            is_last = position + part.nbytes == spec.nbytes
            event = transfer.transfer_data(0, part, offset=position, is_last=is_last)
            ring[number % PARTS] = array, event
        for _, copied in ring:
            if copied is not None:
                copied.wait()
    return buffer


def fill(array: Any, fd: int, start: int) -> None:
    """Fill a contiguous array from byte `start` of a file on; EOFError if the file is too short."""
    data: Any = as_bytes(array)
    left = memoryview(data)
    while left.nbytes:
        count = os.preadv(fd, [left[:_READ_NBYTES]], start)
        if count == 0:
            raise EOFError(f"{left.nbytes} bytes are missing")
        left, start = left[count:], start + count
