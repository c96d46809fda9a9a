"""From a wish to torch_xla's registry of plugins; loads and fetches nothing."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from pjrt_hub.errors import FrameworkError
from pjrt_hub.frameworks.torch_xla import asked, framework

_LOG = logging.getLogger("pjrt_hub.torch_xla")


def register(
    platform: str | os.PathLike[str] | None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> str:
    """See `pjrt_hub.torch_xla.register`."""
    framework.require()
    from pjrt_hub.frameworks.torch_xla.device_plugin import DevicePlugin

    wanted = None if platform is None else os.fspath(platform)
    if framework.has_begun():
        raise FrameworkError(
            f"{wanted or 'a plugin'} cannot be registered: torch_xla has made its client already",
            hint="register it before the first tensor on a device, or set PJRT_DEVICE=PJRTHUB and "
            f"PJRT_HUB_TORCH_XLA={wanted or 'cpu'}",
        )
    device_type = asked.device_type(wanted, name, framework.device_types())
    framework.use(device_type, DevicePlugin(wanted, options))
    _LOG.info("%s is registered in torch_xla as %s", wanted or "a plugin", device_type)
    return device_type
