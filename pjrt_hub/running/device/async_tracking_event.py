"""Async tracking events: a device is told of work that it cannot see.

Must not wait: the plugin only shows them to whoever looks at what a device waits for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pjrt_hub.running.device.closing import Closing

if TYPE_CHECKING:
    from pjrt_hub.running.device.device import Device


class AsyncTrackingEvent(Closing):
    """A `PJRT_AsyncTrackingEvent`: work that a device waits for; ends with `close` or a `with`.

    Attributes:
        device: the device.
        description: what the work is.
    """

    def __init__(self, device: Device, description: str) -> None:
        self.device = device
        self.description = description
        self._address: int = device.client._call(
            "PJRT_Device_CreateAsyncTrackingEvent", device=device._address, description=description
        )

    def close(self) -> None:
        """End the work (`PJRT_AsyncTrackingEvent_Destroy`); may be called again."""
        address, self._address = self._address, 0
        if address:
            self.device.client._call("PJRT_AsyncTrackingEvent_Destroy", event=address)
