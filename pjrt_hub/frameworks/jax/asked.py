"""What PJRT_HUB_JAX asks for, and how a platform is called in JAX (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import PurePath
from typing import NamedTuple

from pjrt_hub.errors import FrameworkError
from pjrt_hub.finding.contract.names import is_name
from pjrt_hub.finding.discovery.undescribed import plugin_name

#: Platforms that JAX makes by itself, and the aliases that it looks through before its table.
BUILT_IN = frozenset({"cpu", "tpu"})
ALIASES = frozenset({"gpu"})
_PREFIX = "hub"


class Asked(NamedTuple):
    """One platform to register: what pjrt-hub is asked for, and its name in JAX if one is given."""

    platform: str
    name: str | None


def read(text: str) -> tuple[Asked, ...]:
    """Reads "cpu,mine=cuda": platforms joined by commas, each with a name in JAX or without.

    Raises:
        ValueError: an item or a name is empty, or a name is none.
    """
    items = []
    for item in text.split(","):
        name, equals, platform = item.rpartition("=")
        name, platform = name.strip(), platform.strip()
        if not platform or (equals and not is_name(name)):
            raise ValueError(
                f"PJRT_HUB_JAX is {text!r}, in which {item!r} is no platform\n\nhint: write "
                "platforms joined by commas, each as `cuda` or with its name in JAX as `mine=cuda`"
            )
        items.append(Asked(platform, name or None))
    return tuple(items)


def name_in_jax(platform: str, name: str | None, taken: Collection[str]) -> str:
    """Gives the name that a platform gets in JAX.

    Args:
        platform: as pjrt-hub is asked for it, or a library's path.
        name: the one that the user wants, or None.
        taken: names of others.

    Raises:
        FrameworkError: it is taken.
        ValueError: it is none.
    """
    reserved = BUILT_IN | ALIASES | set(taken)
    if name is None:
        plain = _plain(platform)
        return _PREFIX + plain if plain in reserved else plain
    if not is_name(name):
        raise ValueError(f"{name!r} is no name for a platform: it takes a-z, 0-9 and _, 32 at most")
    if name in reserved:
        why = "built into JAX" if name in BUILT_IN | ALIASES else "another plugin's"
        raise FrameworkError(
            f"the platform {platform} cannot be called {name!r} in JAX: that name is {why}",
            hint=f"leave the name out, which gives {_PREFIX + _plain(platform)!r}, or take another",
        )
    return name


def _plain(platform: str) -> str:
    """The plugin's part of "distribution:plugin", or a library's name as `pjrt-hub list` has it."""
    last = PurePath(platform).name.rpartition(":")[2]
    return plugin_name(PurePath(last).stem)[: 32 - len(_PREFIX)]


def vendors_names(modules: Iterable[str]) -> frozenset[str]:
    """Gives the names that vendors' packages for JAX will register, by the names of their modules.

    Which one registers first depends on the hashes of strings, so nobody can wait and see. All
    vendors call the modules after the platform: `jax_plugins.xla_cuda13` registers "cuda".
    """
    plugins = {plugin_name(module.rpartition(".")[2]) for module in modules}
    return frozenset(plugins | {name.rstrip("0123456789") for name in plugins})
