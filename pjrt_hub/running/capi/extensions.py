"""Extensions: the functions of one node of a plugin's extension chain.

Nodes grow apart from the table: each function is gated by its own node's struct_size and NULL.
Must not know what any function is for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import UnsupportedByPluginError
from pjrt_hub.running.capi import hotpath, table
from pjrt_hub.running.capi._pjrt import ffi
from pjrt_hub.running.capi.call import BoundFunction

_POINTER = 8


class Table(Protocol):
    """The table that a chain belongs to: `library.Api`."""

    address: int
    version: ApiVersion
    path: Path


class Extension(hotpath.Functions):
    """One node of a plugin's chain, for example "Layouts".

    Functions go by their C names, "PJRT_Layouts_MemoryLayout_Destroy".

    Attributes:
        name: the extension's.
        size: the node's struct_size in bytes: where it ends, newer functions are missing.
        address: of the node.
    """

    def __init__(self, api: Table, name: str, node: Any) -> None:
        self.name = name
        self.size = int(node.struct_size)
        self.address = int(ffi.cast("uintptr_t", node))
        self._api = api
        row = table.EXTENSIONS[name]
        self._node = ffi.cast(f"{row.struct}*", node)
        self._rows = {
            function.args.removesuffix("_Args"): (field, function)
            for field, function in row.functions.items()
        }

    def has(self, name: str) -> bool:
        """Whether the node holds the function `name` and the pointer is not NULL."""
        field, function = self._rows[name]
        if function.offset + _POINTER > self.size:
            return False  # past the end of the node: not its memory
        return bool(getattr(self._node, field) != ffi.NULL)

    def _bind(self, name: str) -> BoundFunction:
        self.require(name)
        field, function = self._rows[name]
        pointer, minor = getattr(self._node, field), self._api.version.minor
        return BoundFunction(self._api.address, minor, name, pointer, function.args)

    def require(self, name: str) -> None:
        """Refuses a node that lacks the function `name`.

        Raises:
            UnsupportedByPluginError: the plugin's node lacks it.
        """
        if self.has(name):
            return
        _, function = self._rows[name]
        where = f"it is at byte {function.offset} of the extension {self.name}"
        ends = function.offset + _POINTER > self.size
        found = f"the plugin's node has {self.size} bytes" if ends else "there the plugin has NULL"
        raise UnsupportedByPluginError(
            f"the plugin {self._api.path.name} lacks {name}: {where}, {found}",
            function=name,
            since=f"{self.name} of {function.offset + _POINTER} bytes",
            have=f"{self.name} of {self.size} bytes",
        )
