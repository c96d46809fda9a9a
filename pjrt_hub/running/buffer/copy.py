"""Copies through the host: to another client, and of layouts that a plugin copies wrongly.

Owns which buffers cannot be copied this way, and the messages. Must not import `buffer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pjrt_hub.errors import UnimplementedError, UnsupportedByPluginError
from pjrt_hub.running.device.device import Device, Memory

if TYPE_CHECKING:
    from pjrt_hub.running.buffer.handle import BufferHandle


def copy_through_host(buffer: BufferHandle, place: Device | Memory) -> Any:
    """Wait for the value and put it on a device or memory of any client, in the same layout."""
    if why_not := obstacle(buffer):
        raise ValueError(why_not)
    where = {"device" if isinstance(place, Device) else "memory": place}
    return place.client.buffer_from_host(buffer.to_numpy(), layout=buffer._order(), **where)


def copies_layouts(buffer: BufferHandle) -> bool:
    """Tell whether the plugin copies arrays right that are not row-major; try it once per client.

    XLA of PJRT API 0.106 gives the copy the right layout and mixes up its values.
    """
    client: Any = buffer.client  # This is a `Client`, which this module may not import.
    if client._copies_layouts is None:
        import numpy

        six = numpy.arange(6, dtype=numpy.uint8).reshape(2, 3)
        try:
            probe = client.buffer_from_host(six, layout=(0, 1))
        except (UnimplementedError, UnsupportedByPluginError):
            right = True  # No such buffer can be made, so none is copied wrongly.
        else:
            right = numpy.array_equal(probe._copy(probe.device).to_numpy(), six)
        client._copies_layouts = right
    return bool(client._copies_layouts)


def obstacle(buffer: BufferHandle) -> str:
    """Return why the buffer cannot be copied through the host, or an empty string."""
    if not buffer._dynamic:
        return ""
    return (
        f"the dimensions {buffer.dynamic_dimensions} of the buffer are dynamic, and a copy on "
        "another client cannot have such\n\n"
        "hint: client.buffer_from_host(numpy.asarray(buffer)) makes one without any"
    )
