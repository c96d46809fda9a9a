"""OpShardings (layer 2): which part of an array each device has, as a compiler split it.

Read from the optimized HLO, where XLA leaves one for each parameter and each output of a program
that it partitioned. Must not move data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pjrt_hub._capi import wire
from pjrt_hub.runtime import hlo

Part = tuple[slice, ...]

#: The numbers of the fields that say who has what.
_FIELDS = (
    *(hlo.SHARDING_TYPE, hlo.SHARDING_TILES, hlo.SHARDING_DEVICES),
    *(hlo.SHARDING_IOTA, hlo.SHARDING_IOTA_ORDER, hlo.SHARDING_COPIES),
)


def of_program(code: bytes, form: str) -> tuple[list[bytes], list[bytes]]:
    """Reads the OpShardings of all parameters, and those of all outputs, from an optimized program.

    Args:
        code: an HloModuleProto, or one with its configuration around it.
        form: the format that the plugin names, "hlo" or "hlo_with_config".

    Returns:
        Either is empty where the program says nothing.

    Raises:
        ValueError: the bytes are not what their format says.
    """
    parameters: list[bytes] = []
    outputs: list[bytes] = []
    for number, value in wire.fields(hlo.module_in(code, form)):
        if number == hlo.MODULE_PARAMETER_SHARDINGS and isinstance(value, memoryview):
            parameters += _flattened(value)
        elif number == hlo.MODULE_OUTPUT_SHARDING and isinstance(value, memoryview):
            outputs += _flattened(value)
    return parameters, outputs


def parts(sharding: bytes, shape: Sequence[int], count: int) -> list[Part]:
    """Gives the part of an array that each device has.

    Args:
        sharding: an OpSharding; where it is empty, each device has all.
        shape: of the whole array.
        count: of the devices.

    Raises:
        ValueError: it says something else than parts and copies of them.
    """
    import numpy as np

    numbers: dict[int, list[int]] = {}
    for number, value in wire.fields(memoryview(sharding)):
        if number in _FIELDS:
            numbers.setdefault(number, []).extend(wire.integers(value))
    kind, tiles, listed, iota, order, copies = (numbers.get(each, []) for each in _FIELDS)
    if kind in ([], [hlo.REPLICATED]):
        return [tuple(slice(0, size) for size in shape)] * count
    if kind != [hlo.TILED] or any(copies):
        raise ValueError(f"one has the type {kind} and {copies} behind its tiles")
    devices = np.array(listed) if listed else np.arange(math.prod(iota)).reshape(iota)
    if order:
        devices = devices.transpose(order)
    if sorted(devices.flat) != list(range(count)) or len(tiles) < len(shape):
        raise ValueError(f"{tiles} tiles of {list(shape)} on the devices {devices.tolist()}")
    lengths = [-(-size // pieces) for size, pieces in zip(shape, tiles, strict=False)]
    found: list[Part] = [()] * count
    # What tiles have more of than the array has dimensions is copies.
    for place, device in np.ndenumerate(devices.reshape(tiles)):
        starts = (piece * length for piece, length in zip(place, lengths, strict=False))
        found[device] = tuple(
            slice(start, start + length) for start, length in zip(starts, lengths, strict=True)
        )
    return found


def _flattened(sharding: memoryview) -> Iterator[bytes]:
    """The OpShardings of a tuple, or the one."""
    found = list(wire.fields(sharding))
    if (hlo.SHARDING_TYPE, hlo.TUPLE) not in found:
        yield bytes(sharding)
    for number, value in found:
        if number == hlo.SHARDING_TUPLE and isinstance(value, memoryview):
            yield from _flattened(value)
