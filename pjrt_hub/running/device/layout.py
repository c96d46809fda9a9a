"""Layouts as plugins tell them: how an array lies in a device's memory, tiles included.

Owns their text, and the layouts that a plugin chooses if a program names none (extension Layouts).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pjrt_hub.running.array import dtypes
from pjrt_hub.running.capi import hotpath
from pjrt_hub.running.capi.handle import Handle
from pjrt_hub.running.capi.library import Api

_ORDER = re.compile(r"\{([\d,]*)")
_TILE = re.compile(r"\(([\d,*]+)\)")


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array lies in memory (`PJRT_Layouts_MemoryLayout`)."""

    text: str  # The layout as XLA writes it, such as "{1,0:T(8,128)}".

    @property
    def minor_to_major(self) -> tuple[int, ...]:
        """The dimensions, fastest-varying first."""
        found = _ORDER.match(self.text)
        return tuple(map(int, filter(None, found[1].split(",")))) if found else ()

    @property
    def tiles(self) -> tuple[tuple[int, ...], ...]:
        """The tiles, outermost first; a dimension that is combined with the next one is -1."""
        _, _, rest = self.text.partition("T")
        tiles = re.match(r"(\([\d,*]+\))*", rest)
        return tuple(
            tuple(-1 if size == "*" else int(size) for size in each.split(","))
            for each in _TILE.findall(tiles[0] if tiles else "")
        )

    def __str__(self) -> str:
        return self.text


def default_layout(place: Handle, dtype: Any, shape: Sequence[int]) -> Layout:
    """Return the layout that a plugin chooses if a program names none, for a client or topology."""
    element = dtypes.of_numpy(dtype)
    dtypes.require(element, place.api.version)
    dims = [int(size) for size in shape]
    if any(size < 0 for size in dims):
        raise ValueError(f"the shape {tuple(dims)} has a negative dimension")
    if isinstance(place, hotpath.Client):
        name, owner = "PJRT_Layouts_PJRT_Client_GetDefaultLayout", "client"
    else:
        name, owner = "PJRT_Layouts_PJRT_Topology_GetDefaultLayout", "topology_description"
    with place._in_call():
        call = place.api.extension("Layouts").call
        layout = call(name, **{owner: place.address}, type=element.code, dims=dims)
        return take(place.api, layout)


def take(api: Api, layout: int) -> Layout:
    """Read and free a layout that the caller owns."""
    try:
        return read(api, layout)
    finally:
        api.extension("Layouts").call("PJRT_Layouts_MemoryLayout_Destroy", layout=layout)


def read(api: Api, layout: int) -> Layout:
    """Read a layout that the plugin owns."""
    node = api.extension("Layouts")
    text = node.call("PJRT_Layouts_MemoryLayout_Serialize", layout=layout)
    return Layout(text.decode())
