"""JAX on any plugin that pjrt-hub finds: `register`, JAX's entry point, and `diagnose`.

Importing it imports nothing of JAX and nothing heavy: JAX imports it at every start.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pjrt_hub.door.diagnosis import Diagnosis
    from pjrt_hub.frameworks.jax.backend import Options

__all__ = ["diagnose", "initialize", "register"]


def register(
    platform: str | os.PathLike[str],
    name: str | None = None,
    priority: int | None = None,
    options: Options | None = None,
) -> str:
    """Register a plugin as a platform of JAX; fetch and load nothing before JAX uses it.

    Args:
        platform: what `pjrt_hub.client` takes: "cuda", a plugin, an alias, "distribution:plugin";
            or the path of a library.
        name: of the platform in JAX: `jax.devices(name)`, `JAX_PLATFORMS=name`. By default
            `platform` where JAX and other plugins leave that free, else with "hub" before it.
        priority: JAX's default is the platform with the highest, where `JAX_PLATFORMS` is not set.
            By default what is registered here comes before all else, the first one first.
        options: create options of the plugin's client, or a function that gives them, called when
            the client is made. JAX's `jax_pjrt_client_create_options` come over them.

    Returns:
        The name.

    Raises:
        FrameworkError: JAX is missing, too old or has begun already, or the name is taken.
        ValueError: the name is not a valid one.
    """
    from pjrt_hub.frameworks.jax.registration import register

    return register(platform, name, priority, options)


def initialize() -> None:
    """Register what the variable `PJRT_HUB_JAX` asks for; JAX calls it at its start."""
    from pjrt_hub.door.process import environment

    if text := environment().get("PJRT_HUB_JAX"):
        from pjrt_hub.frameworks.jax.registration import register_requests

        register_requests(text)


def diagnose(after: Sequence[str] = ()) -> Diagnosis:
    """Report what the JAX that is installed here would do; import and start nothing of it.

    The versions of its packages and whether they fit, the plugins that it would register, the
    platforms that it would use, and of each plugin for NVIDIA GPUs the files that it would get: its
    modules load NVIDIA's packages first, in an order of their own.

    Args:
        after: modules that would be imported before, such as "torch"; another process imports
            them, to see which libraries they load.

    Returns:
        The steps, as of `pjrt_hub.diagnose`.
    """
    from pjrt_hub.door.diagnosis import Diagnosis
    from pjrt_hub.door.process import world
    from pjrt_hub.frameworks.jax.diagnosis import report

    return Diagnosis(tuple(report(world(), after)))
