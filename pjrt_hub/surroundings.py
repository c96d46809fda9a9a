"""What is around this process (layer 4): its environment, `sys.path`, the registry, the cache.

Read for the towers, which take it as arguments; also where the user is told something.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pjrt_hub.errors import CacheError

if TYPE_CHECKING:
    from pjrt_hub.discovery.source import World
    from pjrt_hub.store.cache import Cache


def cache() -> Cache:
    """The cache of this user: `PJRT_HUB_CACHE`, else the platform's cache directory.

    Raises:
        CacheError: there is no place for one.
    """
    from pjrt_hub.store.cache import Cache

    return Cache.configured(os.environ)


def world() -> World:
    """What discovery looks at: this process's environment, `sys.path`, registry and cache."""
    from pjrt_hub.discovery.source import World
    from pjrt_hub.store.catalog import Catalog, shipped_registry

    try:
        known = cache()
    except CacheError:
        known = None  # what is installed can be used without one
    return World.current(os.environ, catalog=Catalog([shipped_registry()]), cache=known)


def say(text: str) -> None:
    """Tells the user something on stderr."""
    if sys.stderr is not None:  # print would take stdout instead
        print(f"pjrt-hub: {text}", file=sys.stderr)
