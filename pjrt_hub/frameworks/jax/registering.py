"""From a wish to a row of JAX's table of platforms; loads and fetches nothing."""

from __future__ import annotations

import logging
import os

from pjrt_hub.errors import FrameworkError
from pjrt_hub.frameworks.jax import asked, framework, host_functions
from pjrt_hub.frameworks.jax.backend import Backend
from pjrt_hub.frameworks.jax.settings import Options

#: The module whose `initialize` JAX calls; it registers no plugin of a vendor.
_OURS = "pjrt_hub.jax"
#: Above those that vendors choose, which is 500; each later one gets one less.
_FIRST = 1000
_LEFT_OUT = (
    "JAX makes no client of a platform that is called %r on a machine without /dev/nvidia0, and "
    "JAX_PLATFORMS=%s alone ends in an AssertionError there; ahead-of-time topologies work"
)
_LOG = logging.getLogger("pjrt_hub.jax")

_backends: dict[str, Backend] = {}


def register(
    platform: str | os.PathLike[str],
    name: str | None = None,
    priority: int | None = None,
    options: Options | None = None,
) -> str:
    """See `pjrt_hub.jax.register`."""
    framework.require()
    asked_for = os.fspath(platform)
    if framework.has_begun():
        raise FrameworkError(
            f"{asked_for} cannot be registered: JAX has made its clients already",
            hint="register it before the first array, `jax.devices()` or `jax.jit` call, or set "
            f"PJRT_HUB_JAX={asked_for}",
        )
    vendors = asked.vendors_names(framework.plugin_modules() - {_OURS})
    called = asked.name_in_jax(asked_for, name, vendors | _backends.keys())
    backend = Backend(asked_for, called, options)
    if priority is None:
        priority = _FIRST - len(_backends)
    if framework.leaves_out(called):
        wanted = framework.wanted().split(",")
        level = logging.WARNING if {called, "gpu"} & set(wanted) else logging.INFO
        _LOG.log(level, _LEFT_OUT, called, called)
    host_functions.listen()
    framework.register(called, priority, backend.client, backend.topology)
    _backends[called] = backend
    _LOG.info("%s is registered in JAX as %r, priority %d", asked_for, called, priority)
    return called


def register_asked(text: str) -> None:
    """Registers what PJRT_HUB_JAX asks for and the program has not registered by itself.

    Raises:
        FrameworkError: as `register`.
        ValueError: the text is malformed.
    """
    for each in asked.read(text):
        platforms = {backend.platform for backend in _backends.values()}
        is_known = each.platform in platforms if each.name is None else each.name in _backends
        if not is_known:
            register(each.platform, each.name)
