"""What a plugin is called in torch_xla."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePath

from pjrt_hub.errors import FrameworkError
from pjrt_hub.finding.discovery.library import plugin_name

#: torch_xla's C++ code makes clients for these device types by itself.
BUILT_IN = frozenset({"CPU", "CUDA", "LIBRARY", "NEURON", "TPU", "XPU"})
_PREFIX = "HUB"
#: torch_xla cuts the type at an underscore, and the part before that is not registered.
_NAME = re.compile(r"[A-Z][A-Z0-9]{0,31}")


def name_in_torch_xla(platform: str | None, name: str | None, taken: Collection[str]) -> str:
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
