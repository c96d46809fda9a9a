"""A table through which a framework drives a newer plugin: it enlarges the framework's structs.

Plugins may insist on structs as large as in their own release, and an older framework makes smaller
ones.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pjrt_hub.door.process import environment
from pjrt_hub.errors import FrameworkError

if TYPE_CHECKING:
    from pjrt_hub.base.abi import ApiVersion
    from pjrt_hub.running.client.plugin import Plugin


def table(plugin: Plugin, framework: str, built_with: ApiVersion | None, logger: str) -> int:
    """Return the address of the plugin's table, or of one that pads structs that are too short.

    `framework` is its name and release, for messages: "JAX 0.4.38"; `built_with` is its PJRT API,
    or None if unknown. If padding is needed, but not among the layers that the user asked for, it
    raises FrameworkError.
    """
    from pjrt_hub.running.interpose import layers

    theirs = plugin.api_version
    host = built_with.minor if built_with else 0
    growing = layers.growing_structs(host, theirs.minor)
    if built_with and not growing:
        return plugin.api.address
    why = (
        f"{framework}, built with PJRT API {built_with or 'of an unknown version'}, may send "
        f"smaller structs than {plugin.name}, {theirs}, insists on"
    )
    asked = environment().get("PJRT_HUB_LAYERS", "")
    if asked:  # A process keeps the layers that it began with.
        if "pad" not in [name.strip() for name in asked.split(",")]:
            raise FrameworkError(
                f"{why}, and the layers of this process, {asked}, do not pad them",
                hint=f"PJRT_HUB_LAYERS={asked},pad, or pjrt-hub trace --pad",
            )
        return plugin.api.address
    logging.getLogger(logger).info("%s: they are padded on their way", why)
    return layers.pad(plugin.api.address, host, growing)
