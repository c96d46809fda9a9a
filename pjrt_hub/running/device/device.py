"""Devices and memories: where buffers live and programs run; a device may be described only.

All are borrowed, from a client or a topology: they are views that end with it and are never freed.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol, Self

from pjrt_hub.base.fork import cached_property
from pjrt_hub.base.listing import Listing
from pjrt_hub.errors import ClosedError, PjrtError
from pjrt_hub.running.array import display
from pjrt_hub.running.capi import irregular
from pjrt_hub.running.capi.handle import ClientHandle, Closing
from pjrt_hub.running.capi.status import answer_or_none


class Owner(Protocol):
    """What a description belongs to: a client or a topology."""

    def _call(self, function: str, /, **inputs: Any) -> Any: ...


def refuse_pickle(thing: object) -> NoReturn:
    """Serve `__reduce__` of what belongs to its process."""
    raise TypeError(
        f"this {type(thing).__name__} belongs to its process and cannot be pickled\n\nhint: make "
        "a client in the other process; programs, options, executables, topologies and buffers can "
        "be pickled"
    )


class DeviceDescription:
    """A description of a device, which need not be present (`PJRT_DeviceDescription`).

    Attributes:
        id: unique among the devices of its client or topology (`PJRT_DeviceDescription_Id`).
        owner: the client or topology that it belongs to.
    """

    __module__ = "pjrt_hub"

    def __init__(self, owner: Owner, address: int) -> None:
        self.owner = owner
        self.description_address = address
        # Messages name devices even after their client was closed, so the id is read at once.
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
    def attributes(self) -> Mapping[str, Any]:
        """The vendor's attributes of the device (`PJRT_DeviceDescription_Attributes`)."""
        attributes: Mapping[str, Any] = self._describe("PJRT_DeviceDescription_Attributes")
        return attributes

    @property
    def coords(self) -> tuple[int, ...] | None:
        """Its coordinates (x, y, z), or None if the plugin reports none."""
        coords = self.attributes.get("coords")
        return coords if isinstance(coords, tuple) else None

    @cached_property
    def debug_string(self) -> str:
        """The plugin's long description (`PJRT_DeviceDescription_DebugString`)."""
        return str(self._describe("PJRT_DeviceDescription_DebugString").decode())

    def to_string(self) -> str:
        """Return the plugin's short description (`PJRT_DeviceDescription_ToString`)."""
        return str(self._describe("PJRT_DeviceDescription_ToString").decode())

    def _describe(self, function: str) -> Any:
        return self.owner._call(function, device_description=self.description_address)

    def __copy__(self) -> Self:
        return self  # There is one object for each.

    def __deepcopy__(self, memo: object) -> Self:
        return self

    __reduce__ = refuse_pickle

    def _row(self) -> dict[str, str]:
        coords = {} if self.coords is None else {"coords": str(self.coords)}
        process = str(self.process_index)
        return {"device": str(self.id), "kind": self.kind, "process": process, **coords}

    def __repr__(self) -> str:
        try:
            coords = f" at {self.coords}" if self.coords is not None else ""
            return f"<DeviceDescription {self.id} {self.kind!r}{coords}>"
        except ClosedError:
            return "<DeviceDescription closed>"


class Device(DeviceDescription):
    """A device of a client, which runs programs and holds buffers (`PJRT_Device`).

    Attributes:
        client: the client that it belongs to.
        id: unique among the client's devices, of all processes (`PJRT_DeviceDescription_Id`).
    """

    __module__ = "pjrt_hub"

    def __init__(self, client: DeviceClient, address: int) -> None:
        self.client: Any = client  # This is a `Client`, which this module may not import.
        self.address = address
        super().__init__(client, client._call("PJRT_Device_GetDescription", device=address))

    @cached_property
    def local_hardware_id(self) -> int:
        """Its number on this machine, or -1 (`PJRT_Device_LocalHardwareId`)."""
        return self._ask("PJRT_Device_LocalHardwareId")

    @cached_property
    def is_addressable(self) -> bool:
        """Whether this process can use it (`PJRT_Device_IsAddressable`)."""
        return self._ask("PJRT_Device_IsAddressable")

    @cached_property
    def memories(self) -> Listing[Memory]:
        """The memories that it can address (`PJRT_Device_AddressableMemories`)."""
        addresses = self._ask("PJRT_Device_AddressableMemories")
        return Listing(memory_at(self.client, each) for each in addresses)

    @cached_property
    def default_memory(self) -> Memory:
        """The memory for buffers by default (`PJRT_Device_DefaultMemory`)."""
        return memory_at(self.client, self._ask("PJRT_Device_DefaultMemory"))

    def memory_stats(self) -> dict[str, int] | None:
        """Return bytes in use and limits, as far as the plugin counts (`PJRT_Device_MemoryStats`).

        Returns:
            Bytes and counts by the names of the C struct, "bytes_in_use" always; None if the
            plugin does not count, like the XLA CPU plugin.
        """
        stats = answer_or_none(lambda: vars(self._ask("PJRT_Device_MemoryStats")))
        return stats and {
            name: value
            for name, value in stats.items()
            if not name.endswith("_is_set") and value is not None and stats.get(f"{name}_is_set", 1)
        }

    def clear_memory_stats(self) -> None:
        """Reset the peaks of `memory_stats` (`PJRT_Device_ClearMemoryStats`, 0.106)."""
        self._ask("PJRT_Device_ClearMemoryStats")

    def get_attributes(self) -> dict[str, Any]:
        """Return the vendor's attributes as they are now (`PJRT_Device_GetAttributes`, 0.92)."""
        return self._ask("PJRT_Device_GetAttributes")

    def poison_execution(self, launch_id: int, error: PjrtError) -> bool:
        """Make a launch on this device fail (`PJRT_Device_PoisonExecution`, 0.85).

        Args:
            launch_id: that of `LoadedExecutable.execute`, 32 bits.
            error: what the launch's outputs then raise: its code and message and, if the plugin is
                0.100 or newer, its payloads, which must be UTF-8.

        Returns:
            Whether there was such a launch to fail.

        Raises:
            TypeError: `launch_id` is not an int, or `error` not a PjrtError.
            ValueError: the launch id does not fit 32 bits.
        """
        if not isinstance(error, PjrtError):
            raise TypeError(f"the error is {error!r}, not a PjrtError")
        poisoned: bool = self.client._call(
            "PJRT_Device_PoisonExecution",
            device=self.address,
            launch_id=int32("the launch id", launch_id),
            error_code=error.code,
            error_message=error.message,
            payload={name: payload.decode() for name, payload in error.payloads.items()},
        )
        return poisoned

    def _ask(self, function: str) -> Any:
        return self.client._call(function, device=self.address)

    def _row(self) -> dict[str, str]:
        memories = (memory.kind for memory in self.memories if self.is_addressable)
        return {**super()._row(), "device": str(self), "memories": ", ".join(memories)}

    def __str__(self) -> str:
        return f"{self.client.platform_name}:{self.id}"

    @display.table
    def _repr_html_(self) -> Mapping[str, Any]:
        if self.client.closed:
            return {}
        facts = {"Device": self, "kind": self.kind, "process": self.process_index}
        return {**facts, "memories": "\n".join(map(str, self.memories)), **self.attributes}

    def __repr__(self) -> str:
        return f"<Device {self} {self.kind!r}>" if not self.client.closed else "<Device closed>"


class Memory:
    """A memory that one or more devices address (`PJRT_Memory`).

    Attributes:
        client: the client that it belongs to.
    """

    __module__ = "pjrt_hub"

    def __init__(self, client: DeviceClient, address: int) -> None:
        self.client: Any = client  # This is a `Client`, which this module may not import.
        self.address = address

    @cached_property
    def id(self) -> int:
        """An id, unique among the client's memories (`PJRT_Memory_Id`)."""
        return self._ask("PJRT_Memory_Id")

    @cached_property
    def kind(self) -> str:
        """Its kind: "device", "pinned_host", "unpinned_host", ... (`PJRT_Memory_Kind`)."""
        return self._ask("PJRT_Memory_Kind").decode()

    @cached_property
    def kind_id(self) -> int:
        """The plugin's number of the kind (`PJRT_Memory_Kind_Id`)."""
        return self._ask("PJRT_Memory_Kind_Id")

    @cached_property
    def debug_string(self) -> str:
        """The plugin's long description (`PJRT_Memory_DebugString`)."""
        return self._ask("PJRT_Memory_DebugString").decode()

    def to_string(self) -> str:
        """Return the plugin's short description (`PJRT_Memory_ToString`)."""
        return self._ask("PJRT_Memory_ToString").decode()

    @cached_property
    def devices(self) -> Listing[Device]:
        """The devices that address it (`PJRT_Memory_AddressableByDevices`)."""
        addresses = self._ask("PJRT_Memory_AddressableByDevices")
        return Listing(device_at(self.client, each) for each in addresses)

    def _ask(self, function: str) -> Any:
        return self.client._call(function, memory=self.address)

    @display.table
    def _repr_html_(self) -> Mapping[str, Any]:
        if self.client.closed:
            return {}
        devices = "\n".join(f"{device} {device.kind}" for device in self.devices)
        return {"Memory": self, "kind": self.kind, "devices": devices}

    def __copy__(self) -> Self:
        return self  # There is one object for each.

    def __deepcopy__(self, memo: object) -> Self:
        return self

    __reduce__ = refuse_pickle

    def _row(self) -> dict[str, str]:
        devices = ", ".join(map(str, self.devices))
        return {"memory": str(self), "kind": self.kind, "devices": devices}

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"

    def __repr__(self) -> str:
        return f"<Memory {self}>" if not self.client.closed else "<Memory closed>"


class AsyncTrackingEvent(Closing):
    """Work that a device waits for, until `close` or a `with` ends (`PJRT_AsyncTrackingEvent`).

    Attributes:
        device: the device.
        description: what the work is.
    """

    __module__ = "pjrt_hub"

    def __init__(self, device: Device, description: str) -> None:
        """Announce external work to the device (`PJRT_Device_CreateAsyncTrackingEvent`, 0.86).

        Args:
            device: one of `Client.devices`.
            description: for people who look at what the device waits for.
        """
        self.device = device
        self.description = description
        self.address: int = device.client._call(
            "PJRT_Device_CreateAsyncTrackingEvent", device=device.address, description=description
        )

    def close(self) -> None:
        """End the work (`PJRT_AsyncTrackingEvent_Destroy`); may be called again."""
        address, self.address = self.address, 0
        if address:
            self.device.client._call("PJRT_AsyncTrackingEvent_Destroy", event=address)


class DeviceClient(ClientHandle):
    """A client with its devices and memories, for the classes of these and of buffers."""

    #: Whether the plugin moves row-major bytes into other layouts, and whether it copies arrays
    #: of any layout correctly; None until that was tried.
    _moves_data: bool | None = None
    _copies_layouts: bool | None = None

    def _reduce_executable(self, blob: bytes) -> tuple[Any, ...]:
        """Pickle a serialized executable of this client."""
        raise NotImplementedError

    def _keep_devices(self) -> None:
        self._devices: dict[int, Device] = {}
        self._memories: dict[int, Memory] = {}

    @cached_property
    def process_index(self) -> int:
        """This process's number among those on the platform (`PJRT_Client_ProcessIndex`)."""
        return self._ask("PJRT_Client_ProcessIndex")

    @cached_property
    def all_devices(self) -> Listing[Device]:
        """The devices of all processes (`PJRT_Client_Devices`)."""
        return Listing(device_at(self, each) for each in self._ask("PJRT_Client_Devices"))

    @cached_property
    def devices(self) -> Listing[Device]:
        """The devices that this process can use (`PJRT_Client_AddressableDevices`)."""
        addresses = self._ask("PJRT_Client_AddressableDevices")
        return Listing(device_at(self, each) for each in addresses)

    @cached_property
    def process_count(self) -> int:
        """The number of processes that share the platform, from the devices."""
        return len({device.process_index for device in self.all_devices})

    def lookup_device(self, id: int, *, local: bool = False) -> Device:
        """Return the device with that `Device.id` (`PJRT_Client_LookupDevice`).

        Args:
            id: unique among the devices of all processes.
            local: take `id` for a `Device.local_hardware_id`, the number on this machine
                (`PJRT_Client_LookupAddressableDevice`).

        Raises:
            PjrtError: there is no such device.
        """
        number = int32("the id", id)
        function, name = (
            ("PJRT_Client_LookupAddressableDevice", "local_hardware_id")
            if local
            else ("PJRT_Client_LookupDevice", "id")
        )
        return device_at(self, self._call(function, client=self.address, **{name: number}))

    def default_device_assignment(
        self, num_replicas: int = 1, num_partitions: int = 1
    ) -> tuple[tuple[int, ...], ...]:
        """Return the default device ids of a program (`PJRT_Client_DefaultDeviceAssignment`).

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
        if min(counts) < 1 or num_replicas * num_partitions > there:  # Some plugins abort on 0.
            raise ValueError(
                f"{num_replicas} replica(s) of {num_partitions} partition(s) cannot be placed on "
                f"{there} device(s)"
            )
        with self._in_call():
            ids = irregular.default_device_assignment(self.api, self.address, *counts)
        return tuple(
            tuple(ids[start : start + num_partitions])
            for start in range(0, len(ids), num_partitions)
        )

    @cached_property
    def memories(self) -> Listing[Memory]:
        """The memories that this process can use (`PJRT_Client_AddressableMemories`)."""
        addresses = self._ask("PJRT_Client_AddressableMemories")
        return Listing(memory_at(self, each) for each in addresses)

    def memory(self, kind: str) -> Memory:
        """Return the memory of a kind, such as "pinned_host", of the default device.

        Args:
            kind: as `Memory.kind` has it.

        Raises:
            ValueError: the device has none of that kind.
        """
        device, _, _ = self._first_place
        for memory in device.memories:
            if memory.kind == kind:
                return memory
        kinds = ", ".join(memory.kind for memory in device.memories)
        raise ValueError(f"{device} has no memory {kind!r}\n\nhint: it has {kinds}")

    @cached_property
    def _first_place(self) -> tuple[Device, int, int]:
        """Where an array goes by default: the device, its address, and 0 for its own memory."""
        if not self.devices:
            raise ValueError(f"{self.platform_name} has no device that this process can use")
        return self.devices[0], self.devices[0].address, 0


def choose_place(
    client: DeviceClient, device: Device | None = None, memory: Memory | None = None
) -> tuple[Device, int]:
    """Return the device for a client's new buffer, and the address of the memory for it, or 0.

    The default is a device that addresses the memory, or the first one; 0 is a device's own memory.
    """
    if device is None and memory is None:
        return client._first_place[0], 0
    for given, kind in ((device, Device), (memory, Memory)):
        if given is None:
            continue
        if not isinstance(given, kind):
            raise TypeError(
                f"{given!r} is not a {kind.__name__}\n\n"
                f"hint: client.{'devices' if kind is Device else 'memories'}[0] is one"
            )
        if given.client is not client:
            raise ValueError(f"{given} belongs to another client")
    if memory is None:
        assert device is not None
        return device, 0
    if device is not None and device not in memory.devices:
        raise ValueError(f"{device} does not address the memory {memory}")
    return device or memory.devices[0], memory.address


def default_memory(client: DeviceClient) -> Memory:
    """Return the memory of a client's first device where buffers go by default."""
    return client._first_place[0].default_memory


def device_at(client: DeviceClient, address: int) -> Device:
    """Return a client's device by its native address, the same object each time."""
    device = client._devices.get(address)
    if device is None:
        device = client._devices[address] = Device(client, address)
    return device


def memory_at(client: DeviceClient, address: int) -> Memory:
    """Return a client's memory by its native address, the same object each time."""
    memory = client._memories.get(address)
    if memory is None:
        memory = client._memories[address] = Memory(client, address)
    return memory


def int32(what: str, value: int) -> int:
    """Return an int that fits the C function's parameter, or raise TypeError or ValueError."""
    number = operator.index(value)
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{what} is {number}, which does not fit 32 bits")
    return number
