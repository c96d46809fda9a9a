"""One plugin as a platform of JAX (layer 5): chosen, fetched and loaded when JAX first asks.

Must not import JAX at its top: `framework` knows JAX.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from pjrt_hub.errors import IncompatiblePluginError
from pjrt_hub.jax import framework, settings

if TYPE_CHECKING:
    from pjrt_hub.contract.manifest import Manifest
    from pjrt_hub.jax.settings import Options
    from pjrt_hub.runtime.plugin import Plugin


_LOG = logging.getLogger("pjrt_hub.jax")


class Backend:
    """What JAX's table holds for one name.

    Attributes:
        platform: what pjrt-hub is asked for.
        name: of the platform in JAX.
    """

    def __init__(self, platform: str, name: str, options: Options | None) -> None:
        self.platform = platform
        self.name = name
        self._options = options
        self._loading = threading.Lock()
        self._loaded: tuple[Plugin, Manifest, object] | None = None

    def client(self) -> Any:
        """Makes jaxlib's client; what it raises becomes JAX's RuntimeError.

        Raises:
            As `pjrt_hub.client`.
        """
        from pjrt_hub.jax import host_functions

        plugin, manifest, _ = self._load()
        options = settings.create_options(plugin, manifest, self._options)
        client = framework.make_client(self.name, options)
        if client.platform == "cpu":
            host_functions.give_to(plugin)
        return client

    def topology(self, topology_name: str = "", **options: Any) -> Any:
        """Makes jaxlib's topology of a machine that need not be there.

        Args:
            topology_name: of the machine, as for `pjrt_hub.topology`.
            **options: topology options of the plugin.

        Raises:
            IncompatiblePluginError: the plugin is too old for what this JAX compiles ahead of time.
            As `pjrt_hub.topology` otherwise.
        """
        plugin, _, capsule = self._load()
        _require_stablehlo(plugin)
        name, checked = plugin.check_topology_options(topology_name, options)
        return framework.make_topology(capsule, name, checked)

    def _load(self) -> tuple[Plugin, Manifest, object]:
        from pjrt_hub import connect, opening
        from pjrt_hub._capi import capsule

        with self._loading:
            if self._loaded is None:
                choice = connect.choose(self.platform)
                plugin = opening.plugin(choice, reload=connect.load)
                held = capsule.of_table(_table(plugin))
                framework.load(self.name, held, profiles="Profiler" in plugin.extensions)
                self._loaded = plugin, choice.candidate.manifest, held
            return self._loaded


def _table(plugin: Plugin) -> int:
    """The address of the plugin's table, or of one through which an older JAX can drive it."""
    from pjrt_hub._capi import layers
    from pjrt_hub.surroundings import environment

    minor = framework.api_minor()
    grown = layers.grown(minor, plugin.api_version.minor)
    if not grown:
        return plugin.api.address
    why = (
        f"JAX {framework.release()}, built for PJRT API 0.{minor}, is older than {plugin.name}, "
        f"{plugin.api_version}, which insists on larger structs ({', '.join(grown)})"
    )
    asked = environment().get("PJRT_HUB_LAYERS", "")
    if asked:  # the layers of a process are those that it began with
        if "pad" not in asked.split(","):
            _LOG.warning("%s: add `pad` to PJRT_HUB_LAYERS, which is %s", why, asked)
        return plugin.api.address
    _LOG.info("%s: its calls go through the layer `pad`, which enlarges them", why)
    return layers.wrap(plugin.api.address, "pad")


def _require_stablehlo(plugin: Plugin) -> None:
    reads = plugin.attributes.get("stablehlo_current_version")
    writes = framework.stablehlo_version()
    # The third number changes where the form of programs does not.
    if not isinstance(reads, list | tuple) or tuple(reads[:2]) >= writes[:2]:
        return
    have, need = ".".join(map(str, reads)), ".".join(map(str, writes))
    raise IncompatiblePluginError(
        f"{plugin.name} reads StableHLO {have}; JAX {framework.release()} writes {need} for a "
        "machine that is not there",
        need=need,
        have=have,
        hint="install a newer release of the plugin, or an older one of JAX",
    )
