"""Memory layouts: the order in which a device's memory holds an array's dimensions.

Owns what a caller may wish for, `PJRT_Buffer_MemoryLayout` without tiles, and what that means for
host memory. What plugins choose, tiles included, is `layouts`. Imports numpy late.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from pjrt_hub.running.capi import table

if TYPE_CHECKING:
    import numpy

_TILED = table.ENUMS["PJRT_Buffer_MemoryLayout_Type"]["PJRT_Buffer_MemoryLayout_Type_Tiled"]

#: minor_to_major: the dimensions, fastest-varying first.
Order = tuple[int, ...]


def order_of(layout: Any, rank: int) -> Order | None:
    """The layout that a caller wishes for; None where he has no wish.

    Raises:
        TypeError: it is no sequence of ints.
        ValueError: it is no permutation of the dimensions.
    """
    if layout is None:
        return None
    try:
        order = tuple(map(operator.index, layout))
    except TypeError:
        raise TypeError(f"the layout is {layout!r}, not a sequence of ints") from None
    if sorted(order) != list(range(rank)):
        raise ValueError(f"the layout {order} is no permutation of {rank} dimension(s)")
    return order


def members(order: Order | None) -> Any:
    """The struct for a call; 0, which is NULL, where there is no wish."""
    return 0 if order is None else {"type": _TILED, "tiled": {"minor_to_major": list(order)}}


def stored(array: Any, order: Order) -> Any:
    """The array as memory of that order holds it: contiguous, its slowest dimension first."""
    import numpy

    return numpy.asarray(array.transpose(order[::-1]), order="C")


def logical(memory: Any, order: Order) -> numpy.ndarray[Any, Any]:
    """The array that memory of that order holds: the inverse of `stored`, as a view."""
    slowest_first = order[::-1]
    array: numpy.ndarray[Any, Any] = memory.transpose(
        [slowest_first.index(d) for d in range(len(order))]
    )
    return array


def laid_out(array: Any, order: Order) -> numpy.ndarray[Any, Any]:
    """The array as memory of that order holds it, seen logically; copied where it must be."""
    lying = stored(array, order)
    lying.flags.writeable = False
    return logical(lying, order)


def row_major_or(layout: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Writes row-major as None, so that layouts compare by identity in the common case."""
    if layout is None or layout == tuple(range(len(layout) - 1, -1, -1)):
        return None
    return layout
