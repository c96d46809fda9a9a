"""Device descriptions: what is known of a device whether or not it is there.

Borrowed from a client or a topology, whose native objects they end with; they are never freed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pjrt_hub.base.fork import cached_property
from pjrt_hub.errors import ClosedError


class Owner(Protocol):
    """What a description belongs to: a client or a topology."""

    def _call(self, function: str, /, **inputs: Any) -> Any: ...


class DeviceDescription:
    """A `PJRT_DeviceDescription`.

    Attributes:
        id: unique among the devices of its client or topology (`PJRT_DeviceDescription_Id`).
    """

    def __init__(self, owner: Owner, address: int) -> None:
        self._owner = owner
        self._description = address
        # Read at once, because messages name devices after their client was closed, too.
        self.id = int(self._describe("PJRT_DeviceDescription_Id"))

    @cached_property
    def kind(self) -> str:
        """The vendor's name for it, "NVIDIA H100 80GB HBM3" (`PJRT_DeviceDescription_Kind`)."""
        return str(self._describe("PJRT_DeviceDescription_Kind").decode())

    @cached_property
    def process_index(self) -> int:
        """The process that it belongs to (`PJRT_DeviceDescription_ProcessIndex`)."""
        return int(self._describe("PJRT_DeviceDescription_ProcessIndex"))

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """The vendor's attributes of the device (`PJRT_DeviceDescription_Attributes`)."""
        attributes: Mapping[str, Any] = self._describe("PJRT_DeviceDescription_Attributes")
        return attributes

    @property
    def coords(self) -> tuple[int, ...] | None:
        """Its coordinates (x, y, z), or None if the plugin reports none."""
        coords = self.attributes.get("coords")
        return coords if isinstance(coords, tuple) else None

    @cached_property
    def debug_string(self) -> str:
        """The plugin's long description (`PJRT_DeviceDescription_DebugString`)."""
        return str(self._describe("PJRT_DeviceDescription_DebugString").decode())

    def to_string(self) -> str:
        """The plugin's short description (`PJRT_DeviceDescription_ToString`)."""
        return str(self._describe("PJRT_DeviceDescription_ToString").decode())

    def _describe(self, function: str) -> Any:
        return self._owner._call(function, device_description=self._description)

    def __repr__(self) -> str:
        try:
            coords = f" at {self.coords}" if self.coords is not None else ""
            return f"<DeviceDescription {self.id} {self.kind!r}{coords}>"
        except ClosedError:
            return "<DeviceDescription closed>"
