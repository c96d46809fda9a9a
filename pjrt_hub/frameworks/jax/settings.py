"""Create options for a plugin's client under JAX: the user's, JAX's, and who wins.

Everything is checked before the call: a wrong type ends the process inside some plugins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pjrt_hub.finding.contract import option
from pjrt_hub.frameworks.jax import framework

if TYPE_CHECKING:
    from pjrt_hub.finding.contract.manifest import Manifest
    from pjrt_hub.running.client.plugin import Plugin

Options = Mapping[str, Any] | Callable[[], Mapping[str, Any]]

_LOG = logging.getLogger("pjrt_hub.jax")


def create_options(plugin: Plugin, manifest: Manifest, own: Options | None) -> Mapping[str, Any]:
    """Give all create options of a client, checked.

    What somebody wrote down is refused where the plugin has no such option: JAX's setting
    `jax_pjrt_client_create_options`, and before it what `register` was given. What JAX only
    concludes from other settings is left out there.

    Args:
        plugin: whose they are.
        manifest: of the plugin.
        own: what `register` was given.

    Raises:
        TypeError: an option has another type.
        ValueError: the plugin has no such option.
    """
    known = {each.name: each for each in manifest.options}
    configured = framework.all_create_options(manifest.platform)
    setting = framework.create_options()
    texts = isinstance(setting, str)
    # Otherwise the option is refused as it was written.
    read = option.parse if manifest.path is None else str
    written = {name: configured[name] for name in configured if _is_written(name, setting)}
    if texts:
        written = {
            name: known[name].parse(value) if name in known else read(value)
            for name, value in written.items()
        }
    concluded = {**framework.place_in_job(), **configured}
    implied = {}
    for name, value in concluded.items():
        if name in written:
            continue
        if name in known:
            implied[name] = value
        else:
            _LOG.debug("%s has no create option %s, which JAX would give", plugin.name, name)
    given = dict((own() if callable(own) else own) or {})
    everything = {**implied, **given, **written}
    return plugin.policy.check_create_options(everything, plugin.api_version)


def _is_written(name: str, setting: Mapping[str, Any] | str) -> bool:
    if isinstance(setting, str):
        return any(item.partition(":")[0] == name for item in setting.split(";"))
    return name in setting
