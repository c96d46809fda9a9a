"""Multi-slice: one program over several TPU slices (extensions MultiSlice, Megascale).

Owns configurations, and the checks for values that end the process inside a plugin. The content of
a configuration is the plugin's own.
"""

from __future__ import annotations

from typing import Any

from pjrt_hub.base.fork import cached_property
from pjrt_hub.running.capi.handle import Handle, free_with
from pjrt_hub.running.capi.library import Api

#: No machine has more devices; for more, plugins allocate memory until the process is killed.
_MAX_DEVICES = 1 << 16


class MultiSliceConfig:
    """A `PJRT_MultiSlice_Config`: the slices that a program is compiled for.

    `CompileOptions(serialized_multi_slice_config=config.serialize())` compiles for all of them. It
    is freed with the last reference to it.

    Attributes:
        api: the plugin's function table.
        address: of the `PJRT_MultiSlice_Config`.
    """

    def __init__(self, topology: Handle, num_slices: int) -> None:
        """Configure slices that need not be here (`PJRT_Megascale_CreateAoTConfig`).

        Args:
            topology: of one slice.
            num_slices: how many such slices there are, at least 1; together they have at most
                65536 devices.

        Raises:
            ValueError: the topology is of several slices already, or `num_slices` is out of range.
            UnsupportedByPluginError: the plugin knows no slices.
            PjrtError: the plugin refuses the slices.
        """
        self.api = topology.api
        call = self.api.extension("Megascale").call
        _check_slices(topology, num_slices)
        with topology._in_call():
            self.address: int = call(
                "PJRT_Megascale_CreateAoTConfig", topology=topology.address, num_slices=num_slices
            )
        call = self.api.extension("MultiSlice").call
        free_with(self, call, "PJRT_MultiSlice_Config_Destroy", config=self.address)

    @cached_property
    def num_slices(self) -> int:
        """The number of slices (`PJRT_MultiSlice_Config_NumSlices`)."""
        return self._ask("PJRT_MultiSlice_Config_NumSlices")

    @cached_property
    def slice_id(self) -> int:
        """The id of this process's slice (`PJRT_MultiSlice_Config_SliceId`)."""
        return self._ask("PJRT_MultiSlice_Config_SliceId")

    @cached_property
    def num_devices_per_slice(self) -> dict[int, int]:
        """The number of devices by slice id (`PJRT_MultiSlice_Config_NumDevicesPerSlice`)."""
        counts = self._ask("PJRT_MultiSlice_Config_NumDevicesPerSlice")
        return dict(sorted(zip(counts.slice_ids, counts.num_devices, strict=True)))

    def serialize(self) -> bytes:
        """Return the plugin's bytes for `CompileOptions` (`PJRT_MultiSlice_Config_Serialize`)."""
        return self._ask("PJRT_MultiSlice_Config_Serialize")

    def _ask(self, function: str) -> Any:
        return self.api.extension("MultiSlice").call(function, config=self.address)

    def __repr__(self) -> str:
        return f"<MultiSliceConfig slice {self.slice_id} of {self.num_slices}>"


def megascale_id(api: Api, slice_id: int, device_id: int) -> int:
    """Return the global id of a slice's device (`PJRT_Megascale_DeviceId_To_MegascaleId`).

    Args:
        api: libtpu's function table.
        slice_id: of the slice.
        device_id: of the device in its slice.

    Raises:
        PjrtError: there can be no such device.
    """
    call, given = api.extension("Megascale").call, {"per_slice_device_id": device_id}
    return int(call("PJRT_Megascale_DeviceId_To_MegascaleId", slice_id=slice_id, **given))


def device_of_megascale_id(api: Api, megascale_id: int) -> tuple[int, int]:
    """Return the ids of a slice and of a device in it (`PJRT_Megascale_MegascaleId_To_DeviceId`).

    Args:
        api: libtpu's function table.
        megascale_id: from `megascale_id`.
    """
    found = api.extension("Megascale").call(
        "PJRT_Megascale_MegascaleId_To_DeviceId", megascale_id=megascale_id
    )
    return int(found.slice_id), int(found.per_slice_device_id)


def _check_slices(topology: Any, num_slices: int) -> None:
    """Refuse values that end the process inside libtpu: slices of slices, and far too many."""
    if not isinstance(num_slices, int) or isinstance(num_slices, bool):
        raise TypeError(f"num_slices is {num_slices!r}, not an int")
    devices = topology.device_descriptions
    most = _MAX_DEVICES // len(devices)
    if not 1 <= num_slices <= most:
        raise ValueError(f"num_slices is {num_slices}; it must be from 1 to {most}")
    if any("slice_index" in device.attributes for device in devices):
        raise ValueError(
            f"{topology!r} is of several slices already: describe one, and give their number here"
        )
