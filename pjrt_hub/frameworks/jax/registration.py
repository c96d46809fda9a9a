"""Registration of platforms in JAX: what to register, by which name, and the row in JAX's table.

Loads and fetches nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable
from pathlib import PurePath
from typing import NamedTuple

from pjrt_hub.errors import FrameworkError
from pjrt_hub.finding.contract.names import is_name
from pjrt_hub.finding.discovery import select
from pjrt_hub.finding.discovery.library import plugin_name
from pjrt_hub.frameworks.jax import framework, host_functions
from pjrt_hub.frameworks.jax.backend import JaxBackend, Options
from pjrt_hub.frameworks.jax.start import ALIASES, BUILT_IN

#: JAX makes the built-in platforms itself, and resolves an alias before it looks into its table.
_JAXS_OWN = BUILT_IN.keys() | ALIASES.keys()
_PREFIX = "hub"
#: JAX calls the `initialize` of this module, which registers no plugin of a vendor.
_OURS = "pjrt_hub.frameworks.jax"
#: Vendors choose priorities up to 500; each later registration of ours gets one less than this.
FIRST_PRIORITY = 1000
_LEFT_OUT = (
    "JAX makes no client of a platform that is called %r on a machine without /dev/nvidia0, and "
    "JAX_PLATFORMS=%s alone ends in an AssertionError there; ahead-of-time topologies work"
)
_LOG = logging.getLogger("pjrt_hub.jax")

_backends: dict[str, JaxBackend] = {}


def register(
    platform: str | os.PathLike[str],
    name: str | None = None,
    priority: int | None = None,
    options: Options | None = None,
) -> str:
    """See `pjrt_hub.jax.register`."""
    return _register(os.fspath(platform), name, priority, options)


def _register(
    asked_for: str,
    name: str | None,
    priority: int | None = None,
    options: Options | None = None,
    origin: str = select.ARGUMENT,
) -> str:
    framework.require()
    if framework.has_begun():
        raise FrameworkError(
            f"{asked_for} cannot be registered: JAX has made its clients already",
            hint="register it before the first array, `jax.devices()` or `jax.jit` call, or set "
            f"PJRT_HUB_JAX={asked_for}",
        )
    vendors = vendors_names(framework.plugin_modules() - {_OURS})
    called = name_in_jax(asked_for, name, vendors | _backends.keys())
    backend = JaxBackend(asked_for, called, options, origin)
    if priority is None:
        priority = FIRST_PRIORITY - len(_backends)
    if framework.leaves_out(called):
        wanted = framework.platforms_setting().split(",")
        level = logging.WARNING if {called, "gpu"} & set(wanted) else logging.INFO
        _LOG.log(level, _LEFT_OUT, called, called)
    host_functions.listen()
    framework.register(called, priority, backend.client, backend.topology)
    _backends[called] = backend
    _LOG.info("%s is registered in JAX as %r, priority %d", asked_for, called, priority)
    return called


def register_requests(text: str) -> None:
    """Register what PJRT_HUB_JAX asks for and the program has not registered by itself."""
    for each in read_requests(text):
        platforms = {backend.platform for backend in _backends.values()}
        is_known = each.platform in platforms if each.name is None else each.name in _backends
        if not is_known:
            _register(each.platform, each.name, origin="$PJRT_HUB_JAX")


class PlatformRequest(NamedTuple):
    """One platform to register: what pjrt-hub is asked for, and its name in JAX if one is given."""

    platform: str
    name: str | None


def read_requests(text: str) -> tuple[PlatformRequest, ...]:
    """Read "cpu,mine=cuda": platforms joined by commas, each with a name in JAX or without.

    An item without a platform, or with a name that is not valid, raises ValueError.
    """
    items = []
    for item in text.split(","):
        name, equals, platform = item.rpartition("=")
        name, platform = name.strip(), platform.strip()
        if not platform or (equals and not is_name(name)):
            raise ValueError(
                f"PJRT_HUB_JAX is {text!r}, in which {item!r} is not a platform\n\nhint: write "
                "platforms joined by commas, each as `cuda` or with its name in JAX as `mine=cuda`"
            )
        items.append(PlatformRequest(platform, name or None))
    return tuple(items)


def name_in_jax(platform: str, name: str | None, taken: Collection[str]) -> str:
    """Return the name that a platform, or a library's path, gets in JAX.

    A name that the user gives raises FrameworkError if it is taken, ValueError if it is not valid.
    """
    reserved = _JAXS_OWN | set(taken)
    if name is None:
        plain = _plain(platform)
        return _PREFIX + plain if plain in reserved else plain
    if not is_name(name):
        raise ValueError(
            f"{name!r} is not a name for a platform: it takes a-z, 0-9 and _, 32 at most"
        )
    if name in reserved:
        why = "built into JAX" if name in _JAXS_OWN else "another plugin's"
        raise FrameworkError(
            f"the platform {platform} cannot be called {name!r} in JAX: that name is {why}",
            hint=f"leave the name out, which gives {_PREFIX + _plain(platform)!r}, or take another",
        )
    return name


def _plain(platform: str) -> str:
    """Return the plugin of "distribution:plugin", or a library's name as `pjrt-hub list` has it."""
    last = PurePath(platform).name.rpartition(":")[2]
    return plugin_name(PurePath(last).stem)[: 32 - len(_PREFIX)]


def vendors_names(modules: Iterable[str]) -> frozenset[str]:
    """Return the names that vendors' packages for JAX will register, by the names of their modules.

    Which module registers first depends on hashes of strings, so the names must be known before.
    All vendors name the modules after the platform: `jax_plugins.xla_cuda13` registers "cuda".
    """
    plugins = {plugin_name(module.rpartition(".")[2]) for module in modules}
    return frozenset(plugins | {name.rstrip("0123456789") for name in plugins})
