"""Everything that pjrt-hub uses of torch_xla and that is not public: its registry and its state.

Differences between releases of torch_xla are handled here and nowhere else.
"""

from __future__ import annotations

from typing import Any

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import FrameworkError
from pjrt_hub.frameworks.request import release

#: This is the oldest release of torch_xla that the tests ran on.
OLDEST = (2, 8)
#: Releases of torch_xla were built with these versions of the PJRT API. They tell it only in an
#: error, when ENABLE_PJRT_COMPATIBILITY=0 makes them refuse every other version.
BUILT_WITH = {(2, 8): ApiVersion(0, 70), (2, 9): ApiVersion(0, 75)}


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
            f"torch_xla {here[0]}.{here[1]} is too old: plugins of pjrt-hub need {oldest} or newer",
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


def use(device_type: str, plugin: Any) -> None:
    """Register a plugin and make it the device of this process."""
    from torch_xla import runtime
    from torch_xla.experimental import plugins

    plugins.register_plugin(device_type, plugin)
    plugins.use_dynamic_plugins()
    runtime.set_device_type(device_type)
