"""Streams: ordering a platform's own stream after a buffer (extension Stream).

Streams are the platform's handles (a `CUstream` as an int); they are borrowed, never freed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pjrt_hub.errors import ClosedError

if TYPE_CHECKING:
    from pjrt_hub.running.buffer.buffer import Buffer
    from pjrt_hub.running.device.device import Device


def stream_for_external_ready_events(device: Device) -> int:
    """Return the stream for other libraries' events on a device.

    The C function is `PJRT_Get_Stream_For_External_Ready_Events`.

    Args:
        device: one of the client's.

    Raises:
        UnsupportedByPluginError: the plugin has no streams.
    """
    client = device.client
    with client.in_call():
        call = client.api.extension("Stream").call
        return int(call("PJRT_Get_Stream_For_External_Ready_Events", device=device.address))


def wait_until_ready_on_stream(buffer: Buffer, stream: int) -> None:
    """Make a stream wait for a buffer's value, without waiting here.

    The C function is `PJRT_Wait_Until_Buffer_Ready_On_Stream`.

    Args:
        buffer: its value may still be on the way.
        stream: of the buffer's device: the platform's handle, which is not checked.

    Raises:
        TypeError: the stream is not an int.
        UnsupportedByPluginError: the plugin has no streams.
        ClosedError: the buffer was deleted, donated or closed.
    """
    if not isinstance(stream, int):
        raise TypeError(f"the stream is {stream!r}, not an int")
    buffer.require_open()
    if buffer.is_deleted:
        raise ClosedError("the buffer was deleted or donated")
    with buffer.client.in_call():
        buffer.client.api.extension("Stream").call(
            "PJRT_Wait_Until_Buffer_Ready_On_Stream", stream=stream, buffer=buffer.address
        )
