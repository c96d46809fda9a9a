"""Host transfers: what a running program sends to the host and receives from it.

Owns what Python functions see of this and the checks of a stream; the callbacks that a plugin
calls are in `native/host_transfer.c`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pjrt_hub.base.fork import Lock
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.array.host_array import address_of, as_bytes
from pjrt_hub.running.capi import callbacks, custom_calls, hotpath, irregular, status
from pjrt_hub.running.capi.call import Struct
from pjrt_hub.running.device.event import Event, event_of_work

if TYPE_CHECKING:
    import numpy

    from pjrt_hub.running.capi.handle import ClientHandle

    #: The program calls this with a chunk of the value in row-major order, the size of the whole
    #: value in bytes, and whether the chunk is the last. An exception fails the program.
    SendCallback = Callable[[bytes, int, bool], object]
    #: The program calls this with the stream to fill. An exception fails the program.
    RecvCallback = Callable[["CopyToDeviceStream"], object]
    #: This gets a copy of the value, the replica, the partition, and the plugin's number for it.
    OutputCallback = Callable[[numpy.ndarray[Any, Any], int, int, int], object]

_STREAM_FUNCTIONS = ("Destroy", "AddChunk", "TotalBytes", "GranuleSize", "CurrentBytes")


class CopyToDeviceStream(hotpath.Owned):
    """A `PJRT_CopyToDeviceStream`: a value on its way into a running program, in chunks.

    A receive callback gets the stream and fills it, at once or later, from any thread. The program
    fails if the stream is dropped, or closed with its client, before it is full.
    """

    client: ClientHandle  # The client whose program receives.
    address: int
    _added: int
    _lock: Lock

    __slots__ = ("__weakref__", "_added", "_lock", "address")

    @classmethod
    def of(cls, client: ClientHandle, address: int) -> CopyToDeviceStream:
        stream = cls()
        stream.address = address
        stream._added = 0
        stream._lock = Lock()
        stream._bind(client, partial(hotpath.host_transfer_end, client.api.address, address))
        return stream

    @property
    def total_bytes(self) -> int:
        """The size of the value in bytes (`PJRT_CopyToDeviceStream_TotalBytes`)."""
        return self._ask("PJRT_CopyToDeviceStream_TotalBytes")

    @property
    def granule_size(self) -> int:
        """The unit of a chunk's size, in bytes (`PJRT_CopyToDeviceStream_GranuleSize`)."""
        return self._ask("PJRT_CopyToDeviceStream_GranuleSize")

    @property
    def current_bytes(self) -> int:
        """The number of bytes added so far (`PJRT_CopyToDeviceStream_CurrentBytes`)."""
        return self._ask("PJRT_CopyToDeviceStream_CurrentBytes")

    def add_chunk(self, data: Any) -> Event:
        """Add the next bytes of the value, without waiting (`PJRT_CopyToDeviceStream_AddChunk`).

        `data` is bytes or a contiguous array, in row-major order, which must not change until the
        event is ready and is kept alive for as long as the plugin needs it. ValueError: its size is
        not a multiple of the granule size, or more than is missing.
        """
        memory = as_bytes(data)
        with self.client._in_call(), self._lock:
            self._require_open()
            missing, granule = self.total_bytes - self._added, self.granule_size
            if memory.nbytes > missing:
                raise ValueError(f"{memory.nbytes} bytes are given, {missing} are missing")
            if memory.nbytes % max(granule, 1):
                raise ValueError(f"{memory.nbytes} bytes are given, no multiple of {granule}")
            deleter, argument = callbacks.deleter(lambda: None, memory)
            chunk = {
                "data": address_of(memory),
                "size": memory.nbytes,
                "deleter": deleter,
                "deleter_arg": argument,
            }
            address = self.client.api.call(
                "PJRT_CopyToDeviceStream_AddChunk", stream=self.address, chunk=chunk
            )
            self._added += memory.nbytes
            return event_of_work(self.client, address, self)

    def cancel(self) -> None:
        """Close the stream; the program fails if it was not full. May be called again."""
        with self._lock:
            self._release()

    def _ask(self, function: str) -> int:
        with self.client._in_call():
            self._require_open()
            return int(self.client.api.call(function, stream=self.address))

    def __repr__(self) -> str:
        if self.closed:
            return "<CopyToDeviceStream closed>"
        return f"<CopyToDeviceStream {self.current_bytes} of {self.total_bytes} bytes>"


class HostTransfers:
    """The callbacks of one execution, as a plugin calls them; lives until the execution is done."""

    def __init__(self, client: ClientHandle) -> None:
        self._client = client
        self._kept: list[object] = []

    def exchange(self, struct: Struct, way: str, rows: Sequence[Mapping[int, Any]]) -> None:
        """Put send ("send") or receive ("recv") callbacks into options, by device and channel."""
        make: Callable[[int, Any], Callable[..., object]] = _sender
        if way == "recv":
            for each in _STREAM_FUNCTIONS:
                self._client.api.require(f"PJRT_CopyToDeviceStream_{each}")
            make = partial(_receiver, self._client)
        made = [
            [(each, *self._arguments_for(way, make(each, row[each]))) for each in row]
            for row in rows
        ]
        irregular.put_rows(struct, way, made)

    def outputs(self, given: Mapping[int, tuple[OutputCallback, int]]) -> list[dict[str, int]]:
        """Return HLO output callbacks, given by their id, as members of execute options."""
        members = []
        for callback_id, (callback, num_operands) in given.items():
            user_arg, function = self._arguments_for("output", _viewer(callback))
            members.append({"user_arg": user_arg, "callback": function})
            members[-1] |= {"callback_id": callback_id, "num_operands": num_operands}
        return members

    def _arguments_for(self, way: str, function: Callable[..., object]) -> tuple[int, int]:
        """Return what C is given for a function: the user_arg and the address that takes it."""
        callbacks.start()  # The dispatcher thread finishes a close that begins in a callback.
        kept, user_arg, *functions = hotpath.host_transfer(self._client.api.address, function)
        self._kept.append(kept)
        return user_arg, functions[("send", "recv", "output").index(way)]


# C calls what the next functions return. A sender returns None or (code, text); it never raises.


def _sender(channel: int, callback: SendCallback) -> Callable[..., object]:
    def send(chunk: bytes, total: int, done: bool) -> object:
        try:
            callback(chunk, total, done)
        except BaseException as exc:
            return status.failure(exc, f"the send callback of channel {channel}", depth=1)
        return None

    return send


def _receiver(client: ClientHandle, channel: int, callback: RecvCallback) -> Callable[..., object]:
    def receive(address: int) -> None:
        try:
            stream = CopyToDeviceStream.of(client, address)
        except BaseException:
            hotpath.host_transfer_end(client.api.address, address)
            raise
        try:
            if client.closed:  # The client may have been closed before it knew the stream.
                stream.cancel()
            else:
                callback(stream)
        except BaseException as exc:
            stream.cancel()
            exc.add_note(f"in the receive callback of channel {channel}; the program fails")
            raise

    return receive


def _viewer(callback: OutputCallback) -> Callable[..., object]:
    def output(
        address: int, shape: tuple[int, ...], dtype: int, replica: int, partition: int, number: int
    ) -> None:
        import numpy

        kind = dtypes.numpy_dtype(dtype)
        nbytes = math.prod(shape) * kind.itemsize
        data = bytearray(custom_calls.memory(address, nbytes)) if nbytes else bytearray()
        callback(numpy.ndarray(shape, kind, data), replica, partition, number)

    return output
