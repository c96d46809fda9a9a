"""From a request to a device of PyTorch: choose a plugin, load it, and hand it to TorchTPU."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import FrameworkError
from pjrt_hub.frameworks.request import DeviceRequest, open_asked, release
from pjrt_hub.frameworks.torch import framework

if TYPE_CHECKING:
    from pjrt_hub.finding.contract.manifest import Manifest
    from pjrt_hub.running.client.plugin import Plugin

_LOG = logging.getLogger("pjrt_hub.torch")
_registering = Lock()
#: The platform that was registered; None stands for pjrt-hub's choice.
_registered: list[str | None] = []


def register(
    platform: str | os.PathLike[str] | None, options: Mapping[str, Any] | None = None
) -> str:
    """See `pjrt_hub.torch.register`."""
    wanted = None if platform is None else os.fspath(platform)
    _register(wanted, lambda manifest: dict(options or {}))
    return framework.DEVICE


def register_request(text: str) -> None:
    """Register what PJRT_HUB_TORCH asks for, unless the program has registered something."""
    if not _registered:
        wish = DeviceRequest.read(text, "PJRT_HUB_TORCH")
        _register(wish.platform, wish.typed, origin="$PJRT_HUB_TORCH")


def _register(
    wanted: str | None,
    options: Callable[[Manifest], Mapping[str, Any]],
    origin: str = "the argument",
) -> None:
    from pjrt_hub.frameworks import padding
    from pjrt_hub.frameworks.torch import kernels
    from pjrt_hub.running.interpose import forwarding

    with _registering:
        if _registered or framework.has_begun():
            raise FrameworkError(
                f"{wanted or 'a plugin'} cannot be registered: TorchTPU has "
                f"{'another plugin' if _registered else 'made its client'} already",
                hint="register one plugin in a process, before the first tensor on the device; or "
                f"set PJRT_HUB_TORCH={wanted or 'cpu'}",
            )
        plugin, manifest = open_asked(wanted, origin=origin)
        checked = plugin.policy.check_create_options(options(manifest), plugin.api_version)
        plugin.policy.try_client(checked)
        built = "TorchTPU {}.{}".format(*release("torch_tpu"))
        table = padding.table(plugin, built, framework.api_version(), "pjrt_hub.torch")
        is_tpu = manifest.platform == framework.DEVICE
        refused = {} if is_tpu else framework.FOR_TPUS
        changes = forwarding.Changes(_rules(manifest, checked), _flags(plugin, manifest), refused)
        framework.start(
            lambda opened: forwarding.take_over(opened, table, plugin.path, changes), is_tpu
        )
        if not is_tpu:
            kernels.register()
        _registered.append(wanted)
    _LOG.info("%s is PyTorch's device %r", plugin.name, framework.DEVICE)


def _rules(manifest: Manifest, options: Mapping[str, Any]) -> str:
    """Write which options of TorchTPU's the plugin gets, those it knows, and what replaces them."""
    from pjrt_hub.running.interpose import layers

    passing = [each.name for each in manifest.options if each.name not in options]
    return ";".join([*passing, *(layers.option_rule(*each) for each in options.items())])


def _flags(plugin: Plugin, manifest: Manifest) -> bytes:
    """Write the manifest's flags of XLA that fit a program with any operation.

    They are those of TorchTPU's own XLA: an older plugin has others for speed, which lose a NaN.
    """
    from pjrt_hub.running.program import compile_options

    used = " ".join(name for each in manifest.compile_flags for name in each.unless_used)
    version = framework.api_version() or plugin.api_version
    flags = plugin.policy.compile_flags({}, version, used.encode())
    return compile_options.write_flags(flags)
