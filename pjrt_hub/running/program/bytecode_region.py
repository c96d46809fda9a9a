"""Regions in MLIR's bytecode: their blocks and operations, read and written without MLIR.

The layout is that of MLIR's BytecodeFormat documentation, "IR Section". Must not know what any
operation means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pjrt_hub.running.program import bytecode
from pjrt_hub.running.program.bytecode import Reader, require_count, write_numbers, write_section
from pjrt_hub.running.program.main_function import DEEPEST, Unreadable

#: The bits that tell what follows an operation's name and location.
_HAS_ATTRIBUTES, _HAS_REGIONS, _HAS_USE_ORDERS, _HAS_PROPERTIES = 1, 16, 32, 64
_HAS_NUMBERS = (2, 4, 8)  # Result types, operands, and successor blocks.
#: The versions that let blocks keep the order of uses, and arguments lack a location.
_BLOCK_USE_ORDERS, _OPTIONAL_PLACES = 3, 4


class Operation(NamedTuple):
    """An operation; all that it refers to, it refers to by number."""

    name: int
    location: int
    attributes: int | None
    properties: int | None
    results: Sequence[int]  # The types of its results.
    operands: Sequence[int]  # Values, as `Region` numbers them.
    successors: Sequence[int]
    regions: Sequence[Region | Reader]  # Those that stand alone are not read yet.


class Block(NamedTuple):
    """A block's arguments and operations."""

    arguments: Sequence[tuple[int, int | None]]  # The type and the location of each.
    operations: Sequence[Operation]


class Region(NamedTuple):
    """A region's blocks, and the number of values that they define.

    Values are numbered in their order: a block's arguments before its operations' results. The
    numbers of a region go on from those of the region round it, unless it stands alone.
    """

    num_values: int
    blocks: Sequence[Block]


def read_operation(reader: Reader, version: int, depth: int = 0) -> Operation:
    """Read an operation with its regions; Unreadable if it keeps the order of uses."""
    name, has = reader.varint(), reader.take(1)[0]
    location = reader.varint()
    attributes = reader.varint() if has & _HAS_ATTRIBUTES else None
    properties = reader.varint() if has & _HAS_PROPERTIES else None
    results, operands, successors = (
        reader.varints(reader.varint()) if has & each else () for each in _HAS_NUMBERS
    )
    if has & _HAS_USE_ORDERS:
        raise Unreadable("the bytecode keeps the order of uses")
    regions = list[Region | Reader]()
    if has & _HAS_REGIONS:
        count = reader.varint()
        stands_alone = count & 1 and version >= bytecode.LAZY_BODIES
        for _ in range(require_count(count >> 1, reader)):
            regions.append(
                bytecode.section(reader)[1]
                if stands_alone
                else read_region(reader, version, depth + 1)
            )
    return Operation(name, location, attributes, properties, results, operands, successors, regions)


def read_region(reader: Reader, version: int, depth: int = 0) -> Region:
    """Read a region; those in it that stand alone stay unread."""
    if depth > DEEPEST:
        raise Unreadable("regions in one another, deeper than any program has")
    count = require_count(reader.varint(), reader)
    num_values = reader.varint() if count else 0
    return Region(num_values, [_read_block(reader, version, depth) for _ in range(count)])


def _read_block(reader: Reader, version: int, depth: int) -> Block:
    count = reader.varint()
    arguments = list[tuple[int, int | None]]()
    if count & 1:
        for _ in range(require_count(reader.varint(), reader)):
            kind, location = reader.varint(), None
            if version < _OPTIONAL_PLACES or kind & 1:
                location = reader.varint()
            arguments.append((kind if version < _OPTIONAL_PLACES else kind >> 1, location))
        if version >= _BLOCK_USE_ORDERS and reader.take(1)[0]:
            raise Unreadable("the bytecode keeps the order of uses")
    number = require_count(count >> 1, reader)
    return Block(arguments, [read_operation(reader, version, depth) for _ in range(number)])


def write_operation(operation: Operation) -> bytes:
    """Write an operation in the form of the versions that have `Operation.properties`."""
    lists = (operation.results, operation.operands, operation.successors)
    has = sum(bit for bit, numbers in zip(_HAS_NUMBERS, lists, strict=True) if numbers)
    has |= _HAS_REGIONS * bool(operation.regions)
    numbers = list[int]()
    for bit, each in (
        (_HAS_ATTRIBUTES, operation.attributes),
        (_HAS_PROPERTIES, operation.properties),
    ):
        if each is not None:
            has |= bit
            numbers.append(each)
    for listed in lists:
        numbers += [len(listed), *listed] if listed else []
    head = write_numbers(operation.name) + bytes([has]) + write_numbers(operation.location)
    parts = [head, write_numbers(*numbers)]
    if operation.regions:
        stand_alone = [each for each in operation.regions if isinstance(each, Reader)]
        parts.append(write_numbers(len(operation.regions) << 1 | bool(stand_alone)))
        for region in operation.regions:
            if isinstance(region, Reader):
                parts.append(write_section(bytecode.OPERATIONS, region.again().rest()))
            else:
                parts.append(write_region(region))
    return b"".join(parts)


def write_region(region: Region) -> bytes:
    """Write a region, as `write_operation` does."""
    if not region.blocks:
        return write_numbers(0)
    parts = [write_numbers(len(region.blocks), region.num_values)]
    for arguments, operations in region.blocks:
        parts.append(write_numbers(len(operations) << 1 | bool(arguments)))
        if arguments:
            parts.append(write_numbers(len(arguments)))
            for kind, location in arguments:
                known = () if location is None else (location,)
                parts.append(write_numbers(kind << 1 | len(known), *known))
            parts.append(b"\0")  # The order of uses is not kept.
        parts += map(write_operation, operations)
    return b"".join(parts)
