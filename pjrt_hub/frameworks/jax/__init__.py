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
        name: the platform's name in JAX: `jax.devices(name)`, `JAX_PLATFORMS=name`. By default
            `platform` if JAX and other plugins leave that name free, else with "hub" before it.
        priority: JAX's default is the platform of the highest priority, unless `JAX_PLATFORMS` is
            set. By default platforms registered here come first, in the order of registration.
        options: create options of the plugin's client, or a function that returns them, called when
            the client is made. JAX's `jax_pjrt_client_create_options` override them.

    Returns:
        The platform's name in JAX.

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

    The steps tell the versions of JAX's packages and whether they fit, the plugins that JAX would
    register, the platforms that it would use, and the files that each plugin for NVIDIA GPUs would
    get: JAX's modules load NVIDIA's packages first, in an order of their own.

    Args:
        after: modules that would be imported first, such as "torch"; another process imports
            them, to see which libraries they load.

    Returns:
        The steps, as `pjrt_hub.diagnose` returns them.
    """
    from pjrt_hub.door.diagnosis import Diagnosis
    from pjrt_hub.door.process import world
    from pjrt_hub.frameworks.jax.diagnosis import report

    return Diagnosis(tuple(report(world(), after)))
