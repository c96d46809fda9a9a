"""Obstacles (layer 3): why an exported function cannot run somewhere, known before compiling.

Must not compile; what only a compiler can know is `doubts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pjrt_hub.errors import IncompatiblePluginError, NotRunnableError

if TYPE_CHECKING:
    from pjrt_hub.bridges.exported.function import ExportedFunction
    from pjrt_hub.runtime.client import Client

#: JAX's names of a platform for what plugins call themselves in other words.
_JAX_NAMES = {"nvidia": "cuda", "amd": "rocm"}


def refuse(function: ExportedFunction, client: Client) -> None:
    """Refuses what cannot be run.

    Raises:
        IncompatiblePluginError: the program is of a StableHLO that the plugin does not read.
        NotRunnableError: anything else.
    """
    require_readable(function, client)
    reasons = found(function, client.platform_name, len(client.devices))
    if reasons:
        raise NotRunnableError(
            f"{function.origin} cannot be run on {client.platform_name}: {'; '.join(reasons)}",
            reasons=reasons,
        )


def require_readable(function: ExportedFunction, client: Client) -> None:
    """Refuses a program whose StableHLO the plugin does not read.

    A newer stamp alone is no reason: see `PortableProgram`.

    Raises:
        IncompatiblePluginError: the program is older than all that the plugin reads, or of
            another generation.
    """
    version = function.program.stablehlo_version
    attributes = client.plugin.attributes
    newest = attributes.get("stablehlo_current_version")
    oldest = attributes.get("stablehlo_minimum_version")
    if version is None or not isinstance(newest, tuple) or not isinstance(oldest, tuple):
        return
    if oldest <= version and version[0] <= newest[0]:
        return
    need, first, last = (".".join(map(str, each)) for each in (version, oldest, newest))
    raise IncompatiblePluginError(
        f"{function.origin} is of StableHLO {need}, the plugin {client.plugin.path.name} reads "
        f"{first} to {last}",
        need=f"StableHLO {need}",
        have=f"StableHLO {first} to {last}",
        hint="export it again by a release of its framework that is as old as the plugin, or use "
        "another release of the plugin",
    )


def found(function: ExportedFunction, platform: str, devices: int | None = None) -> list[str]:
    """Why a function cannot be run on a platform, apart from its program's version.

    Args:
        function: what is to be run.
        platform: the name that the plugin's client has.
        devices: how many there are; None where it is not known.
    """
    reasons = []
    if platform_index(function, platform) is None:
        names = ", ".join(function.platforms)
        reasons.append(f"it was exported for {names}, and not for {jax_name(platform)}")
    if function.ordered_effects:
        reasons.append(
            f"it has ordered effects ({', '.join(function.ordered_effects)}), whose order its "
            "exporter's runtime keeps by tokens that programs cannot be given from outside"
        )
    if devices is not None and function.nr_devices > devices:
        reasons.append(
            f"it was exported for {function.nr_devices} devices, and the client has {devices}"
        )
    return reasons


def platform_index(function: ExportedFunction, platform: str) -> int | None:
    """Which of the function's platforms a client is, or None."""
    if not function.platforms:
        return 0
    name = jax_name(platform)
    if name in function.platforms:
        return function.platforms.index(name)
    return 0 if "platform" in function.disabled_checks else None


def jax_name(platform: str) -> str:
    """What JAX calls a platform."""
    name = platform.lower()
    return _JAX_NAMES.get(name, name)
