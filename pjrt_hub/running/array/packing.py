"""Packed elements: packing elements of less than a byte into bytes, and unpacking them.

Owns the one order that safetensors, DLPack and the devices share: the first element has the lowest
bits. Imports numpy late; must not know where the bytes come from.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy


def nbytes(size: int, bits: int) -> int:
    """Return how many bytes `size` packed elements of `bits` bits take, rounded up."""
    return -(-size * bits // 8)


def unpack(
    data: Any, shape: tuple[int, ...], bits: int, dtype: numpy.dtype[Any]
) -> numpy.ndarray[Any, Any]:
    """Unpack an array of uint8 into elements of `dtype`, which take a byte each in numpy."""
    import numpy

    per_group, group_nbytes = _group(bits)
    size = math.prod(shape)
    padded = numpy.zeros((-(-len(data) // group_nbytes), group_nbytes), numpy.uint8)
    padded.reshape(-1)[: len(data)] = data
    elements = numpy.zeros((len(padded), per_group), numpy.uint8)
    for place in range(per_group):
        byte, shift = divmod(place * bits, 8)
        elements[:, place] = padded[:, byte] >> shift
        if shift + bits > 8:  # The element's other bits are in the next byte.
            elements[:, place] |= padded[:, byte + 1] << (8 - shift)
    elements &= 2**bits - 1
    return elements.reshape(-1)[:size].view(dtype).reshape(shape)


def pack(array: numpy.ndarray[Any, Any], bits: int) -> numpy.ndarray[Any, Any]:
    """Pack an array's elements, in row-major order, into the bytes that `unpack` takes."""
    import numpy

    per_group, group_nbytes = _group(bits)
    elements = numpy.zeros((-(-array.size // per_group), per_group), numpy.uint8)
    elements.reshape(-1)[: array.size] = numpy.ascontiguousarray(array).reshape(-1).view("u1")
    elements &= 2**bits - 1
    packed = numpy.zeros((len(elements), group_nbytes), numpy.uint8)
    for place in range(per_group):
        byte, shift = divmod(place * bits, 8)
        packed[:, byte] |= elements[:, place] << shift
        if shift + bits > 8:
            packed[:, byte + 1] |= elements[:, place] >> (8 - shift)
    return packed.reshape(-1)[: nbytes(array.size, bits)]


def _group(bits: int) -> tuple[int, int]:
    """Return the least number of elements that exactly fill bytes, and how many bytes."""
    together = math.lcm(bits, 8)
    return together // bits, together // 8
