"""From an exported function's file to a function that can be called.

Owns which plugin runs it if the caller names none; other modules read and call the function.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pjrt_hub.base.frames import hide_below
from pjrt_hub.door.client import connect, use_first
from pjrt_hub.door.process import environment

if TYPE_CHECKING:
    from pjrt_hub.finding.discovery.select import Choice
    from pjrt_hub.frameworks.exported.function import ExportedFunction
    from pjrt_hub.frameworks.exported.loaded_function import Exported
    from pjrt_hub.running.client.client import Client
    from pjrt_hub.running.compilation.policy import CompileCache
    from pjrt_hub.running.program.compile_options import CompileOptions


@hide_below
def load_exported(
    source: str | os.PathLike[str] | bytes | ExportedFunction,
    *,
    name: str | None = None,
    client: Client | None = None,
    platform: str | None = None,
    compile_options: CompileOptions | None = None,
    dimensions: Mapping[str, int] | None = None,
    types: Mapping[str, Callable[..., Any]] | None = None,
    cache: bool | CompileCache | None = None,
    isolated: bool | None = None,
    offline: bool = False,
) -> Exported:
    """Load a function exported to a file, to call it without its framework.

    Args:
        source: a file or bytes of `jax.export`, or a folder that torch_xla saved; or what
            `frameworks.exported.reading.read` returned for these.
        name: the name of a folder's function; by default the only one, or "forward".
        client: where to run it; None makes one, which `close` of the result closes.
        platform: as for `pjrt_hub.client`, if no client is given. None uses `PJRT_HUB_PLATFORMS`,
            then `JAX_PLATFORMS`, then takes one of the platforms that it was exported for whose
            hardware is there, an accelerator first.
        compile_options: see `CompileOptions`.
        dimensions: sizes of symbolic dimensions by name, which arguments must then have.
        types: for containers that the exporter's user registered, by their serialized names:
            functions that make one from its children. Namedtuples need none.
        cache: as for `Client.compile`: True keeps the compiled code on disk.
        isolated: as for `Client.compile`, but None means True: the program is compiled in a process
            of its own, unless `PJRT_HUB_ISOLATE` is 0 or `PJRT_HUB_LAYERS` is set.
        offline: as for `client`.

    Raises:
        FileFormatError: the source is missing, damaged, or in another format.
        NotRunnableError: the function needs what cannot be given; `.reasons` says what.
        IncompatiblePluginError: its program is of a StableHLO that the plugin does not read.
        TypeError: a client and a platform were given.
        PluginError: no plugin fits, or it cannot be loaded, as for `client`.
        StoreError: the plugin cannot be fetched.
    """
    from pjrt_hub.frameworks.exported.loaded_function import Exported
    from pjrt_hub.frameworks.exported.reading import read

    if client is not None and platform is not None:
        raise TypeError("both a client and a platform were given; a client has its platform")
    function = read(source, name)
    owned = client is None
    if client is None:
        client = client_for(function, platform, offline=offline)
    try:
        return Exported(
            function,
            client,
            compile_options=compile_options,
            dimensions=dimensions,
            types=types,
            cache=cache,
            isolated=isolates() if isolated is None else isolated,
            owns_client=owned,
        )
    except BaseException:
        if owned:
            client.close()
        raise


def client_for(
    function: ExportedFunction, platform: str | None = None, *, offline: bool = False
) -> Client:
    """Make a client to run a function on, for a platform as in `load_exported`.

    A function that is not for the platform whose plugin would be fetched raises NotRunnableError.
    """
    from pjrt_hub.frameworks.exported import obstacle

    def make(choice: Choice) -> Client:
        if choice.candidate.must_be_fetched:
            obstacle.refuse_platform(function, choice.candidate.platform)
        return connect(choice, offline=offline)

    wanted = platform or _platform_preference(function)
    return use_first(wanted, make, offline=offline, to_run=True)


def isolates() -> bool:
    """Return whether programs from files are by default compiled in a process of their own.

    They are not if there are layers, which would not see the calls of that process.
    """
    env = environment()
    return env.get("PJRT_HUB_ISOLATE") != "0" and not env.get("PJRT_HUB_LAYERS")


def _platform_preference(function: ExportedFunction) -> str | None:
    """Return the platforms to choose from by default; None leaves the choice to `client`."""
    env = environment()
    asked = env.get("PJRT_HUB_PLATFORMS") or env.get("JAX_PLATFORMS")
    if asked or not function.platforms:
        return None
    return ",".join(sorted(function.platforms, key=lambda name: name == "cpu"))
