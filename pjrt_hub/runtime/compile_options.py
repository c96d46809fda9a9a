"""Compile options (layer 2): what a user says about a compilation, as CompileOptionsProto.

The numbers are fields of XLA's CompileOptionsProto, ExecutableBuildOptionsProto and
DeviceAssignmentProto. XLA's flags go by name, never through a partial DebugOptions message:
that would zero all its other defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pjrt_hub._capi import wire

_UNSET_ORDINAL = -1
_INT32_MAX = 2**31 - 1
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """Options for `Client.compile`.

    Attributes:
        num_replicas: copies of the program that run together, at least 1.
        num_partitions: parts that the program is split into, at least 1.
        device_ids: the device of each [replica][partition]; None leaves the choice to the plugin,
            which takes the first ones.
        use_spmd_partitioning: split one program over the partitions.
        use_shardy_partitioner: split by Shardy's annotations.
        parameter_is_tupled_arguments: the program takes its arguments as one tuple.
        flags: XLA's flags by name without dashes, "xla_cpu_enable_fast_math": True. A str is
            parsed by the plugin as the flag's own type; an unknown name is an error of the compile.
    """

    num_replicas: int = 1
    num_partitions: int = 1
    device_ids: Sequence[Sequence[int]] | None = None
    use_spmd_partitioning: bool = False
    use_shardy_partitioner: bool = False
    parameter_is_tupled_arguments: bool = False
    flags: Mapping[str, str | bool | int | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses what would abort the plugin.

        Raises:
            ValueError: a count below 1, device ids that do not fit the counts, or a flag that is
                too large.
            TypeError: a count that is no int, or a flag of another type than those named.
        """
        for name in ("num_replicas", "num_partitions"):
            count = getattr(self, name)
            if not isinstance(count, int):
                raise TypeError(f"{name} is {count!r}; it must be an int")
            if not 1 <= count <= _INT32_MAX:
                raise ValueError(f"{name} is {count}; it must be from 1 to {_INT32_MAX}")
        if self.device_ids is not None:
            self._check_device_ids([list(row) for row in self.device_ids])
        for flag, value in self.flags.items():
            if not isinstance(flag, str) or not isinstance(value, str | bool | int | float):
                raise TypeError(f"the flag {flag!r} is {value!r}, not a str, bool, int or float")
            if isinstance(value, int) and value not in _INT64:
                raise ValueError(f"the flag {flag!r} is {value}, which does not fit 64 bits")

    def _check_device_ids(self, rows: list[list[int]]) -> None:
        shape = [len(row) for row in rows]
        if shape != [self.num_partitions] * self.num_replicas:
            raise ValueError(
                f"device_ids has rows of {shape} ids; it needs {self.num_replicas} row(s), one "
                f"for each replica, of {self.num_partitions} id(s), one for each partition"
            )
        ids = [each for row in rows for each in row]
        if not all(isinstance(each, int) and 0 <= each <= _INT32_MAX for each in ids):
            raise ValueError(f"device_ids holds {ids}; an id is an int from 0")
        if len(set(ids)) < len(ids):
            raise ValueError(f"device_ids holds {ids}; a device can run one part of a program")

    def serialize(self) -> bytes:
        """Makes the CompileOptionsProto.

        The device ordinal and both counts are always sent: without them the XLA CPU plugin aborts.
        """
        build = [
            wire.varint(1, _UNSET_ORDINAL),
            wire.varint(4, self.num_replicas),
            wire.varint(5, self.num_partitions),
        ]
        if self.use_spmd_partitioning:
            build.append(wire.varint(6, 1))
        if self.device_ids is not None:
            build.append(wire.length_delimited(9, self._device_assignment()))
        if self.use_shardy_partitioner:
            build.append(wire.varint(19, 1))
        options = [wire.length_delimited(3, b"".join(build))]
        if self.parameter_is_tupled_arguments:
            options.append(wire.varint(2, 1))
        for name, value in self.flags.items():
            entry = wire.length_delimited(1, name.encode()) + wire.length_delimited(2, _flag(value))
            options.append(wire.length_delimited(7, entry))
        return b"".join(options)

    def _device_assignment(self) -> bytes:
        """One ComputationDevice for each partition, holding the device of every replica."""
        rows = self.device_ids or ()
        message = wire.varint(1, self.num_replicas) + wire.varint(2, self.num_partitions)
        for partition in range(self.num_partitions):
            ids = wire.packed(1, [row[partition] for row in rows])
            message += wire.length_delimited(3, ids)
        return message


def _flag(value: str | bool | int | float) -> bytes:
    """An OptionOverrideProto."""
    if isinstance(value, str):
        return wire.length_delimited(1, value.encode())
    if isinstance(value, bool):
        return wire.varint(2, value)
    if isinstance(value, int):
        return wire.varint(3, value)
    return wire.double(4, value)
