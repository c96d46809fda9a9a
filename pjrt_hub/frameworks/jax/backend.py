"""One plugin as a platform of JAX: chosen, fetched and loaded when JAX first asks.

Create options are checked before the call: a wrong type ends the process inside some plugins.
Must not import JAX at its top: `framework` knows JAX.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import FrameworkError, IncompatiblePluginError
from pjrt_hub.finding.contract import option
from pjrt_hub.frameworks.jax import framework

if TYPE_CHECKING:
    from pjrt_hub.finding.contract.manifest import Manifest
    from pjrt_hub.running.client.plugin import Plugin

Options = Mapping[str, Any] | Callable[[], Mapping[str, Any]]

_LOG = logging.getLogger("pjrt_hub.jax")


class JaxBackend:
    """A platform in JAX's table: the plugin that pjrt-hub chooses for it, and its name in JAX."""

    def __init__(
        self, platform: str, name: str, options: Options | None, origin: str = "the argument"
    ) -> None:
        self.platform = platform
        self._origin = origin  # What asked for the platform.
        self.name = name
        self._options = options
        self._loading = Lock()
        self._loaded: tuple[Plugin, Manifest, object] | None = None

    def client(self) -> Any:
        """Make jaxlib's client; what it raises becomes JAX's RuntimeError."""
        from pjrt_hub.frameworks.jax import host_functions

        plugin, manifest, _ = self._load(to_run=True)
        options = create_options(plugin, manifest, self._options)
        # In a job, a client that is only tried would join the other processes.
        if not (place := framework.place_in_job()):
            plugin.policy.try_client(options)
        client = framework.make_client(self.name, options)
        _require_joined(client, plugin.name, place.get("num_nodes", 1))
        if "cpu" in (client.platform, plugin.api.is_layered and plugin.name):
            host_functions.give_to(plugin)
        return client

    def topology(self, topology_name: str = "", **options: Any) -> Any:
        """Make jaxlib's topology of a machine that need not be there, as `pjrt_hub.topology` does.

        A plugin that is too old for what this JAX compiles ahead of time raises
        IncompatiblePluginError.
        """
        plugin, _, capsule = self._load()
        _require_stablehlo(plugin)
        check = plugin.policy.check_topology_options
        return framework.make_topology(capsule, *check(topology_name, options, plugin.api_version))

    def _load(self, to_run: bool = False) -> tuple[Plugin, Manifest, object]:
        from pjrt_hub.frameworks import padding
        from pjrt_hub.frameworks.request import open_asked
        from pjrt_hub.running.interpose import forwarding

        with self._loading:
            if self._loaded is None:
                plugin, manifest = open_asked(self.platform, to_run=to_run, origin=self._origin)
                release = f"JAX {framework.release()}"
                table = padding.table(plugin, release, framework.api_version(), "pjrt_hub.jax")
                held = forwarding.capsule(table)
                framework.load(self.name, held, profiles="Profiler" in plugin.extensions)
                self._loaded = plugin, manifest, held
            return self._loaded


def create_options(plugin: Plugin, manifest: Manifest, own: Options | None) -> Mapping[str, Any]:
    """Return all create options of a client, checked.

    Options that the user gave are refused if the plugin does not have them: those in `own`, which
    `register` was given, and those in JAX's setting `jax_pjrt_client_create_options`, which
    override them. Options that JAX only derives from other settings are left out instead. A wrong
    type raises TypeError, an option that the plugin does not have ValueError.
    """
    known = {each.name: each for each in manifest.options}
    configured = framework.all_create_options(manifest.platform)
    setting = framework.create_options()
    if isinstance(setting, str):
        names = {item.partition(":")[0] for item in setting.split(";")}
        # An option that the manifest does not have is refused as it was written.
        read = option.parse if manifest.path is None else str
        written = {
            name: known[name].parse(value) if name in known else read(value)
            for name, value in configured.items()
            if name in names
        }
    else:
        written = {name: value for name, value in configured.items() if name in setting}
    concluded = {**framework.place_in_job(), **configured}
    implied = {name: concluded[name] for name in concluded if name in known and name not in written}
    for name in concluded.keys() - known.keys() - written.keys():
        _LOG.debug("%s has no create option %s, which JAX would give", plugin.name, name)
    given = dict((own() if callable(own) else own) or {})
    everything = {**implied, **given, **written}
    return plugin.policy.check_create_options(everything, plugin.api_version)


def _require_joined(client: Any, plugin: str, num_processes: int) -> None:
    """Refuse a client of this process alone: in the job, each process would be the only one."""
    if num_processes > 1 and len({each.process_index for each in client.devices()}) == 1:
        raise FrameworkError(
            f"{plugin} does not join processes: of the {num_processes} that jax.distributed "
            "connects, its client knows this one alone",
            hint="use another platform in such a job: for CPUs JAX's own, without PJRT_HUB_JAX; or "
            "leave out jax.distributed.initialize",
        )


def _require_stablehlo(plugin: Plugin) -> None:
    reads = plugin.attributes.get("stablehlo_current_version")
    writes = framework.stablehlo_version()
    # The form of programs does not change with the third number of a version.
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
