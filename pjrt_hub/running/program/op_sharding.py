"""OpShardings: which part of an array each device has, as a compiler split it.

Read from the optimized HLO, where XLA leaves one for each parameter and each output of a program
that it partitioned. Must not move data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pjrt_hub.running.capi import wire
from pjrt_hub.running.program import hlo
from pjrt_hub.running.program.main_function import DEEPEST

Part = tuple[slice, ...]

#: The fields that tell which device has which part.
_FIELDS = (
    *(hlo.SHARDING_TYPE, hlo.SHARDING_TILES, hlo.SHARDING_DEVICES),
    *(hlo.SHARDING_IOTA, hlo.SHARDING_IOTA_ORDER, hlo.SHARDING_COPIES),
)


def of_program(code: bytes, form: str) -> tuple[list[bytes], list[bytes]]:
    """Read the OpShardings of an optimized program's parameters and outputs; empty if unsaid."""
    module = hlo.module_in(code, form)
    numbers = (hlo.MODULE_PARAMETER_SHARDINGS, hlo.MODULE_OUTPUT_SHARDING)
    parameters, outputs = (
        [one for each in wire.messages(module, number) for one in _flatten(each)]
        for number in numbers
    )
    return parameters, outputs


def of_instructions(code: bytes) -> tuple[list[bytes | None], list[bytes | None]]:
    """Read an HloModuleProto's OpShardings, as `of_program`; None for each left to the compiler."""
    module = memoryview(code)
    entry = dict(wire.fields(module)).get(hlo.MODULE_ENTRY_ID)
    for computation in wire.messages(module, hlo.MODULE_COMPUTATIONS):
        if dict(wire.fields(computation)).get(hlo.COMPUTATION_ID) == entry:
            return _of_computation(computation)
    raise ValueError("the module has no entry computation")


def _of_computation(computation: memoryview) -> tuple[list[bytes | None], list[bytes | None]]:
    root = dict(wire.fields(computation)).get(hlo.COMPUTATION_ROOT)
    parameters: dict[int, list[bytes | None]] = {}
    outputs: list[bytes | None] = [None]
    for instruction in wire.messages(computation, hlo.COMPUTATION_INSTRUCTIONS):
        told = dict(wire.fields(instruction))
        opcode, sharding = (told.get(n) for n in (hlo.INSTRUCTION_OPCODE, hlo.INSTRUCTION_SHARDING))
        each: list[bytes | None] = [None]
        if isinstance(sharding, memoryview):
            each = [*_flatten(sharding)]
        if isinstance(opcode, memoryview) and opcode.tobytes() == b"parameter":
            place = told.get(hlo.PARAMETER_NUMBER, 0)
            parameters[place if isinstance(place, int) else 0] = each
        if told.get(hlo.INSTRUCTION_ID) == root:
            outputs = each
    return [one for _, each in sorted(parameters.items()) for one in each], outputs


def parts(sharding: bytes, shape: Sequence[int], count: int) -> list[Part]:
    """Return each device's part of an array: all of it for an empty OpSharding; or ValueError."""
    import numpy as np

    kind, tiles, listed, iota, order, copies = read(sharding)
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
    # Tiles that differ only in dimensions beyond the array's are copies.
    for place, device in np.ndenumerate(devices.reshape(tiles)):
        starts = (piece * length for piece, length in zip(place, lengths, strict=False))
        found[device] = tuple(
            slice(start, start + length) for start, length in zip(starts, lengths, strict=True)
        )
    return found


def read(sharding: bytes) -> list[list[int]]:
    """Read the numbers in each of `_FIELDS`, the type and the tiles first."""
    numbers: dict[int, list[int]] = {}
    for number, value in wire.fields(memoryview(sharding)):
        if number in _FIELDS:
            numbers.setdefault(number, []).extend(wire.integers(value))
    return [numbers.get(each, []) for each in _FIELDS]


def _flatten(sharding: memoryview, depth: int = 0) -> Iterator[bytes]:
    """Yield the OpShardings in a tuple, or the given one if it is not a tuple."""
    if depth > DEEPEST:
        raise ValueError("tuples in one another, deeper than any program has")
    if (hlo.SHARDING_TYPE, hlo.TUPLE) not in wire.fields(sharding):
        yield bytes(sharding)
    for each in wire.messages(sharding, hlo.SHARDING_TUPLE):
        yield from _flatten(each, depth + 1)
