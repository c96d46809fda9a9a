"""The plugin that PJRT_HUB_TORCH_XLA asks for, and its name in torch_xla: pure functions."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePath
from typing import NamedTuple

from pjrt_hub.errors import FrameworkError
from pjrt_hub.finding.discovery.library import plugin_name

#: torch_xla's C++ code makes clients for these device types by itself.
BUILT_IN = frozenset({"CPU", "CUDA", "LIBRARY", "NEURON", "TPU", "XPU"})
_PREFIX = "HUB"
#: torch_xla cuts the type at an underscore, and the part before that is not registered.
_NAME = re.compile(r"[A-Z][A-Z0-9]{0,31}")


class DeviceRequest(NamedTuple):
    """A platform, or None to let pjrt-hub choose, and create options as texts."""

    platform: str | None
    options: dict[str, str]


def read(text: str) -> DeviceRequest:
    """Read "cpu" or "cpu;cpu_device_count=4": a platform and create options of its client.

    An option without a name or a value raises ValueError.
    """
    platform, *items = (item.strip() for item in text.split(";"))
    options = {}
    for item in filter(None, items):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not (name and equals):
            raise ValueError(
                f"PJRT_HUB_TORCH_XLA is {text!r}, in which {item!r} is not an option\n\nhint: "
                "write a platform and its create options, as in `cpu;cpu_device_count=4`"
            )
        options[name] = value
    return DeviceRequest(platform or None, options)


def device_type(platform: str | None, name: str | None, taken: Collection[str]) -> str:
    """Return the device type that a plugin gets in torch_xla.

    A name that the user gives raises FrameworkError if it is taken, ValueError if it is not valid.
    """
    if name is None:
        last = PurePath(platform or "").name.rpartition(":")[2].partition(",")[0]
        plain = plugin_name(PurePath(last).stem).upper() if last else "PLUGIN"
        return (_PREFIX + re.sub("[^A-Z0-9]", "", plain))[:32]
    wanted = name.upper()
    if not _NAME.fullmatch(wanted):
        raise ValueError(
            f"{name!r} is not a device type of torch_xla: it takes A-Z and 0-9, 32 at most, and "
            "cuts what follows an underscore"
        )
    if wanted in BUILT_IN or wanted in taken:
        why = "built into torch_xla" if wanted in BUILT_IN else "another plugin's"
        raise FrameworkError(
            f"the plugin {platform or ''} cannot be called {wanted} in torch_xla: that is {why}",
            hint="leave the name out, or take another",
        )
    return wanted
