"""Memory descriptions: the kinds of memory of devices that need not be there.

From the extension MemoryDescriptions; the memories of real devices are `Device.memories`.
"""

from __future__ import annotations

from typing import NamedTuple

from pjrt_hub.running.capi.handle import Handle
from pjrt_hub.running.device.device import Device, DeviceClient, DeviceDescription


class MemoryDescription(NamedTuple):
    """A kind of memory of a device (`PJRT_MemoryDescription`).

    Attributes:
        kind: "device", "pinned_host", "unpinned_host", ...
        kind_id: the plugin's number of the kind.
        is_default: whether buffers go there by default.
    """

    kind: str
    kind_id: int
    is_default: bool


def memory_descriptions(
    owner: DeviceClient | Handle, device: Device | DeviceDescription
) -> tuple[MemoryDescription, ...]:
    """Return a device's kinds of memory (`PJRT_DeviceDescription_MemoryDescriptions`).

    Args:
        owner: the client or topology that `device` belongs to.
        device: a device of the client, or a device description of the topology.

    Returns:
        An empty tuple on plugins that describe none (the XLA CPU plugin).

    Raises:
        ValueError: the device is another owner's.
        UnsupportedByPluginError: the plugin has no such extension.
    """
    if device.owner is not owner:
        raise ValueError(f"{device!r} does not belong to {owner!r}")
    with owner._in_call():
        call = owner.api.extension("MemoryDescriptions").call
        found = call(
            "PJRT_DeviceDescription_MemoryDescriptions",
            device_description=device.description_address,
        )
        kinds = [
            call("PJRT_MemoryDescription_Kind", memory_description=each)
            for each in found.memory_descriptions
        ]
    return tuple(
        MemoryDescription(each.kind.decode(), each.kind_id, index == found.default_memory_index)
        for index, each in enumerate(kinds)
    )
