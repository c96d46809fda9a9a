"""Raw buffers: the bytes of a buffer's device memory, copied both ways (RawBuffer).

Must not know what the bytes mean: tiles and packed elements are as the device has them.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from pjrt_hub.running.array.host_array import address_of, as_bytes
from pjrt_hub.running.buffer.device_memory import await_memory, writable
from pjrt_hub.running.capi import callbacks, hotpath
from pjrt_hub.running.capi.handle import Closing
from pjrt_hub.running.device.device import memory_at
from pjrt_hub.running.device.event import Event

if TYPE_CHECKING:
    from pjrt_hub.running.buffer.buffer import Buffer
    from pjrt_hub.running.device.device import DeviceClient, Memory


class RawBuffer(Closing, hotpath.Owned):
    """A `PJRT_RawBuffer`: an alias of a buffer's memory, which it keeps alive.

    Ends with `close`, a `with` block, its client, or when it dies.

    Attributes:
        client: the buffer's.
    """

    __slots__ = ("__weakref__", "address", "client")

    def __init__(self, buffer: Buffer) -> None:
        """Makes the alias (`PJRT_RawBuffer_CreateRawAliasOfBuffer`), once the memory is there.

        Raises:
            UnsupportedByPluginError: the plugin has no raw buffers (all but libtpu).
            ClosedError: the buffer was deleted, donated or closed.
        """
        self.client: DeviceClient = buffer.client
        call = buffer.client.api.extension("RawBuffer").call
        await_memory(buffer)
        with self.client.in_call():
            buffer.require_open()
            address = call("PJRT_RawBuffer_CreateRawAliasOfBuffer", buffer=buffer.address)
            self.address: int = address
            self._bind(self.client, lambda: call("PJRT_RawBuffer_Destroy", buffer=address))

    @property
    def on_device_nbytes(self) -> int:
        """Bytes on the device (`PJRT_RawBuffer_GetOnDeviceSizeInBytes`)."""
        return self._ask("PJRT_RawBuffer_GetOnDeviceSizeInBytes")

    @property
    def memory(self) -> Memory:
        """The memory that it lies in (`PJRT_RawBuffer_GetMemorySpace`)."""
        return memory_at(self.client, self._ask("PJRT_RawBuffer_GetMemorySpace"))

    @property
    def host_pointer(self) -> int | None:
        """The address on the host; None if the host cannot see it.

        The C function is `PJRT_RawBuffer_GetHostPointer`; the address ends with this object.
        """
        return self._ask("PJRT_RawBuffer_GetHostPointer") or None

    def copy_raw_host_to_device(self, source: Any, offset: int = 0) -> Event:
        """Overwrite a part of it (`PJRT_RawBuffer_CopyRawHostToDevice`).

        Args:
            source: a contiguous array or buffer, kept alive until the event is ready.
            offset: in bytes.

        Raises:
            ValueError: the part lies outside of it.
            ClosedError: it is closed.
        """
        memory = as_bytes(source)
        return self._copy("PJRT_RawBuffer_CopyRawHostToDevice", "src", memory, offset)

    def copy_raw_device_to_host(self, destination: Any, offset: int = 0) -> Event:
        """Read a part of it (`PJRT_RawBuffer_CopyRawDeviceToHost`).

        Args:
            destination: a writable contiguous array or buffer, kept alive until the event is ready.
            offset: in bytes.

        Raises:
            ValueError: the part lies outside of it, or the destination is read-only.
            ClosedError: it is closed.
        """
        memory = writable(destination)
        return self._copy("PJRT_RawBuffer_CopyRawDeviceToHost", "dst", memory, offset)

    def close(self) -> None:
        """Release the memory (`PJRT_RawBuffer_Destroy`); may be called again."""
        self._release()

    def _copy(self, name: str, side: str, memory: Any, offset: int) -> Event:
        start, whole = operator.index(offset), self.on_device_nbytes
        if start < 0 or start + memory.nbytes > whole:
            raise ValueError(f"{memory.nbytes} bytes at {start} lie outside of the {whole} bytes")
        with self.client.in_call():
            given = {side: address_of(memory), "transfer_size": memory.nbytes}  # in this order
            event = self._ask(name, offset=start, **given)
            callbacks.start()  # the event's end may be before that of the copy
            return Event.of(self.client, event, memory)

    def _ask(self, name: str, **inputs: Any) -> Any:
        with self.client.in_call():
            self.require_open()
            call = self.client.api.extension("RawBuffer").call
            return call(name, buffer=self.address, **inputs)
