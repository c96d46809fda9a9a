"""Sharding attributes: into how many parts a program says that it splits each dimension.

Owns their forms: HLO's text, an OpSharding, Shardy's. Must not know which device has what.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache

from pjrt_hub.running.program import hlo, mlir_text, op_sharding
from pjrt_hub.running.program.main_function import Attributes, Mesh

_SHARDY, _EXPORTED, _GSPMD = "sdy.sharding", "xla.sdy.sharding", "mhlo.sharding"
_FRONTEND = "mhlo.frontend_attributes"
#: A sharding in HLO's text: `{devices=[4,1,2]<=[8] last_tile_dim_replicate}`, or without tiles.
_TILES = re.compile(rb"\{\s*devices=\[([\d,\s]*)\]")
_WHOLE = re.compile(rb"\{\s*(?:replicated|manual|maximal\s+device=\d+)\b[^{]*\}")
#: A sharding of Shardy: `#sdy.sharding<@mesh, [{"x"}, {"y", ?}p1], replicated={"z"}>`.
_SHARDING = re.compile(
    r'#sdy\.sharding<\s*(?:@(?P<name>[\w$.-]+|"[^"]*")|mesh(?P<mesh><[^>]*>))\s*,'
    r"\s*\[(?P<dimensions>[^\[\]]*)\]\s*[,>]"
)
_DIMENSION = re.compile(r"\s*\{(?P<axes>[^{}]*)\}(?:p\d+)?\s*(?:,|$)")
_AXIS = re.compile(r'\s*"(?P<name>[^"]*)"(?::\(\d+\)(?P<size>\d{1,10}))?\s*(?:,|$)')
#: The most characters of a Shardy annotation: arrays may share one, but each of them parses it.
_LONGEST = 1 << 12
_NOT_SPLIT = frozenset({hlo.REPLICATED, hlo.MAXIMAL, hlo.MANUAL})

Shape = tuple[int, ...]
Meshes = Callable[[], Mapping[str, Mesh]]


def part(attributes: Attributes, shape: Shape, meshes: Meshes) -> Shape | None:
    """Read the shape of each device's part of a parameter or result; None if the compiler chooses.

    `meshes`, which gives the meshes that Shardy's annotations name, is called only if one does.
    """
    frontend = attributes.get(_FRONTEND)
    exported = frontend.get(_EXPORTED) if isinstance(frontend, dict) else None
    shardy, told = attributes.get(_SHARDY, exported), attributes.get(_GSPMD)
    if isinstance(shardy, bytes):
        shardy = shardy.decode("utf-8", "replace")
    if isinstance(shardy, str):
        tiles = _of_shardy(shardy, meshes)
        return _divide(shape, tiles) if tiles is not None and _is_even(shape, tiles) else None
    if not isinstance(told, bytes):
        return None
    if told.lstrip().startswith(b"{"):
        return _divide(shape, _of_text(told, len(shape)))
    return part_of_proto(told, shape)


def part_of_proto(message: bytes, shape: Shape) -> Shape | None:
    """Read from an OpSharding which shape each device's part has; see `part`."""
    return _divide(shape, _of_proto(message, len(shape)))


def _is_even(shape: Shape, tiles: Shape) -> bool:
    """Tell whether XLA splits an array under Shardy: it leaves uneven and empty ones whole."""
    return 0 not in (*shape, *tiles) and not any(map(operator.mod, shape, tiles))


def _divide(shape: Shape, tiles: Shape | None) -> Shape | None:
    """Return the shape of one device's part of an array; uneven parts are padded."""
    if tiles is None or len(tiles) != len(shape) or not all(each > 0 for each in tiles):
        return None
    return tuple(-(-size // each) for size, each in zip(shape, tiles, strict=True))


@lru_cache(maxsize=64)
def _of_proto(message: bytes, rank: int) -> Shape | None:
    """Return the number of pieces of each dimension; further dimensions of tiles are copies."""
    with suppress(ValueError):
        kind, tiles, *_ = op_sharding.read(message)
        if not kind or kind[-1] in _NOT_SPLIT:
            return (1,) * rank
        if kind[-1] == hlo.TILED:
            return tuple(tiles[:rank])
    return None


def _of_text(told: bytes, rank: int) -> Shape | None:
    if _WHOLE.fullmatch(told.strip()):
        return (1,) * rank
    tiles = _TILES.match(told.strip())
    if tiles is None:
        return None
    return tuple(int(each) for each in tiles[1].split(b",")[:rank] if each.strip())


def _of_shardy(told: str, meshes: Meshes) -> Shape | None:
    sharding = _SHARDING.match(told.strip()) if len(told) <= _LONGEST else None
    if sharding is None:
        return None
    inline, name = sharding["mesh"], sharding["name"]
    mesh = meshes().get(name.strip('"')) if inline is None else mlir_text.axes(inline.encode())
    if mesh is None:
        return None
    found, position = list[int](), 0
    while dimension := _DIMENSION.match(sharding["dimensions"], position):
        position = dimension.end()
        count = _product(dimension["axes"], mesh)
        if count is None:
            return None
        found.append(count)
    return tuple(found) if not sharding["dimensions"][position:].strip() else None


def _product(axes: str, mesh: Mesh) -> int | None:
    """Return the number of pieces of a dimension; None if it is open, for a compiler to split."""
    sizes, position = list[int](), 0
    while axis := _AXIS.match(axes, position):
        position = axis.end()
        size = int(axis["size"]) if axis["size"] else mesh.get(axis["name"])
        if size is None:
            return None
        sizes.append(size)
    return math.prod(sizes) if not axes[position:].strip() else None
