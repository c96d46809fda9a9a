"""Obstacles: why an exported function cannot run somewhere, known before compiling.

Must not compile; `doubts` returns what only a compiler can know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pjrt_hub.errors import IncompatiblePluginError, NotRunnableError
from pjrt_hub.frameworks.exported import lapack
from pjrt_hub.running.capi.handle import compiler_platform
from pjrt_hub.running.program.bytecode import uses

if TYPE_CHECKING:
    from pjrt_hub.frameworks.exported.function import ExportedFunction
    from pjrt_hub.running.client.client import Client
    from pjrt_hub.running.program.program import Program

#: Plugins call themselves by the first names, and JAX calls them by the second names.
_JAX_NAMES = {"nvidia": "cuda", "amd": "rocm"}

#: The StableHLO version that added an operation, by the version log in StableHLO's VhloDialect.td.
#: A name ends in the version of the form, so an older plugin does not mistake one for another.
_SINCE = {
    **dict.fromkeys(("all_gather_v2", "all_reduce_v2", "all_to_all_v2"), (1, 5, 0)),
    **dict.fromkeys(("gather_v2", "dynamic_gather_v2", "scatter_v2"), (1, 1, 0)),
    "tan_v1": (1, 4, 0),
    "dot_general_v2": (1, 6, 0),
    "exponential_v2": (1, 9, 0),
    **dict.fromkeys(("cbrt_v2", "cosine_v2", "exponential_minus_one_v2", "log_v2"), (1, 10, 0)),
    **dict.fromkeys(("log_plus_one_v2", "logistic_v2", "rsqrt_v2", "sine_v2"), (1, 10, 0)),
    **dict.fromkeys(("sqrt_v2", "tan_v2", "tanh_v2"), (1, 10, 0)),
    **dict.fromkeys(("recv_v2", "send_v2"), (1, 12, 0)),
    "composite_v2": (1, 14, 0),
    **dict.fromkeys(("async_start_v1", "async_done_v1"), (1, 15, 0)),
    "custom_call_v2": (1, 18, 0),
    "collective_reduce_v1": (1, 19, 0),
    "collective_broadcast_v2": (1, 20, 0),
}
#: Functions whose names begin like this exist only in the plugins of one platform (JAX's name).
_VENDORS = {
    "cuda": ("cu", "mosaic_gpu", "__gpu$"),
    "rocm": ("hip", "roc", "__gpu$"),
    "cpu": ("lapack_", "blas_"),
    "tpu": ("tpu_custom_call", "Eigh", "Qr", "LuDecomposition", "ProductOfElementary"),
}
#: XLA's compilers know these functions on every platform, so nobody registers them.
_COMPILERS_OWN = frozenset(
    (
        *("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "shape_assertion"),
        *("annotate_device_placement", "AllocateBuffer", "ApproxTopK", "TopK"),
    )
)


def refuse(function: ExportedFunction, client: Client) -> None:
    """Refuse a function that a client cannot run.

    A StableHLO that the plugin does not read raises IncompatiblePluginError, anything else
    NotRunnableError.
    """
    require_readable(function, client)
    refuse_platform(function, platform_for(function, client), len(client.devices))


def refuse_platform(function: ExportedFunction, platform: str, devices: int | None = None) -> None:
    """Raise NotRunnableError if a platform cannot run a function, whatever its StableHLO."""
    if reasons := find_obstacles(function, platform, devices):
        raise NotRunnableError(
            f"{function.origin} cannot be run on {platform}: {'; '.join(reasons)}", reasons=reasons
        )


def doubts(function: ExportedFunction, client: Client) -> list[str]:
    """Return what only the plugin's compiler can tell, and what the exporter let pass."""
    told = []
    registered = [name for name, _ in client.plugin.ffi.registered]
    coming = lapack.handlers(function.custom_calls, client)
    if calls := unknown_calls(function, platform_for(function, client), [*registered, *coming]):
        bring = "; pip install 'pjrt-hub[lapack]' brings LAPACK's"
        told.append(
            f"it calls {', '.join(calls)}, which nobody registered here: whether the plugin has "
            f"such a function is known when it compiles{bring * ('lapack_' in str(calls))}"
        )
    version, newest = function.program.stablehlo_version, newest_stablehlo(client.plugin.attributes)
    if version and newest and version > newest:
        told.append(
            f"its program is stamped StableHLO {version_text(version)} and the plugin knows "
            f"{version_text(newest)}; "
            + (
                "what it may have of the newer one is known when it compiles"
                if function.uses is None
                else "none of its operations is known to be newer"
                if not newer_operations(function, client.plugin.attributes)
                else "some of its operations are newer"
            )
        )
    if function.unordered_effects:
        told.append(f"its effects ({', '.join(function.unordered_effects)}) may be lost")
    if function.disabled_checks:
        told.append(f"its exporter was told not to check {', '.join(function.disabled_checks)}")
    return told


def require_readable(function: ExportedFunction, client: Client) -> None:
    """Raise IncompatiblePluginError for a program whose StableHLO the plugin does not read.

    A newer stamp alone is no reason: see `PortableProgram`.
    """
    version = function.program.stablehlo_version
    attributes = client.plugin.attributes
    newest = attributes.get("stablehlo_current_version")
    oldest = attributes.get("stablehlo_minimum_version")
    if version is None or not isinstance(newest, tuple) or not isinstance(oldest, tuple):
        return
    if oldest <= version and version[0] <= newest[0]:
        return
    need, first, last = map(version_text, (version, oldest, newest))
    raise IncompatiblePluginError(
        f"{function.origin} is of StableHLO {need}, the plugin {client.plugin.path.name} reads "
        f"{first} to {last}",
        need=f"StableHLO {need}",
        have=f"StableHLO {first} to {last}",
        hint="export it again by a release of its framework that is as old as the plugin, or use "
        "another release of the plugin",
    )


def newer_operations(function: ExportedFunction, attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the operations that are newer than a plugin's StableHLO."""
    newest, stamp = newest_stablehlo(attributes), function.program.stablehlo_version
    if not newest or stamp is None or stamp <= newest or not function.uses:
        return ()
    names = (name.removeprefix("vhlo.") for name in function.uses.operations)
    return tuple(name for name in names if _SINCE.get(name, newest) > newest)


def oldest_stablehlo(program: Program) -> tuple[int, ...]:
    """Return the oldest StableHLO that has all operations of a portable program.

    It is the program's own version where its operations cannot be read.
    """
    found = uses(program.code)
    own = program.stablehlo_version or (1, 0, 0)
    if found is None:
        return own
    names = (name.removeprefix("vhlo.") for name in found.operations)
    return max((_SINCE.get(name, (1, 0, 0)) for name in names), default=own)


def foreign_calls(function: ExportedFunction, platform: str) -> tuple[str, ...]:
    """Return a function's custom calls that belong to other platforms; none if it has only one."""
    if len(function.platforms) < 2:
        return ()
    own = _VENDORS.get(jax_name(platform), ())
    others = tuple(start for starts in _VENDORS.values() for start in starts if start not in own)
    return tuple(
        name
        for name in function.custom_calls
        if name.startswith(others) and not name.startswith(own)
    )


def unknown_calls(
    function: ExportedFunction, platform: str, registered: Iterable[str]
) -> tuple[str, ...]:
    """Return the custom calls that a plugin may lack, which only compiling can tell.

    The C API lists no plugin's functions: a compiler may know names that nobody registered.
    """
    known = {*_COMPILERS_OWN, *registered, *foreign_calls(function, platform)}
    return tuple(
        name
        for name in function.custom_calls
        if name not in known and not name.startswith("stablehlo.")
    )


def find_obstacles(function: ExportedFunction, platform: str, devices: int | None) -> list[str]:
    """Return why a function cannot be run on a platform, apart from its program's version.

    The platform has the name that the plugin's client gives to it; `devices` may be unknown: None.
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


def platform_for(function: ExportedFunction, client: Client) -> str:
    """Return the platform that a function runs for on a client.

    It is the client's platform, or the plugin's own behind a layer that gives it another name.
    """
    own = client.platform_name
    return own if jax_name(own) in function.platforms else compiler_platform(client)


def platform_index(function: ExportedFunction, platform: str) -> int | None:
    """Return the number of a platform among those of the function, or None."""
    if not function.platforms:
        return 0
    name = jax_name(platform)
    if name in function.platforms:
        return function.platforms.index(name)
    return 0 if "platform" in function.disabled_checks else None


def jax_name(platform: str) -> str:
    """Return JAX's name for a platform."""
    name = platform.lower()
    return _JAX_NAMES.get(name, name)


def newest_stablehlo(attributes: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the newest StableHLO version that a plugin says it reads; empty if it says none."""
    version = attributes.get("stablehlo_current_version")
    return tuple(map(int, version)) if isinstance(version, tuple) else ()


def version_text(version: tuple[int, ...]) -> str:
    """Return a version as people write it."""
    return ".".join(map(str, version))
