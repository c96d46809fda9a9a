"""Memory layouts: the order in which a device's memory holds an array's dimensions.

Owns the layouts that a caller can ask for (`PJRT_Buffer_MemoryLayout` without tiles), also in host
memory; `device.layout` has those that plugins choose, tiles included. Imports numpy late.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pjrt_hub.running.capi import table

if TYPE_CHECKING:
    import numpy

_TILED = table.ENUMS["PJRT_Buffer_MemoryLayout_Type"]["PJRT_Buffer_MemoryLayout_Type_Tiled"]

#: A layout as `minor_to_major`: the dimensions, with the fastest-varying first.
Order = tuple[int, ...]


def order_of(layout: Any, rank: int) -> Order | None:
    """Check and return the layout that a caller asks for, or None if there is no such request."""
    if layout is None:
        return None
    try:
        order = tuple(map(operator.index, layout))
    except TypeError:
        raise TypeError(f"the layout is {layout!r}, not a sequence of ints") from None
    if sorted(order) != list(range(rank)):
        raise ValueError(f"the layout {order} is not a permutation of {rank} dimension(s)")
    return order


def members(order: Order | None, tiles: Sequence[Sequence[int]] = ()) -> Any:
    """Return the layout struct for a C call; 0, which is NULL, if no order is asked for."""
    if order is None:
        return 0
    tiled: dict[str, list[int]] = {"minor_to_major": list(order)}
    if tiles:
        tiled["tile_dims"] = [size for tile in tiles for size in tile]
        tiled["tile_dim_sizes"] = [len(tile) for tile in tiles]
    return {"type": _TILED, "tiled": tiled}


def wish(order: Order | None, bits: int) -> Any:
    """Return the struct for a call that makes a buffer; 0 for row-major, packed elements.

    The struct cannot say that those are packed, and XLA's CPU plugin refuses unpacked ones.
    """
    return members(None if bits < 8 and row_major_or(order) is None else order)


def row_major(rank: int) -> Order:
    """Return the order of C's arrays: the last dimension is the fastest."""
    return tuple(range(rank - 1, -1, -1))


def to_memory(array: Any, order: Order) -> Any:
    """Return the array as it lies in memory of that order: with its slowest dimension first."""
    import numpy

    return numpy.asarray(array.transpose(order[::-1]), order="C")


def from_memory(memory: Any, order: Order) -> numpy.ndarray[Any, Any]:
    """Return the array that memory of that order holds: the inverse of `to_memory`, as a view."""
    slowest_first = order[::-1]
    array: numpy.ndarray[Any, Any] = memory.transpose(
        [slowest_first.index(d) for d in range(len(order))]
    )
    return array


def arrange(array: Any, order: Order) -> numpy.ndarray[Any, Any]:
    """Return the same array, laid out in memory in that order; copied only if necessary."""
    lying = to_memory(array, order)
    lying.flags.writeable = False
    return from_memory(lying, order)


def row_major_or(layout: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Replace row-major by None, so that layouts compare by identity in the common case."""
    if layout is None or layout == row_major(len(layout)):
        return None
    return layout
