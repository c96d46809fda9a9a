"""Packed elements: several of less than a byte in the bytes that hold them, and back.

Owns the one order that safetensors, DLPack and the devices share: the first element has the lowest
bits. Imports numpy late; must not know where the bytes come from.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy


def nbytes(size: int, bits: int) -> int:
    """Return the bytes of that many elements of so many bits, the last one filled up."""
    return -(-size * bits // 8)


def unpack(
    data: Any, shape: tuple[int, ...], bits: int, dtype: numpy.dtype[Any]
) -> numpy.ndarray[Any, Any]:
    """Return an array with a byte for each element, which is what numpy needs.

    `data` are the bytes as an array of uint8, `dtype` is one of a byte.
    """
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
    """Return the bytes of an array's elements in row-major order, which `unpack` takes."""
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
    """Return how many elements end where a byte ends, and in how many bytes."""
    together = math.lcm(bits, 8)
    return together // bits, together // 8
