"""Everything that pjrt-hub uses of torch_xla and that is not public: its registry and its state.

Differences between releases of torch_xla are handled here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePath
from typing import Any

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import FrameworkError
from pjrt_hub.finding.discovery.library import plugin_name
from pjrt_hub.frameworks.request import release

#: This is the oldest release of torch_xla that the tests ran on.
OLDEST = (2, 8)
#: Releases of torch_xla were built with these versions of the PJRT API. They tell it only in an
#: error, when ENABLE_PJRT_COMPATIBILITY=0 makes them refuse every other version.
BUILT_WITH = {(2, 8): ApiVersion(0, 70), (2, 9): ApiVersion(0, 75)}
#: torch_xla's C++ code makes clients for these device types by itself.
BUILT_IN = frozenset({"CPU", "CUDA", "LIBRARY", "NEURON", "TPU", "XPU"})
_PREFIX = "HUB"
#: torch_xla cuts the type at an underscore, and the part before that is not registered.
_NAME = re.compile(r"[A-Z][A-Z0-9]{0,31}")


def api_version() -> ApiVersion | None:
    """Return the PJRT API that this torch_xla was built with, or None if nobody measured it."""
    return BUILT_WITH.get(release("torch_xla"))


def require() -> None:
    """Raise FrameworkError if torch_xla is missing or older than `OLDEST`."""
    oldest = ".".join(map(str, OLDEST))
    try:
        import torch_xla.experimental.plugins  # noqa: F401
    except ImportError as exc:
        raise FrameworkError(f"torch_xla cannot be imported: {exc}", hint=_install_hint()) from exc
    here = release("torch_xla")
    if here < OLDEST:
        raise FrameworkError(
            f"torch_xla {'.'.join(map(str, here))} is too old: plugins of pjrt-hub need {oldest} "
            "or newer",
            hint=_install_hint(),
        )


def _install_hint() -> str:
    """Return a hint: what is installed, and how to install a torch and torch_xla that fit."""
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name in ("torch", "torch_xla"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return (
        f"torch_xla needs the torch of the same number, and there is {' and '.join(found)}: "
        "`pip install 'pjrt-hub[torch-xla]'` installs two that fit"
    )


def has_begun() -> bool:
    """Return whether torch_xla has made its one client, after which it takes no other plugin."""
    import torch_xla

    return bool(torch_xla._XLAC._xla_runtime_is_initialized())


def device_types() -> frozenset[str]:
    """Return the device types that are registered in torch_xla now."""
    from torch_xla.experimental import plugins

    return frozenset(plugins._plugin_registry)


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


def use(device_type: str, plugin: Any) -> None:
    """Register a plugin and make it the device of this process."""
    from torch_xla import runtime
    from torch_xla.experimental import plugins

    plugins.register_plugin(device_type, plugin)
    plugins.use_dynamic_plugins()
    runtime.set_device_type(device_type)
