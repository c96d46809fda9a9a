"""Devices and memories: where buffers live and programs run.

Both are borrowed from their client: they are views that end with it and are never freed.
"""

from __future__ import annotations

import operator
from typing import Any

from pjrt_hub.base.fork import cached_property
from pjrt_hub.errors import PjrtError
from pjrt_hub.running.array import display
from pjrt_hub.running.capi import irregular
from pjrt_hub.running.capi.handle import ClientHandle
from pjrt_hub.running.device.closing import Closing
from pjrt_hub.running.device.device_description import DeviceDescription


class Device(DeviceDescription):
    """A `PJRT_Device`.

    Attributes:
        client: the client that it belongs to.
        id: unique among the client's devices, of all processes (`PJRT_DeviceDescription_Id`).
    """

    def __init__(self, client: DeviceClient, address: int) -> None:
        self.client: Any = client  # a `Client`, which stands above
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
        memory: Memory = self.client._memory(self._ask("PJRT_Device_DefaultMemory"))
        return memory

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
            description: for people who look at what the device waits for.

        Raises:
            UnsupportedByPluginError: the plugin is older than 0.86.
        """
        return AsyncTrackingEvent(self, description)

    def _ask(self, function: str) -> Any:
        return self.client._call(function, device=self._address)

    def __str__(self) -> str:
        return f"{self.client.platform_name}:{self.id}"

    def _repr_html_(self) -> str:
        return display.table(
            self,
            self.client.closed,
            lambda: {
                "Device": self,
                "kind": self.kind,
                "process": self.process_index,
                "memories": display.lines(map(str, self.memories)),
                **self.attributes,
            },
        )

    def __repr__(self) -> str:
        return f"<Device {self} {self.kind!r}>" if not self.client.closed else "<Device closed>"


class Memory:
    """A `PJRT_Memory`: a space that one or more devices address.

    Attributes:
        client: the client that it belongs to.
    """

    def __init__(self, client: DeviceClient, address: int) -> None:
        self.client: Any = client  # a `Client`, which stands above
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
        return display.table(
            self,
            self.client.closed,
            lambda: {
                "Memory": self,
                "kind": self.kind,
                "devices": display.lines(f"{device} {device.kind}" for device in self.devices),
            },
        )

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"

    def __repr__(self) -> str:
        return f"<Memory {self}>" if not self.client.closed else "<Memory closed>"


class AsyncTrackingEvent(Closing):
    """A `PJRT_AsyncTrackingEvent`: work that a device waits for; ends with `close` or a `with`.

    Attributes:
        device: the device.
        description: what the work is.
    """

    def __init__(self, device: Device, description: str) -> None:
        self.device = device
        self.description = description
        self._address: int = device.client._call(
            "PJRT_Device_CreateAsyncTrackingEvent", device=device._address, description=description
        )

    def close(self) -> None:
        """End the work (`PJRT_AsyncTrackingEvent_Destroy`); may be called again."""
        address, self._address = self._address, 0
        if address:
            self.device.client._call("PJRT_AsyncTrackingEvent_Destroy", event=address)


class DeviceClient(ClientHandle):
    """A client with its devices and memories, as these and what lies on them see it."""

    @property
    def _moves_data(self) -> bool:
        """Whether the plugin puts row-major bytes into other layouts, as `placement` found."""
        raise NotImplementedError

    def _reduce_executable(self, blob: bytes) -> tuple[Any, ...]:
        """Pickle a serialized executable of this client."""
        raise NotImplementedError

    def _keep_devices(self) -> None:
        self._devices: dict[int, Device] = {}
        self._memories: dict[int, Memory] = {}

    @cached_property
    def process_index(self) -> int:
        """This process among those that share the platform (`PJRT_Client_ProcessIndex`)."""
        return int(self._ask("PJRT_Client_ProcessIndex"))

    @cached_property
    def all_devices(self) -> tuple[Device, ...]:
        """The devices of all processes (`PJRT_Client_Devices`)."""
        return tuple(map(self._device, self._ask("PJRT_Client_Devices")))

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The devices that this process can use (`PJRT_Client_AddressableDevices`)."""
        return tuple(map(self._device, self._ask("PJRT_Client_AddressableDevices")))

    @cached_property
    def process_count(self) -> int:
        """The number of processes that share the platform, from the devices."""
        return len({device.process_index for device in self.all_devices})

    def lookup_device(self, id: int) -> Device:
        """Return the device with that `Device.id` (`PJRT_Client_LookupDevice`).

        Args:
            id: unique among the devices of all processes.

        Raises:
            PjrtError: there is none.
        """
        number = int32("the id", id)
        return self._device(self._call("PJRT_Client_LookupDevice", client=self._address, id=number))

    def lookup_addressable_device(self, local_hardware_id: int) -> Device:
        """Return the device with that number here (`PJRT_Client_LookupAddressableDevice`).

        Args:
            local_hardware_id: as in `Device.local_hardware_id`.

        Raises:
            PjrtError: there is none.
        """
        return self._device(
            self._call(
                "PJRT_Client_LookupAddressableDevice",
                client=self._address,
                local_hardware_id=int32("the local hardware id", local_hardware_id),
            )
        )

    def default_device_assignment(
        self, num_replicas: int = 1, num_partitions: int = 1
    ) -> tuple[tuple[int, ...], ...]:
        """Return the ids of the devices that a program runs on by default.

        The C function is `PJRT_Client_DefaultDeviceAssignment`.

        Args:
            num_replicas: how many copies of the program run.
            num_partitions: how many parts each is split into.

        Returns:
            A row for each replica, of the device of each partition: as `CompileOptions.device_ids`.

        Raises:
            ValueError: a count below 1, or more devices than there are.
        """
        counts = (num_replicas, num_partitions) = (
            int32("num_replicas", num_replicas),
            int32("num_partitions", num_partitions),
        )
        there = len(self.all_devices)
        if min(counts) < 1 or num_replicas * num_partitions > there:  # 0 aborts some plugins
            raise ValueError(
                f"{num_replicas} replica(s) of {num_partitions} partition(s) cannot be placed on "
                f"{there} device(s)"
            )
        with self._in_call():
            ids = irregular.default_device_assignment(self.api, self._address, *counts)
        return tuple(
            tuple(ids[start : start + num_partitions])
            for start in range(0, len(ids), num_partitions)
        )

    @cached_property
    def memories(self) -> tuple[Memory, ...]:
        """The memories that this process can use (`PJRT_Client_AddressableMemories`)."""
        return tuple(map(self._memory, self._ask("PJRT_Client_AddressableMemories")))

    @cached_property
    def _default_place(self) -> tuple[Device, int]:
        return self._place(None, None)

    @cached_property
    def _first_place(self) -> tuple[Device, int, int]:
        """As `_default_place`, with the device's address, as the compiled call path takes it."""
        device, memory_address = self._default_place
        return device, device._address, memory_address

    @property
    def _default_memory(self) -> Memory:
        return self._default_place[0].default_memory

    def _place(self, device: Device | None, memory: Memory | None) -> tuple[Device, int]:
        for place, kind in ((device, Device), (memory, Memory)):
            if place is not None and not isinstance(place, kind):
                raise TypeError(
                    f"{place!r} is not a {kind.__name__}\n\n"
                    f"hint: client.{'devices' if kind is Device else 'memories'}[0] is one"
                )
            if place is not None and place.client is not self:
                raise ValueError(f"{place} belongs to another client")
        if memory is None:
            if not self.devices:
                raise ValueError(f"{self.platform_name} has no device that this process can use")
            return device or self.devices[0], 0
        if device is not None and device not in memory.devices:
            raise ValueError(f"{device} does not address the memory {memory}")
        return device or memory.devices[0], memory._address

    def _device(self, address: int) -> Device:
        device = self._devices.get(address)
        if device is None:
            device = self._devices[address] = Device(self, address)
        return device

    def _memory(self, address: int) -> Memory:
        memory = self._memories.get(address)
        if memory is None:
            memory = self._memories[address] = Memory(self, address)
        return memory


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
