"""Device memory: lent out by its address, mapped, and copied as raw bytes.

Owns what makes an address safe to give away: whatever lies there is kept until its user is done.
"""

from __future__ import annotations

import operator
from functools import partial
from typing import TYPE_CHECKING, Any

from pjrt_hub.errors import ClosedError
from pjrt_hub.running.array.host_array import address_of, as_bytes
from pjrt_hub.running.array.shape_spec import ShapeSpec
from pjrt_hub.running.buffer.dlpack import LENDING
from pjrt_hub.running.capi import callbacks, hotpath, irregular
from pjrt_hub.running.capi.handle import Closing
from pjrt_hub.running.device.event import Event
from pjrt_hub.running.device.promise import Promise

if TYPE_CHECKING:
    from pjrt_hub.running.buffer.handle import BufferHandle
    from pjrt_hub.running.device.device import DeviceClient

_FUTURE = "PJRT_Buffer_CopyRawToHostFuture_Callback_Args"


class ExternalReference(Closing):
    """A hold on a buffer's device memory (`PJRT_Buffer_IncreaseExternalReferenceCount`).

    While it is held, the memory stays through delete, donation and closing the client. It ends with
    `release`, at the end of a `with` block, or when the object dies.
    """

    __slots__ = ("_view",)
    __module__ = "pjrt_hub"

    def __init__(self, buffer: BufferHandle) -> None:
        """Wait for the buffer's value, and take hold of its memory.

        Args:
            buffer: a `Buffer`.

        Raises:
            PjrtError: the computation of the value failed.
            ClosedError: the buffer was deleted, donated or closed.
        """
        for function in LENDING:  # `_view` does not check that the plugin has these.
            buffer.client.api.require(function)
        self._view: hotpath.HostView | None = buffer._view(0)

    @property
    def pointer(self) -> int:
        """The address in device memory (`PJRT_Buffer_OpaqueDeviceMemoryDataPointer`).

        Raises:
            ClosedError: the reference was released.
        """
        if self._view is None:
            raise ClosedError("the external reference was released")
        return self._view.address

    def release(self) -> None:
        """Release the memory (`PJRT_Buffer_DecreaseExternalReferenceCount`)."""
        self._view = None

    def close(self) -> None:
        """Call `release`, as leaving a `with` block does."""
        self.release()


class DmaMapping(Closing, hotpath.Owned):
    """Host memory that devices reach directly (`PJRT_Client_DmaMap`), for faster transfers.

    It ends with `close`, a `with` block, or when it dies; the array is kept alive until then.
    """

    __slots__ = ("__weakref__",)
    __module__ = "pjrt_hub"

    def __init__(self, client: DeviceClient, array: Any) -> None:
        """Map the memory of an array.

        Args:
            client: the client whose devices reach the memory.
            array: a contiguous array; see `pjrt_hub.empty_aligned`.

        Raises:
            ValueError: there are no bytes, or they are not contiguous.
            UnimplementedError: the plugin has no such devices (the XLA CPU plugin).
        """
        memory = as_bytes(array)
        if not memory.nbytes:
            raise ValueError("there are no bytes to map")
        call, address = client.api.call, address_of(memory)
        with client._in_call():
            call("PJRT_Client_DmaMap", client=client.address, data=address, size=memory.nbytes)

            def unmap(_: object = memory) -> None:
                call("PJRT_Client_DmaUnmap", client=client.address, data=address)

            self._bind(client, unmap)

    def close(self) -> None:
        """Unmap the memory (`PJRT_Client_DmaUnmap`); may be called again."""
        self._release()


class RawCopy(Promise):
    """A raw copy to the host whose destination comes later (`PJRT_Buffer_CopyRawToHostFuture`).

    Attributes:
        ready: the event of the copy's end.
        nbytes: how many bytes the destination must have.
    """

    __slots__ = ("nbytes", "ready")
    __module__ = "pjrt_hub"

    def __init__(self, buffer: BufferHandle, offset: int = 0, size: int | None = None) -> None:
        """Begin a copy of bytes as they lie on the device, once the value is there.

        Args:
            buffer: a `Buffer`.
            offset: of the first byte on the device.
            size: in bytes; None takes the rest.

        Raises:
            ValueError: the bytes lie outside of `Buffer.on_device_nbytes`.
            UnsupportedByPluginError: the plugin is older than API 0.84.
        """
        offset, size = byte_range(buffer, offset, size)
        client, self.nbytes = buffer.client, size
        buffer.ready.wait()  # Before that, there may be no memory, and the call would crash.
        with client._in_call():
            given = buffer._ask(
                "PJRT_Buffer_CopyRawToHostFuture", offset=offset, transfer_size=size
            )
            self.ready = Event.of(client, given.event)
            answer = partial(
                irregular.answer, _FUTURE, given.future_ready_callback, given.callback_data
            )
            super().__init__(client, answer)

    def fulfill(self, destination: Any) -> None:
        """Set the memory to copy into, which is kept alive until `ready`.

        Args:
            destination: a writable contiguous array or buffer of `nbytes` bytes.

        Raises:
            ValueError: the destination is read-only, or has another size.
            ClosedError: a destination was given before, or the copy failed or was closed.
        """
        memory = writable(destination)
        if memory.nbytes != self.nbytes:
            raise ValueError(f"the destination has {memory.nbytes} bytes, not {self.nbytes}")
        callbacks.keep(self.client.api.address, self.ready.address, memory)
        self._answer(0, "", address_of(memory))


def copy_raw(buffer: BufferHandle, destination: Any, offset: int) -> Event:
    """Call `PJRT_Buffer_CopyRawToHost`."""
    callbacks.start()  # If the event is freed early, the dispatcher thread releases the memory.
    if offset == 0:
        copied = buffer._copy_raw(destination, Event)
        if copied is not None:
            return copied
    memory = writable(destination)
    start, size = byte_range(buffer, offset, memory.nbytes)
    buffer.ready.wait()  # Before that, there may be no memory, and the call would crash.
    with buffer.client._in_call():
        event = buffer._ask(
            "PJRT_Buffer_CopyRawToHost", dst=address_of(memory), offset=start, transfer_size=size
        )
        return Event.of(buffer.client, event, memory)


def byte_range(buffer: BufferHandle, offset: int, size: int | None) -> tuple[int, int]:
    """Check and return the offset and size of a part of a buffer; a size of None takes the rest."""
    whole = buffer.on_device_nbytes
    start = operator.index(offset)
    count = whole - start if size is None else operator.index(size)
    if start < 0 or count < 0 or start + count > whole:
        raise ValueError(f"{count} bytes at offset {start} lie outside of the buffer's {whole}")
    return start, count


def bitcast(buffer: BufferHandle, spec: ShapeSpec) -> Any:
    """Call `PJRT_Buffer_Bitcast`."""
    client = buffer.client
    own = ShapeSpec.of(buffer.shape, buffer.dtype, client.api.version)
    if buffer._dynamic:
        raise ValueError("some dimensions of the buffer are dynamic")
    if own.bits != spec.bits:
        raise ValueError(f"{own} has {own.bits} bits, {spec} has {spec.bits}")
    with client._in_call():
        address = buffer._ask(
            "PJRT_Buffer_Bitcast",
            element_type=spec.element.code,
            dims=spec.shape,
            device_layout=spec.wish,
        )
        return buffer._from_spec(client, address, spec, buffer.device)


def writable(destination: Any) -> Any:
    """Return the bytes of a copy's destination; ValueError if it is read-only."""
    memory = as_bytes(destination)
    if not memory.flags.writeable:
        raise ValueError("the destination is read-only")
    return memory
