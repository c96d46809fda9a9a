"""Devices and memories (layer 2): where buffers live and programs run.

Both are borrowed from their client: they are views that end with it and are never freed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pjrt_hub.runtime import display

if TYPE_CHECKING:
    from pjrt_hub.runtime.client import Client


class Device:
    """A `PJRT_Device`.

    Attributes:
        client: the client that it belongs to.
        id: unique among the client's devices, of all processes (`PJRT_DeviceDescription_Id`).
    """

    def __init__(self, client: Client, address: int) -> None:
        self.client = client
        self._address = address
        self._description = client._call("PJRT_Device_GetDescription", device=address)
        # Read at once, because messages name devices after their client was closed, too.
        self.id = int(self._describe("PJRT_DeviceDescription_Id"))

    @cached_property
    def kind(self) -> str:
        """The vendor's name for it, "NVIDIA H100 80GB HBM3" (`PJRT_DeviceDescription_Kind`)."""
        return str(self._describe("PJRT_DeviceDescription_Kind").decode())

    @cached_property
    def process_index(self) -> int:
        """The process that it belongs to (`PJRT_DeviceDescription_ProcessIndex`)."""
        return int(self._describe("PJRT_DeviceDescription_ProcessIndex"))

    @cached_property
    def local_hardware_id(self) -> int:
        """Its number on this machine, -1 where it has none (`PJRT_Device_LocalHardwareId`)."""
        return int(self._ask("PJRT_Device_LocalHardwareId"))

    @cached_property
    def is_addressable(self) -> bool:
        """Whether this process can use it (`PJRT_Device_IsAddressable`)."""
        return bool(self._ask("PJRT_Device_IsAddressable"))

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """What the vendor says of it (`PJRT_DeviceDescription_Attributes`)."""
        attributes: Mapping[str, Any] = self._describe("PJRT_DeviceDescription_Attributes")
        return attributes

    @cached_property
    def memories(self) -> tuple[Memory, ...]:
        """The memories that it can address (`PJRT_Device_AddressableMemories`)."""
        return tuple(
            self.client._memory(address) for address in self._ask("PJRT_Device_AddressableMemories")
        )

    @cached_property
    def default_memory(self) -> Memory:
        """Where buffers go if nobody says (`PJRT_Device_DefaultMemory`)."""
        return self.client._memory(self._ask("PJRT_Device_DefaultMemory"))

    def memory_stats(self) -> dict[str, int]:
        """Bytes in use and limits, those that the plugin counts (`PJRT_Device_MemoryStats`).

        Raises:
            UnimplementedError: the plugin does not count (the XLA CPU plugin).
        """
        stats = vars(self._ask("PJRT_Device_MemoryStats"))
        return {
            name: value
            for name, value in stats.items()
            if not name.endswith("_is_set") and value is not None and stats.get(f"{name}_is_set", 1)
        }

    def _ask(self, function: str) -> Any:
        return self.client._call(function, device=self._address)

    def _describe(self, function: str) -> Any:
        return self.client._call(function, device_description=self._description)

    def __str__(self) -> str:
        return f"{self.client.platform_name}:{self.id}"

    def _repr_html_(self) -> str:
        return display.html_of_device(self)

    def __repr__(self) -> str:
        return f"<Device {self} {self.kind!r}>" if not self.client.closed else "<Device closed>"


class Memory:
    """A `PJRT_Memory`: a space that one or more devices address.

    Attributes:
        client: the client that it belongs to.
    """

    def __init__(self, client: Client, address: int) -> None:
        self.client = client
        self._address = address

    @cached_property
    def id(self) -> int:
        """Unique among the client's memories (`PJRT_Memory_Id`)."""
        return int(self._ask("PJRT_Memory_Id"))

    @cached_property
    def kind(self) -> str:
        """What it is: "device", "pinned_host", "unpinned_host", ... (`PJRT_Memory_Kind`)."""
        return str(self._ask("PJRT_Memory_Kind").decode())

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The devices that address it (`PJRT_Memory_AddressableByDevices`)."""
        addresses = self._ask("PJRT_Memory_AddressableByDevices")
        return tuple(self.client._device(address) for address in addresses)

    def _ask(self, function: str) -> Any:
        return self.client._call(function, memory=self._address)

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"

    def __repr__(self) -> str:
        return f"<Memory {self}>" if not self.client.closed else "<Memory closed>"
