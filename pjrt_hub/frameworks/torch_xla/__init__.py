"""torch_xla on any plugin that pjrt-hub finds: `register`, and the class for plugins.

Importing it imports nothing of torch and nothing heavy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pjrt_hub.frameworks.torch_xla.device_plugin import DevicePlugin as DevicePlugin

__all__ = ["DevicePlugin", "register"]


def register(
    platform: str | os.PathLike[str] | None = None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> str:
    """Register a plugin as torch_xla's device; fetch and load nothing before torch_xla uses it.

    It sets PJRT_DEVICE in this process. torch_xla drives one plugin in a process.

    Args:
        platform: what `pjrt_hub.client` takes: "cuda", a plugin, an alias, "distribution:plugin";
            or the path of a library. None lets pjrt-hub choose.
        name: the device type's name in torch_xla: letters and digits. By default the platform's
            name with "HUB" before it, such as HUBCUDA.
        options: create options of the plugin's client, checked before they reach it.

    Returns:
        The device type.

    Raises:
        FrameworkError: torch_xla is missing, too old or has begun already, or the name is taken.
        ValueError: the name is not a valid one.
    """
    from pjrt_hub.frameworks.torch_xla import framework

    framework.require()
    from pjrt_hub.frameworks.torch_xla.device_plugin import register

    return register(platform, name, options)


def __getattr__(name: str) -> object:
    if name == "DevicePlugin":
        from pjrt_hub.frameworks.torch_xla import framework

        framework.require()
        from pjrt_hub.frameworks.torch_xla.device_plugin import DevicePlugin

        return DevicePlugin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
