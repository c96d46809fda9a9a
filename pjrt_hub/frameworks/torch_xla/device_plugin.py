"""One plugin as torch_xla sees it: chosen, fetched and loaded when torch_xla first asks.

It imports torch_xla, so only torch_xla and what has asked for it import this module.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch_xla.experimental import plugins

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import FrameworkError
from pjrt_hub.frameworks.request import DeviceRequest, open_asked, release
from pjrt_hub.frameworks.torch_xla import framework

if TYPE_CHECKING:
    from pjrt_hub.finding.contract.manifest import Manifest
    from pjrt_hub.running.client.plugin import Plugin

_LOG = logging.getLogger("pjrt_hub.torch_xla")


class DevicePlugin(plugins.DevicePlugin):  # type: ignore[misc]  # torch_xla has no types
    """A plugin's interface to torch_xla, for `torch_xla.experimental.plugins.register_plugin`.

    One process drives all devices of the plugin.
    """

    _origin = "the argument"  # What asks for the platform.

    def __init__(
        self, platform: str | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        """Load and fetch nothing; `platform` is what `pjrt_hub.client` takes, or a path."""
        super().__init__()
        self._platform = platform
        self._options = dict(options or {})
        self._loading = Lock()
        self._loaded: tuple[Plugin, Manifest] | None = None

    def library_path(self) -> str:
        """Find and load the plugin; return the path of a library that stands for it.

        torch_xla opens the path by itself. The library is pjrt-hub's own; its table leads to the
        plugin that was verified and loaded, through a layer if torch_xla is too old for the plugin.
        If the layers that the user asked for leave out that one, it raises FrameworkError; if this
        process handed on another plugin before, PluginLoadError.
        """
        from pjrt_hub.frameworks import padding
        from pjrt_hub.running.interpose import forwarding

        plugin, _ = self._load()
        here = "torch_xla {}.{}".format(*release("torch_xla"))
        table = padding.table(plugin, here, framework.api_version(), "pjrt_hub.torch_xla")
        return str(forwarding.forward(table, plugin.path))

    def client_create_options(self) -> dict[str, Any]:
        """Return the create options, checked, which override the plugin's defaults.

        A wrong type raises TypeError, an unknown option ValueError, and a plugin that dies or hangs
        when a client is tried, PluginError.
        """
        plugin, manifest = self._load()
        given = self._own_options(manifest)
        checked = plugin.policy.check_create_options(given, plugin.api_version)
        plugin.policy.try_client(checked)
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in checked.items()
        }

    def configure_single_process(self) -> None:
        """Do nothing: one process drives all devices, which needs no setting."""

    def physical_chip_count(self) -> int:
        """Return how many processes torch_xla starts on this machine: one, for all devices."""
        return 1

    def _own_options(self, manifest: Manifest) -> Mapping[str, Any]:
        return self._options

    def _load(self) -> tuple[Plugin, Manifest]:
        with self._loading:
            if self._loaded is None:
                self._loaded = open_asked(self._platform, origin=self._origin)
            return self._loaded


class AskedPlugin(DevicePlugin):
    """The device type PJRTHUB: the plugin that PJRT_HUB_TORCH_XLA asks for, else pjrt-hub's choice.

    torch_xla makes one at every import; that reads nothing, and registers nothing else.
    """

    _origin = "$PJRT_HUB_TORCH_XLA"

    def __init__(self) -> None:
        """Read nothing yet."""
        super().__init__()
        self._wish = DeviceRequest(None, {})

    def _load(self) -> tuple[Plugin, Manifest]:
        from pjrt_hub.door.process import environment

        text = environment().get("PJRT_HUB_TORCH_XLA", "")
        self._wish = DeviceRequest.read(text, "PJRT_HUB_TORCH_XLA")
        self._platform = self._wish.platform
        return super()._load()

    def _own_options(self, manifest: Manifest) -> Mapping[str, Any]:
        return self._wish.typed(manifest)


def register(
    platform: str | os.PathLike[str] | None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> str:
    """See `pjrt_hub.torch_xla.register`."""
    wanted = None if platform is None else os.fspath(platform)
    if framework.has_begun():
        raise FrameworkError(
            f"{wanted or 'a plugin'} cannot be registered: torch_xla has made its client already",
            hint="register it before the first tensor on a device, or set PJRT_DEVICE=PJRTHUB and "
            f"PJRT_HUB_TORCH_XLA={wanted or 'cpu'}",
        )
    device_type = framework.name_in_torch_xla(wanted, name, framework.device_types())
    framework.use(device_type, DevicePlugin(wanted, options))
    _LOG.info("%s is registered in torch_xla as %s", wanted or "a plugin", device_type)
    return device_type
