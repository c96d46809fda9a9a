"""Transfers: buffers that are filled from the host in parts, in any order.

Checks every index, range and order itself, because plugins write where they are told to.
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import ClosedError, PjrtError
from pjrt_hub.running.array import dtypes, memory_layout
from pjrt_hub.running.array.host_array import address_of, as_bytes, refuse_mask
from pjrt_hub.running.array.shape_spec import ShapeSpec
from pjrt_hub.running.buffer.buffer import Buffer
from pjrt_hub.running.capi import hotpath, irregular
from pjrt_hub.running.capi.call import Struct
from pjrt_hub.running.capi.handle import Closing
from pjrt_hub.running.device.device import (
    Device,
    DeviceClient,
    Memory,
    choose_place,
    default_memory,
    device_at,
    refuse_pickle,
)
from pjrt_hub.running.device.event import Event, event_of_work
from pjrt_hub.running.device.promise import read_error


class Transfer(Closing, hotpath.Owned):
    """A `PJRT_AsyncHostToDeviceTransferManager`: several buffers on their way to one memory.

    Buffers can be retrieved and used before their data come. Closing or dropping the transfer fails
    those that are not complete. Also a context manager. Its methods may be called by many threads;
    an index that no buffer has is an IndexError.

    Attributes:
        client: the client that it belongs to.
        closed: whether it was closed, itself or with its client.
    """

    __module__ = "pjrt_hub"
    client: DeviceClient

    __slots__ = (
        "__weakref__",
        "_early",
        "_lock",
        "_parts",
        "_place",
        "_retrieved",
        "_scattered",
        "_specs",
        "address",
    )

    def __init__(
        self, client: DeviceClient, shape_specs: Iterable[Any], *, memory: Memory | None = None
    ) -> None:
        """Make the buffers (`PJRT_Client_CreateBuffersForAsyncHostToDevice`).

        Args:
            client: the client that they belong to.
            shape_specs: (shape, dtype) for each, or anything with `.shape` and `.dtype`; or
                (shape, dtype, layout) for all, minor_to_major: the parts must then have their
                bytes in that order.
            memory: where they go; by default the first device's own.

        Raises:
            ValueError: there is no spec, a shape is impossible, or only some have a layout.
            UnsupportedByPluginError: the plugin is older than API 0.60, or ignores layouts.
        """
        self._specs = [ShapeSpec.like(spec, client.api.version) for spec in shape_specs]
        if not self._specs:
            raise ValueError("a transfer needs one shape spec at least")
        wishes = [spec.layout for spec in self._specs if spec.layout is not None]
        if len(wishes) not in (0, len(self._specs)):
            raise ValueError("the shape specs must have layouts all or none")
        given = [spec.wish for spec in self._specs]
        layouts = [
            Struct("PJRT_Buffer_MemoryLayout", wish, client.api.version) if wish else None
            for wish in (given if any(given) else ())
        ]
        device, memory_address = choose_place(client, None, memory or default_memory(client))
        self._place = device
        self._lock = Lock()
        self._retrieved = [False] * len(self._specs)
        #: For each buffer, whether its bytes must come in the order of its tiles; None until asked.
        self._scattered: list[bool | None] = [None] * len(self._specs)
        #: For each buffer, the bytes that have come, as sorted (start, end); None when complete.
        self._parts: list[list[tuple[int, int]] | None] = [[] for _ in self._specs]
        with client._in_call():
            self.address: int = client.api.call(
                "PJRT_Client_CreateBuffersForAsyncHostToDevice",
                client=client.address,
                shape_specs=[
                    {"dims": spec.shape, "element_type": spec.element.code} for spec in self._specs
                ],
                device_layouts=[layout.address if layout else 0 for layout in layouts],
                memory=memory_address,
            )
            destroy = partial(client.api.call, "PJRT_AsyncHostToDeviceTransferManager_Destroy")
            self._bind(client, partial(destroy, transfer_manager=self.address))
            # A plugin that ignores layouts is detected here, before any byte is transferred.
            self._early = {index: self._retrieve(index) for index in range(len(wishes))}

    @property
    def buffer_count(self) -> int:
        """How many buffers it fills (`..._BufferCount`)."""
        return self._call("PJRT_AsyncHostToDeviceTransferManager_BufferCount")

    @property
    def device(self) -> Device:
        """The device that it copies to (`..._Device`)."""
        return device_at(self.client, self._call("PJRT_AsyncHostToDeviceTransferManager_Device"))

    def buffer_size(self, buffer_index: int) -> int:
        """Return the bytes of a buffer on the device (`..._BufferSize`).

        Args:
            buffer_index: from 0, in the order of the shape specs.
        """
        index = self._index(buffer_index)
        return self._call("PJRT_AsyncHostToDeviceTransferManager_BufferSize", buffer_index=index)

    def retrieve_buffer(self, buffer_index: int) -> Buffer:
        """Return a buffer, whether its data have arrived or not (`..._RetrieveBuffer`).

        Args:
            buffer_index: from 0, in the order of the shape specs.

        Raises:
            ValueError: the buffer was retrieved before, which works only once.
        """
        index = self._index(buffer_index)
        with self.client._in_call(), self._lock:
            if self._retrieved[index]:
                raise ValueError(f"buffer {index} was retrieved before")
            early = self._early.pop(index, None)
            buffer = self._retrieve(index) if early is None else early
            self._retrieved[index] = True
            return buffer

    def transfer_data(
        self, buffer_index: int, data: Any, *, offset: int = 0, is_last: bool = False
    ) -> Event:
        """Copy a part of one buffer's bytes to the device (`..._TransferData`).

        The parts of a buffer come in any order and must not overlap.

        Args:
            buffer_index: from 0, in the order of the shape specs.
            data: bytes as the device has them, or a contiguous array of the buffer's dtype or of
                uint8, in the order of the buffer's layout. It must not change until the event is
                ready; it is kept alive until then.
            offset: where they go, in bytes.
            is_last: whether this part completes the buffer.

        Returns:
            The event of the copy's end.

        Raises:
            TypeError: the array has another dtype.
            ValueError: the part lies outside, overlaps another, or is the last with bytes missing;
                or the buffer lies in tiles, for which `data` must be plain bytes.
            ClosedError: the buffer is complete, or the transfer closed.
        """
        index = self._index(buffer_index)
        source = as_bytes(data)
        self._check_dtype(index, data)
        self._check_rows(index, data)
        size = self.buffer_size(index)
        start = operator.index(offset)
        end = start + source.nbytes
        if not 0 <= start <= end <= size:
            raise ValueError(
                f"{source.nbytes} bytes at offset {start} do not fit into the {size} bytes of "
                f"buffer {index}"
            )
        with self.client._in_call(), self._lock:
            parts = self._open_parts(index)
            place = bisect.bisect(parts, (start, end))
            neighbours = parts[max(place - 1, 0) : place + 1]
            if any(start < other_end and other < end for other, other_end in neighbours):
                raise ValueError(f"bytes of {start} to {end} of buffer {index} came before")
            missing = size - sum(b - a for a, b in parts) - source.nbytes
            if is_last and missing:
                raise ValueError(f"the last part of buffer {index} leaves {missing} bytes missing")
            event = self._ask(
                "PJRT_AsyncHostToDeviceTransferManager_TransferData",
                buffer_index=index,
                data=address_of(source),
                offset=start,
                transfer_size=source.nbytes,
                is_last_transfer=is_last,
            )
            if is_last:
                self._parts[index] = None
            elif source.nbytes:
                parts.insert(place, (start, end))
            return event_of_work(self.client, event, source)

    def transfer_literal(self, buffer_index: int, array: Any) -> Event:
        """Copy the whole of one buffer and complete it (`..._TransferLiteral`, API 0.83).

        Args:
            buffer_index: from 0, in the order of the shape specs.
            array: of the buffer's shape and dtype, contiguous by rows or by columns, which the
                plugin brings into the buffer's layout; as for `transfer_data`.

        Raises:
            ValueError: the shape differs, or parts of the buffer came before.
            UnsupportedByPluginError: the plugin is older.
        """
        import numpy

        index = self._index(buffer_index)
        spec = self._specs[index]
        refuse_mask(array)
        array = numpy.asarray(array)
        self._check_dtype(index, array)
        if array.shape != spec.shape:
            raise ValueError(f"buffer {index} is {spec}, the array has the shape {array.shape}")
        by_columns = array.flags.f_contiguous and not array.flags.c_contiguous
        source = as_bytes(array.T if by_columns else array)
        rows = memory_layout.row_major(array.ndim)
        order = rows[::-1] if by_columns else rows  # Some plugins crash without a layout.
        with self.client._in_call(), self._lock:
            if self._open_parts(index):
                raise ValueError(f"parts of buffer {index} came before: a literal is a whole")
            event = self._ask(
                "PJRT_AsyncHostToDeviceTransferManager_TransferLiteral",
                buffer_index=index,
                data=address_of(source),
                shape_dims=spec.shape,
                shape_element_type=spec.element.code,
                shape_layout=memory_layout.members(order),
            )
            self._parts[index] = None
            return event_of_work(self.client, event, source)

    def set_buffer_error(self, buffer_index: int, error: PjrtError) -> None:
        """Make one buffer fail with an error's code and message (`..._SetBufferError`).

        Args:
            buffer_index: from 0, in the order of the shape specs.
            error: its code and message are used.

        Raises:
            TypeError: the error is no PjrtError.
            ClosedError: the buffer is complete, or the transfer closed.
        """
        index = self._index(buffer_index)
        code, message = read_error(error)
        with self.client._in_call(), self._lock:
            self._open_parts(index)
            self._ask(
                "PJRT_AsyncHostToDeviceTransferManager_SetBufferError",
                buffer_index=index,
                error_code=code,
                error_message=message,
            )
            self._parts[index] = None

    def add_metadata(self, metadata: Mapping[str, str]) -> None:
        """Name the transfer for profilers (`..._AddMetadata`).

        Args:
            metadata: text by name.

        Raises:
            TypeError: a value is not a str, which would end the process inside some plugins.
        """
        if not isinstance(metadata, Mapping):
            raise TypeError(f"metadata are {metadata!r}, not a mapping of text")
        for name, value in metadata.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"metadata are text by name, not {name!r}: {value!r}")
        self._call(
            "PJRT_AsyncHostToDeviceTransferManager_AddMetadata", transfer_metadata=dict(metadata)
        )

    def close(self) -> None:
        """Wait for running copies and fail incomplete buffers; may be called again."""
        if not self.closed:
            with self._lock:
                self._release()

    def _retrieve(self, index: int) -> Buffer:
        address = self._ask(
            "PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer", buffer_index=index
        )
        buffer = Buffer._from_spec(self.client, address, self._specs[index], self._place)
        buffer._order()
        self._scattered[index] = buffer._scattered and not irregular.is_plain(
            self.client.api, address, buffer.ndim
        )
        return buffer

    __reduce__ = refuse_pickle

    def _index(self, buffer_index: int) -> int:
        index = operator.index(buffer_index)
        if not 0 <= index < len(self._specs):
            raise IndexError(f"there is no buffer {index}, of {len(self._specs)} from 0")
        return index

    def _check_dtype(self, index: int, data: Any) -> None:
        import numpy

        dtype = getattr(data, "dtype", None)
        if dtype is None or dtype == numpy.uint8:
            return
        spec = self._specs[index]
        if dtype != dtypes.numpy_dtype(spec.element.code):
            raise TypeError(f"buffer {index} is {spec}, the array has the dtype {dtype}")

    def _check_rows(self, index: int, data: Any) -> None:
        """Refuse an array whose elements would land in the wrong places of the buffer."""
        if getattr(data, "ndim", 1) == 1 and getattr(data, "dtype", "uint8") == "uint8":
            return  # Plain bytes are already in the buffer's own order.
        with self.client._in_call(), self._lock:
            self._open_parts(index)
            if self._scattered[index] is None:
                self._early[index] = self._retrieve(index)
            if self._scattered[index]:
                raise ValueError(
                    f"buffer {index} is {self._specs[index]} in tiles, and the array has rows\n\n"
                    "hint: give it whole to transfer_literal() or client.buffer_from_host()"
                )

    def _open_parts(self, index: int) -> list[tuple[int, int]]:
        self._require_open()
        parts = self._parts[index]
        if parts is None:
            raise ClosedError(f"buffer {index} is complete")
        return parts

    def _call(self, function: str, **inputs: Any) -> Any:
        with self.client._in_call(), self._lock:
            return self._ask(function, **inputs)

    def _ask(self, function: str, **inputs: Any) -> Any:
        self._require_open()
        call = self.client.api.call
        return call(function, transfer_manager=self.address, **inputs)

    def __repr__(self) -> str:
        if self.closed:
            return "<Transfer closed>"
        return f"<Transfer of {', '.join(map(str, self._specs))} to {self._place}>"
