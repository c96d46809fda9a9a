"""Multi-slice: one program over several TPU slices (extensions MultiSlice, Megascale).

Owns configurations and the checks of what ends the process inside a plugin. What a configuration
holds is the plugin's own.
"""

from __future__ import annotations

import contextlib
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from pjrt_hub.base.fork import cached_property
from pjrt_hub.errors import ClosedError, PjrtError
from pjrt_hub.running.program.option import INT32_MAX

if TYPE_CHECKING:
    from pjrt_hub.running.capi.handle import Handle
    from pjrt_hub.running.capi.library import Api

#: More are no machine, and are allocated for until the process is killed.
_MAX_DEVICES = 1 << 16


class MultiSliceConfig:
    """A `PJRT_MultiSlice_Config`: the slices that a program is compiled for or executed on.

    `CompileOptions(serialized_multi_slice_config=config.serialize())` compiles for all of them,
    `ExecuteOptions(multi_slice_config=config)` executes. It is freed with the last reference to it.

    Attributes:
        api: the plugin's function table.
    """

    __module__ = "pjrt_hub"

    def __init__(self, topology: Handle, num_slices: int) -> None:
        """Configures slices that need not be here (`PJRT_Megascale_CreateAoTConfig`).

        Args:
            topology: of one slice.
            num_slices: how many of it there are, at least 1; all together have at most 65536
                devices.

        Raises:
            ValueError: the topology is of several slices already, or there are none.
            UnsupportedByPluginError: the plugin knows no slices.
            PjrtError: it refuses them.
        """
        call = topology.api.extension("Megascale").call
        _check_slices(topology, num_slices)
        with topology.in_call():
            address = call(
                "PJRT_Megascale_CreateAoTConfig",
                topology=topology.address,
                num_slices=num_slices,
            )
        self._take(topology.api, address)

    @classmethod
    def of_slice(
        cls,
        context: MegascaleContext,
        topology: Handle,
        num_slices: int,
        slice_id: int,
        *,
        host_id: int = 0,
        endpoint_addresses: bytes = b"",
        dcn_topology: bytes = b"",
    ) -> MultiSliceConfig:
        """Configure this process's part (`PJRT_Megascale_CreateMultiSliceConfig`).

        Args:
            context: what connects the slices.
            topology: of one slice.
            num_slices: how many of it there are.
            slice_id: the one that this process is of, from 0.
            host_id: which of the slice's hosts this is, from 0.
            endpoint_addresses: where the others are, the plugin's EndpointAddresses proto.
            dcn_topology: the network between them, the plugin's DCNTopology proto.

        Raises:
            ValueError: the topology is of several slices, there is no such slice or host, or the
                context is another plugin's.
            PjrtError: the plugin cannot read a proto.
        """
        _check_slices(topology, num_slices)
        _check_int("slice_id", slice_id, 0, num_slices - 1)
        _check_int("host_id", host_id, 0)
        if not isinstance(context, MegascaleContext):
            raise TypeError(f"the context is {context!r}, not a MegascaleContext")
        if context.api is not topology.api:
            raise ValueError(f"{topology!r} belongs to another plugin than the context")
        config = cls.__new__(cls)
        call = topology.api.extension("Megascale").call
        with topology.in_call():
            address = call(
                "PJRT_Megascale_CreateMultiSliceConfig",
                topology=topology.address,
                num_slices=num_slices,
                local_slice_id=slice_id,
                local_host_id=host_id,
                endpoint_addresses=bytes(endpoint_addresses),
                dcn_topology=bytes(dcn_topology),
                client_context=context.address,
            )
        config._take(topology.api, address)
        config._context = context
        return config

    @cached_property
    def num_slices(self) -> int:
        """How many slices there are (`PJRT_MultiSlice_Config_NumSlices`)."""
        return self._ask("PJRT_MultiSlice_Config_NumSlices")

    @cached_property
    def slice_id(self) -> int:
        """The slice of this process (`PJRT_MultiSlice_Config_SliceId`)."""
        return self._ask("PJRT_MultiSlice_Config_SliceId")

    @cached_property
    def num_devices_per_slice(self) -> dict[int, int]:
        """Slice id to its number of devices (`PJRT_MultiSlice_Config_NumDevicesPerSlice`)."""
        counts = self._ask("PJRT_MultiSlice_Config_NumDevicesPerSlice")
        return dict(sorted(zip(counts.slice_ids, counts.num_devices, strict=True)))

    def serialize(self) -> bytes:
        """Return the plugin's bytes for `CompileOptions` (`PJRT_MultiSlice_Config_Serialize`)."""
        return self._ask("PJRT_MultiSlice_Config_Serialize")

    def _take(self, api: Api, address: int) -> None:
        self.api = api
        self.address = address
        self._context: MegascaleContext | None = None
        free = partial(api.extension("MultiSlice").call, "PJRT_MultiSlice_Config_Destroy")
        weakref.finalize(self, _free, partial(free, config=address)).atexit = False

    def _ask(self, function: str) -> Any:
        return self.api.extension("MultiSlice").call(function, config=self.address)

    def __repr__(self) -> str:
        return f"<MultiSliceConfig slice {self.slice_id} of {self.num_slices}>"


class MegascaleContext:
    """A `PJRT_Megascale_ClientContext`: what connects the slices of a process.

    It is freed with the last reference to it. Initializing it is not offered: the argument has
    grown since the newest header that is public.

    Attributes:
        api: the plugin's function table.
    """

    def __init__(self, api: Api) -> None:
        """Makes one (`PJRT_Megascale_CreateDefaultClientContext`).

        Args:
            api: the plugin's function table.

        Raises:
            UnsupportedByPluginError: the plugin has no such extension.
        """
        self.api = api
        call = api.extension("Megascale").call
        self.address: int = call("PJRT_Megascale_CreateDefaultClientContext")
        free = partial(call, "PJRT_Megascale_DeleteClientContext", client_context=self.address)
        weakref.finalize(self, _free, free).atexit = False


def megascale_id(api: Api, slice_id: int, device_id: int) -> int:
    """Return the global id of a slice's device (`PJRT_Megascale_DeviceId_To_MegascaleId`).

    Args:
        api: libtpu's function table.
        slice_id: of the slice.
        device_id: of the device in its slice.

    Raises:
        PjrtError: there can be no such device.
    """
    return int(
        api.extension("Megascale").call(
            "PJRT_Megascale_DeviceId_To_MegascaleId",
            slice_id=slice_id,
            per_slice_device_id=device_id,
        )
    )


def device_of_megascale_id(api: Api, megascale_id: int) -> tuple[int, int]:
    """Return the slice and the device in it (`PJRT_Megascale_MegascaleId_To_DeviceId`).

    Args:
        api: libtpu's function table.
        megascale_id: from `megascale_id`.
    """
    found = api.extension("Megascale").call(
        "PJRT_Megascale_MegascaleId_To_DeviceId", megascale_id=megascale_id
    )
    return int(found.slice_id), int(found.per_slice_device_id)


def _check_slices(topology: Any, num_slices: int) -> None:
    """Refuses what ends the process inside libtpu: slices of slices, and far too many."""
    devices = topology.device_descriptions
    _check_int("num_slices", num_slices, 1, _MAX_DEVICES // len(devices))
    if any("slice_index" in device.attributes for device in devices):
        raise ValueError(
            f"{topology!r} is of several slices already: describe one, and give their number here"
        )


def _check_int(name: str, value: int, low: int, high: int = INT32_MAX) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, not an int")
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be from {low} to {high}")


def _free(free: partial[Any]) -> None:
    with contextlib.suppress(ClosedError, PjrtError):  # closed: in the child of a fork
        free()
