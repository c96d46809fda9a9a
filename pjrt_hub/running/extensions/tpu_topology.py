"""TPU topologies: chips, cores and hosts, and where they stand (extension TpuTopology).

Owns the checks before calls of libtpu, which ends the process if a number is negative or outside of
a slice; the devices themselves are the topology's.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from pjrt_hub.running.capi import irregular
from pjrt_hub.running.capi.handle import Handle

_MAX_DIMS = 8
_MAX_ROUTING_STRATEGY = 64

Coordinates = tuple[int, ...]


class OnProcess(NamedTuple):
    """The place of a chip or device on its host.

    Attributes:
        process_id: of the process, which is the host.
        number: the chip's or device's number there.
    """

    process_id: int
    number: int


class TpuTopology:
    """What libtpu reports of a topology beyond the C API: `topology.tpu`.

    Chips stand on a grid of (x, y, z); a chip has cores, and one or several of its cores are a
    device. Devices have the ids of `topology.device_descriptions`. An unknown chip or device is a
    ValueError; an unknown process, or coordinates without a chip, an InvalidArgumentError.
    """

    def __init__(self, topology: Any) -> None:
        """Wrap a topology of libtpu.

        Raises:
            UnsupportedByPluginError: the plugin is not libtpu, or older.
        """
        self.topology = topology
        self._node = topology.api.extension("TpuTopology")

    @property
    def chip_count(self) -> int:
        """The number of chips (`PJRT_TpuTopology_ChipCount`)."""
        return self._ask("PJRT_TpuTopology_ChipCount")

    @property
    def core_count(self) -> int:
        """The number of cores of the default kind (`PJRT_TpuTopology_CoreCount`)."""
        return self._ask("PJRT_TpuTopology_CoreCount")

    @property
    def core_count_per_chip(self) -> int:
        """A chip's number of default-kind cores (`PJRT_TpuTopology_CoreCountPerChip`)."""
        return self._ask("PJRT_TpuTopology_CoreCountPerChip")

    @property
    def core_count_per_process(self) -> int:
        """A process's number of default-kind cores (`PJRT_TpuTopology_CoreCountPerProcess`)."""
        return self._ask("PJRT_TpuTopology_CoreCountPerProcess")

    @property
    def device_count(self) -> int:
        """The number of devices (`PJRT_TpuTopology_LogiDeviceCount`)."""
        return self._ask("PJRT_TpuTopology_LogiDeviceCount")

    @property
    def device_count_per_chip(self) -> int:
        """The number of devices of one chip (`PJRT_TpuTopology_LogiDeviceCountPerChip`)."""
        return self._ask("PJRT_TpuTopology_LogiDeviceCountPerChip")

    @property
    def device_count_per_process(self) -> int:
        """The number of devices of one process (`PJRT_TpuTopology_LogiDeviceCountPerProcess`)."""
        return self._ask("PJRT_TpuTopology_LogiDeviceCountPerProcess")

    @property
    def process_count(self) -> int:
        """The number of processes, one for each host (`PJRT_TpuTopology_ProcessCount`)."""
        return self._ask("PJRT_TpuTopology_ProcessCount")

    @property
    def chips_per_process(self) -> int:
        """The number of chips of one process (`PJRT_TpuTopology_ChipsPerProcess`)."""
        return self._ask("PJRT_TpuTopology_ChipsPerProcess")

    @property
    def chip_bounds(self) -> Coordinates:
        """The numbers of chips along x, y and z (`PJRT_TpuTopology_ChipBounds`)."""
        return self._read_numbers("PJRT_TpuTopology_ChipBounds", _MAX_DIMS)

    @property
    def process_bounds(self) -> Coordinates:
        """The numbers of processes along x, y and z (`PJRT_TpuTopology_ProcessBounds`)."""
        return self._read_numbers("PJRT_TpuTopology_ProcessBounds", _MAX_DIMS)

    @property
    def chips_per_process_bounds(self) -> Coordinates:
        """One process's chips along x, y and z (`PJRT_TpuTopology_ChipsPerProcessBounds`)."""
        return self._read_numbers("PJRT_TpuTopology_ChipsPerProcessBounds", _MAX_DIMS)

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The processes' ids (`PJRT_TpuTopology_ProcessIds`)."""
        return self._read_numbers("PJRT_TpuTopology_ProcessIds", self.process_count)

    @property
    def is_subslice(self) -> bool:
        """Whether it is a part of another topology (`PJRT_TpuTopology_IsSubsliceTopology`)."""
        return self._ask("PJRT_TpuTopology_IsSubsliceTopology")

    @property
    def is_enhanced_barrier_enabled(self) -> bool:
        """Whether chips synchronize in hardware (`PJRT_TpuTopology_IsEnhancedBarrierEnabled`)."""
        return self._ask("PJRT_TpuTopology_IsEnhancedBarrierEnabled")

    @property
    def has_limited_ici_connectivity(self) -> bool:
        """Whether some chips are out of reach (`PJRT_TpuTopology_HasLimitedIciConnectivity`)."""
        return self._ask("PJRT_TpuTopology_HasLimitedIciConnectivity")

    @property
    def routing_strategy(self) -> str:
        """The routing strategy, "mesh" (`PJRT_TpuTopology_GetRoutingStrategy`)."""
        with self.topology._in_call():
            return irregular.routing_strategy(
                self._node, self.topology.address, _MAX_ROUTING_STRATEGY
            )

    def is_reachable_over_limited_ici(self, source_chip_id: int, dest_chip_id: int) -> bool:
        """Check whether a chip reaches another (`PJRT_TpuTopology_IsReachableOverLimitedIci`).

        Args:
            source_chip_id: the one that sends.
            dest_chip_id: the one that receives.

        Raises:
            ValueError: there is no such chip.
            InvalidArgumentError: the topology is not flat.
        """
        return self._ask(
            "PJRT_TpuTopology_IsReachableOverLimitedIci",
            source_chip_id=self._chip(source_chip_id),
            dest_chip_id=self._chip(dest_chip_id),
        )

    def process_coordinates(self, process_id: int) -> Coordinates:
        """Return a process's coordinates along x, y and z (`PJRT_TpuTopology_ProcessCoordFromId`).

        Args:
            process_id: one of `process_ids`.
        """
        return self._read_numbers(
            "PJRT_TpuTopology_ProcessCoordFromId", _MAX_DIMS, process_id=_number(process_id)
        )

    def device_ids_on_process(self, process_id: int) -> tuple[int, ...]:
        """Return the ids of a process's devices (`PJRT_TpuTopology_LogiDeviceIdsOnProcess`).

        Args:
            process_id: one of `process_ids`.
        """
        return self._read_numbers(
            "PJRT_TpuTopology_LogiDeviceIdsOnProcess",
            self.device_count_per_process,
            process_id=_number(process_id),
        )

    def chip_on_process(self, chip_id: int) -> OnProcess:
        """Return a chip's process and number (`PJRT_TpuTopology_ProcIdAndIdxOnProcForChip`).

        Args:
            chip_id: from 0 to `chip_count` - 1.
        """
        found = self._ask("PJRT_TpuTopology_ProcIdAndIdxOnProcForChip", chip_id=self._chip(chip_id))
        return OnProcess(found.process_id, found.index_on_process)

    def device_on_process(self, device_id: int) -> OnProcess:
        """Return a device's process, and its number there (`...ProcIdAndIdxOnProcForLogiDevice`).

        Args:
            device_id: from 0 to `device_count` - 1.
        """
        found = self._ask(
            "PJRT_TpuTopology_ProcIdAndIdxOnProcForLogiDevice", device_id=self._device(device_id)
        )
        return OnProcess(found.process_id, found.index_on_process)

    def chip_id(self, coordinates: Sequence[int]) -> int:
        """Return the id of the chip at some coordinates (`PJRT_TpuTopology_ChipIdFromCoord`).

        Args:
            coordinates: along x, y and z.
        """
        coords = _numbers(coordinates)
        return self._ask("PJRT_TpuTopology_ChipIdFromCoord", coords=coords)

    def device_id(self, chip_coordinates: Sequence[int], index_on_chip: int = 0) -> int:
        """Return a device by its chip (`PJRT_TpuTopology_LogiDeviceIdFromChipCoordAndIdx`).

        Args:
            chip_coordinates: along x, y and z.
            index_on_chip: from 0 to `device_count_per_chip` - 1.

        Raises:
            ValueError: a chip has no such device.
            InvalidArgumentError: no chip is there.
        """
        index = _below(index_on_chip, self.device_count_per_chip, "devices on a chip")
        return self._ask(
            "PJRT_TpuTopology_LogiDeviceIdFromChipCoordAndIdx",
            chip_coords=_numbers(chip_coordinates),
            logical_device_index_on_chip=index,
        )

    def chip_coordinates(self, device_id: int) -> tuple[Coordinates, int]:
        """Return the coordinates of a device's chip, and the device's number on that chip.

        The C function is `PJRT_TpuTopology_ChipCoordAndIdxForLogiDevice`.

        Args:
            device_id: from 0 to `device_count` - 1.
        """
        with self.topology._in_call():
            numbers, args = irregular.fill_array(
                self._node,
                "PJRT_TpuTopology_ChipCoordAndIdxForLogiDevice",
                _MAX_DIMS,
                topology=self.topology.address,
                device_id=self._device(device_id),
            )
        return numbers, int(args.device_index_on_chip)

    def subslice(
        self, chips_per_host_bounds: Sequence[int], host_bounds: Sequence[int] = (1, 1, 1)
    ) -> Any:
        """Return a part of the topology as another one (`PJRT_TpuTopology_Subslice`).

        Args:
            chips_per_host_bounds: chips of one host along x, y and z.
            host_bounds: hosts along x, y and z.

        Raises:
            InvalidArgumentError: the part is larger than this topology.
        """
        return self._derive(
            "PJRT_TpuTopology_Subslice",
            chips_per_host_bounds=_numbers(chips_per_host_bounds),
            host_bounds=_numbers(host_bounds),
        )

    def replace_host_bounds(self, host_bounds: Sequence[int]) -> Any:
        """Return a topology of more or fewer hosts (`PJRT_TpuTopology_ReplaceHostBounds`).

        Args:
            host_bounds: hosts along x, y and z.

        Raises:
            InvalidArgumentError: no such machine can be.
        """
        bounds = _numbers(host_bounds)
        return self._derive("PJRT_TpuTopology_ReplaceHostBounds", host_bounds=bounds)

    def subslice_device_id(
        self, subslice: Handle, origin: Sequence[int], full_device_id: int
    ) -> int:
        """Return a device's id in a part (`PJRT_TpuTopology_SubsliceDeviceIdFromFullDeviceId`).

        Args:
            subslice: from `subslice`.
            origin: the coordinates here of the part's first chip.
            full_device_id: one of this topology's devices.

        Raises:
            ValueError: `subslice` is not a part, or the device stands outside of it.
        """
        start, part = _numbers(origin), TpuTopology(subslice)
        if subslice.api is not self.topology.api or not part.is_subslice:
            raise ValueError(f"{subslice!r} is not a subslice of {self.topology!r}")
        place, _ = self.chip_coordinates(full_device_id)
        bounds = part.chip_bounds
        if not len(start) == len(place) == len(bounds) or not all(
            0 <= at - first < size for at, first, size in zip(place, start, bounds, strict=True)
        ):
            raise ValueError(
                f"device {full_device_id} at {place} is outside of the subslice, which has "
                f"{bounds} chips from {tuple(start)} on"
            )
        with self.topology._in_call():
            number: int = self._node.call(
                "PJRT_TpuTopology_SubsliceDeviceIdFromFullDeviceId",
                client_topology=self.topology.address,
                subslice_topology=subslice.address,
                subslice_origin=start,
                full_device_id=full_device_id,
            )
            return number

    def _derive(self, name: str, **inputs: Any) -> Any:
        return type(self.topology)(self.topology.api, self._ask(name, **inputs))

    def _chip(self, number: int) -> int:
        return _below(number, self.chip_count, "chips")

    def _device(self, number: int) -> int:
        return _below(number, self.device_count, "devices")

    def _ask(self, name: str, **inputs: Any) -> Any:
        with self.topology._in_call():
            return self._node.call(name, topology=self.topology.address, **inputs)

    def _read_numbers(self, name: str, capacity: int, **inputs: Any) -> tuple[int, ...]:
        with self.topology._in_call():
            topology = self.topology.address
            return irregular.fill_array(self._node, name, capacity, topology=topology, **inputs)[0]

    def __repr__(self) -> str:
        return f"<TpuTopology of {self.chip_count} chips {self.chip_bounds}>"


def _numbers(values: Sequence[int]) -> list[int]:
    return [_number(value) for value in values]


def _number(value: int) -> int:
    number = operator.index(value)
    if not -(1 << 31) <= number < 1 << 31:
        raise ValueError(f"{number} is not the number of a chip, device or process")
    return number


def _below(value: int, count: int, what: str) -> int:
    number = operator.index(value)
    if not 0 <= number < count:
        raise ValueError(f"there is no {number}: the {what} have the numbers 0 to {count - 1}")
    return number
