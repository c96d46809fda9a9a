"""Arrays in tiles: the tiles that libtpu chooses, and a numpy model of the elements in them."""

from __future__ import annotations

import ml_dtypes
import numpy as np

#: dtype, shape, and the tiles and their bytes that libtpu 0.0.52 chooses for it on a v5e.
ARRAYS = [
    ("float32", (), "T(128)", 512),
    ("float32", (200,), "T(256)", 1024),
    ("float32", (5000,), "T(1024)", 20480),
    ("float32", (1, 128), "T(1,128)", 512),
    ("float32", (3, 5), "T(4,128)", 2048),
    ("float32", (9, 130), "T(8,128)", 16384),
    ("float32", (3, 16, 130), "T(8,128)", 49152),
    ("float64", (3, 5), "T(4,128)", 4096),
    ("complex64", (9, 130), "T(8,128)", 32768),
    ("bfloat16", (), "T(256)", 512),
    ("bfloat16", (300,), "T(512)(128)(2,1)", 1024),
    ("bfloat16", (1, 128), "T(2,128)(2,1)", 512),
    ("bfloat16", (9, 130), "T(8,128)(2,1)", 8192),
    ("float16", (2, 16, 128), "T(8,128)(2,1)", 8192),
    ("int8", (700,), "T(1024)(128)(4,1)", 1024),
    ("int8", (9, 130), "T(8,128)(4,1)", 4096),
    ("int8", (32, 130), "T(32,128)(4,1)", 8192),
    ("bool", (5, 128), "T(8,128)(4,1)", 1024),
    ("float8_e5m2", (64, 128), "T(32,128)(4,1)", 8192),
    ("int4", (), "T(1024)E(4)", 512),
    ("uint4", (1500,), "T(1024)(128)(8,1)E(4)", 1024),
    ("int4", (9, 130), "T(8,128)(8,1)E(4)", 2048),
    ("uint4", (2, 64, 130), "T(64,128)(8,1)E(4)", 16384),
    ("int2", (3000,), "T(2048)(128)(16,1)E(2)", 1024),
    ("int2", (9, 130), "T(16,128)(16,1)E(2)", 1024),
    ("uint2", (128, 128), "T(128,128)(16,1)E(2)", 4096),
]


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def tiles_in(text):
    """The tiles in a text such as "T(8,128)(2,1)E(4)"."""
    return [
        tuple(map(int, each.split(","))) for each in text[2:].split(")E")[0].rstrip(")").split(")(")
    ]


def lying(array, order, text):
    """The bytes of an array in tiles, and a mask of the bits that belong to elements."""
    bits = int(text.partition("E(")[2].rstrip(")") or 8 * array.dtype.itemsize)
    itemsize = array.dtype.itemsize
    flat = np.ascontiguousarray(array.transpose(order[::-1]) if array.ndim else array.reshape(1))
    elements = flat.view(np.uint8).reshape(*flat.shape, itemsize)
    there = np.ones_like(elements, dtype=bool)
    for tile in tiles_in(text):
        elements, there = (divide(each, tile) for each in (elements, there))
    elements, there = elements.reshape(-1, itemsize), there.reshape(-1, itemsize)
    if bits == 8 * itemsize:
        return elements.reshape(-1), np.where(there.reshape(-1), 255, 0).astype(np.uint8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    mask = np.uint8(2**bits - 1)
    packed = [(each.reshape(-1, 8 // bits) & mask) << shifts for each in (elements, there * mask)]
    return tuple(np.bitwise_or.reduce(each, axis=1) for each in packed)


def divide(elements, tile):
    """Split the last dimensions into consecutive tiles, and keep each element's bytes together."""
    first = elements.ndim - 1 - len(tile)
    sizes = elements.shape[first:-1]
    fill = [(0, -size % part) for size, part in zip(sizes, tile, strict=True)]
    filled = np.pad(elements, [(0, 0)] * first + fill + [(0, 0)])
    split = [(each // part, part) for each, part in zip(filled.shape[first:-1], tile, strict=True)]
    blocks = filled.reshape(*filled.shape[:first], *sum(split, ()), filled.shape[-1])
    within = range(len(tile))
    outer, inner = [first + 2 * i for i in within], [first + 2 * i + 1 for i in within]
    return blocks.transpose(*range(first), *outer, *inner, blocks.ndim - 1)
