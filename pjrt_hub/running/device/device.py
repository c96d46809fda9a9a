"""Devices and memories: where buffers live and programs run.

Both are borrowed from their client: they are views that end with it and are never freed.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from pjrt_hub.base.fork import cached_property
from pjrt_hub.errors import PjrtError
from pjrt_hub.running.capi import irregular
from pjrt_hub.running.device import display
from pjrt_hub.running.device.async_tracking_event import AsyncTrackingEvent
from pjrt_hub.running.device.device_description import DeviceDescription

if TYPE_CHECKING:
    from pjrt_hub.running.client.client import Client


class Device(DeviceDescription):
    """A `PJRT_Device`.

    Attributes:
        client: the client that it belongs to.
        id: unique among the client's devices, of all processes (`PJRT_DeviceDescription_Id`).
    """

    def __init__(self, client: Client, address: int) -> None:
        self.client = client
        self._address = address
        super().__init__(client, client._call("PJRT_Device_GetDescription", device=address))

    @cached_property
    def local_hardware_id(self) -> int:
        """Its number on this machine, or -1 (`PJRT_Device_LocalHardwareId`)."""
        return int(self._ask("PJRT_Device_LocalHardwareId"))

    @cached_property
    def is_addressable(self) -> bool:
        """Whether this process can use it (`PJRT_Device_IsAddressable`)."""
        return bool(self._ask("PJRT_Device_IsAddressable"))

    @cached_property
    def memories(self) -> tuple[Memory, ...]:
        """The memories that it can address (`PJRT_Device_AddressableMemories`)."""
        return tuple(
            self.client._memory(address) for address in self._ask("PJRT_Device_AddressableMemories")
        )

    @cached_property
    def default_memory(self) -> Memory:
        """The memory for buffers by default (`PJRT_Device_DefaultMemory`)."""
        return self.client._memory(self._ask("PJRT_Device_DefaultMemory"))

    def memory_stats(self) -> dict[str, int]:
        """Return bytes in use and limits, as far as the plugin counts (`PJRT_Device_MemoryStats`).

        Raises:
            UnimplementedError: the plugin does not count (the XLA CPU plugin).
        """
        stats = vars(self._ask("PJRT_Device_MemoryStats"))
        return {
            name: value
            for name, value in stats.items()
            if not name.endswith("_is_set") and value is not None and stats.get(f"{name}_is_set", 1)
        }

    def clear_memory_stats(self) -> None:
        """Reset the peaks of `memory_stats` (`PJRT_Device_ClearMemoryStats`).

        Raises:
            UnsupportedByPluginError: the plugin is older than 0.106.
        """
        self._ask("PJRT_Device_ClearMemoryStats")

    def get_attributes(self) -> dict[str, Any]:
        """Return the vendor's current attributes of the device (`PJRT_Device_GetAttributes`).

        Raises:
            UnsupportedByPluginError: the plugin is older than 0.92.
        """
        with self.client._in_call():
            return irregular.device_attributes(self.client.api, self._address)

    def poison_execution(self, launch_id: int, error: PjrtError) -> bool:
        """Make a launch on this device fail (`PJRT_Device_PoisonExecution`).

        Args:
            launch_id: that of `LoadedExecutable.execute`, 32 bits.
            error: what the launch's outputs then raise: its code and message, and its payloads
                where the plugin is 0.100 or newer, which must be UTF-8.

        Returns:
            Whether there was such a launch to fail.

        Raises:
            TypeError: no int, or no PjrtError.
            ValueError: the launch id does not fit 32 bits.
            UnsupportedByPluginError: the plugin is older than 0.85.
        """
        if not isinstance(error, PjrtError):
            raise TypeError(f"the error is {error!r}, not a PjrtError")
        return bool(
            self.client._call(
                "PJRT_Device_PoisonExecution",
                device=self._address,
                launch_id=int32("the launch id", launch_id),
                error_code=error.code,
                error_message=error.message,
                payload={name: payload.decode() for name, payload in error.payloads.items()},
            )
        )

    def create_async_tracking_event(self, description: str) -> AsyncTrackingEvent:
        """Announce external work to the device (`PJRT_Device_CreateAsyncTrackingEvent`).

        Args:
            description: for whoever looks at what the device waits for.

        Raises:
            UnsupportedByPluginError: the plugin is older than 0.86.
        """
        return AsyncTrackingEvent(self, description)

    def _ask(self, function: str) -> Any:
        return self.client._call(function, device=self._address)

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
        """An id, unique among the client's memories (`PJRT_Memory_Id`)."""
        return int(self._ask("PJRT_Memory_Id"))

    @cached_property
    def kind(self) -> str:
        """Its kind: "device", "pinned_host", "unpinned_host", ... (`PJRT_Memory_Kind`)."""
        return str(self._ask("PJRT_Memory_Kind").decode())

    @cached_property
    def kind_id(self) -> int:
        """The plugin's number of the kind (`PJRT_Memory_Kind_Id`)."""
        return int(self._ask("PJRT_Memory_Kind_Id"))

    @cached_property
    def debug_string(self) -> str:
        """The plugin's long description (`PJRT_Memory_DebugString`)."""
        return str(self._ask("PJRT_Memory_DebugString").decode())

    def to_string(self) -> str:
        """The plugin's short description (`PJRT_Memory_ToString`)."""
        return str(self._ask("PJRT_Memory_ToString").decode())

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The devices that address it (`PJRT_Memory_AddressableByDevices`)."""
        addresses = self._ask("PJRT_Memory_AddressableByDevices")
        return tuple(self.client._device(address) for address in addresses)

    def _ask(self, function: str) -> Any:
        return self.client._call(function, memory=self._address)

    def _repr_html_(self) -> str:
        return display.html_of_memory(self)

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"

    def __repr__(self) -> str:
        return f"<Memory {self}>" if not self.client.closed else "<Memory closed>"


def default_assignment(
    client: Client, num_replicas: int, num_partitions: int
) -> tuple[tuple[int, ...], ...]:
    """`Client.default_device_assignment`."""
    counts = (num_replicas, num_partitions) = (
        int32("num_replicas", num_replicas),
        int32("num_partitions", num_partitions),
    )
    there = len(client.all_devices)
    if min(counts) < 1 or num_replicas * num_partitions > there:  # 0 aborts some plugins
        raise ValueError(
            f"{num_replicas} replica(s) of {num_partitions} partition(s) cannot be placed on "
            f"{there} device(s)"
        )
    with client._in_call():
        ids = irregular.default_device_assignment(client.api, client._address, *counts)
    return tuple(
        tuple(ids[start : start + num_partitions]) for start in range(0, len(ids), num_partitions)
    )


def int32(what: str, value: int) -> int:
    """An int that fits the C function's parameter.

    Raises:
        TypeError: it is no int.
        ValueError: it does not fit.
    """
    number = operator.index(value)
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{what} is {number}, which does not fit 32 bits")
    return number
