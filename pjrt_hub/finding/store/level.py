"""The levels of a machine: an environment, a user, the whole system.

Owns where each level keeps manifests of plugins, and the plugins that they lead to.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

#: The store of the whole machine, below its root; Windows has it elsewhere.
SYSTEM_STORE = "usr/local/share/pjrt-hub"


class Level(NamedTuple):
    """One level."""

    name: str  # "env", "user" or "system".
    manifests: Path  # The folder of its manifests.
    store: Path  # The cache of the plugins that `install` puts there; nothing prunes it.


def levels(
    env: Mapping[str, str], root: Path = Path("/"), *, windows: bool = False
) -> Iterator[Level]:
    """Yield the levels that there are here, in the order in which their manifests count."""
    below, ours = Path("pjrt", "plugins"), "pjrt-hub"
    for prefix in filter(None, (env.get("VIRTUAL_ENV"), env.get("CONDA_PREFIX"))):
        yield Level("env", Path(prefix, "etc", below), Path(prefix, "share", ours))
    if windows:
        for name, base in (("user", env.get("APPDATA")), ("system", env.get("PROGRAMDATA"))):
            if base:
                yield Level(name, Path(base, below), Path(base, ours))
        return
    home = env.get("HOME", "")
    settings = env.get("XDG_CONFIG_HOME") or (home and os.path.join(home, ".config"))
    data = env.get("XDG_DATA_HOME") or (home and os.path.join(home, ".local", "share")) or settings
    if settings:
        yield Level("user", Path(settings, below), Path(data, ours))
    yield Level("system", root / "etc" / below, root / SYSTEM_STORE)
