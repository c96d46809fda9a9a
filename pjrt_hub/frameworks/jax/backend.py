"""One plugin as a platform of JAX: chosen, fetched and loaded when JAX first asks.

Must not import JAX at its top: `framework` knows JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import IncompatiblePluginError
from pjrt_hub.frameworks.jax import framework, settings

if TYPE_CHECKING:
    from pjrt_hub.finding.contract.manifest import Manifest
    from pjrt_hub.frameworks.jax.settings import Options
    from pjrt_hub.running.client.plugin import Plugin


class JaxBackend:
    """What JAX's table holds for one name.

    Attributes:
        platform: what pjrt-hub is asked for.
        name: of the platform in JAX.
    """

    def __init__(self, platform: str, name: str, options: Options | None) -> None:
        self.platform = platform
        self.name = name
        self._options = options
        self._loading = Lock()
        self._loaded: tuple[Plugin, Manifest, object] | None = None

    def client(self) -> Any:
        """Make jaxlib's client; what it raises becomes JAX's RuntimeError.

        Raises:
            As `pjrt_hub.client`.
        """
        from pjrt_hub.frameworks.jax import host_functions

        plugin, manifest, _ = self._load(to_run=True)
        options = settings.create_options(plugin, manifest, self._options)
        # In a job, the client that is tried would join the others.
        if not framework.place_in_job():
            plugin.policy.try_client(options)
        client = framework.make_client(self.name, options)
        if "cpu" in (client.platform, plugin.api.layered_name):
            host_functions.give_to(plugin)
        return client

    def topology(self, topology_name: str = "", **options: Any) -> Any:
        """Make jaxlib's topology of a machine that need not be there.

        Args:
            topology_name: of the machine, as for `pjrt_hub.topology`.
            **options: topology options of the plugin.

        Raises:
            IncompatiblePluginError: the plugin is too old for what this JAX compiles ahead of time.
            As `pjrt_hub.topology` otherwise.
        """
        plugin, _, capsule = self._load()
        _require_stablehlo(plugin)
        check = plugin.policy.check_topology_options
        return framework.make_topology(capsule, *check(topology_name, options, plugin.api_version))

    def _load(self, to_run: bool = False) -> tuple[Plugin, Manifest, object]:
        from pjrt_hub.door.client import choose, load
        from pjrt_hub.door.plugin import open_plugin
        from pjrt_hub.frameworks import padding
        from pjrt_hub.running.interpose import forwarding

        with self._loading:
            if self._loaded is None:
                choice = choose(self.platform, to_run=to_run)
                plugin = open_plugin(choice, reload=load)
                release = f"JAX {framework.release()}"
                table = padding.table(plugin, release, framework.api_version(), "pjrt_hub.jax")
                held = forwarding.capsule(table)
                framework.load(self.name, held, profiles="Profiler" in plugin.extensions)
                self._loaded = plugin, choice.candidate.manifest, held
            return self._loaded


def _require_stablehlo(plugin: Plugin) -> None:
    reads = plugin.attributes.get("stablehlo_current_version")
    writes = framework.stablehlo_version()
    # The third number of a version changes without the form of programs.
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
