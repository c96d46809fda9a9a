"""What is around this process (layer 4): its environment, `sys.path`, registry, lock, cache.

Read for the towers, which take it as arguments; also where the user is told something. A process
with more rights than its caller takes nothing of it from the caller.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
from collections.abc import Mapping
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING

from pjrt_hub import log
from pjrt_hub.errors import CacheError

if TYPE_CHECKING:
    from pjrt_hub.discovery.source import World
    from pjrt_hub.store.cache import Cache
    from pjrt_hub.store.catalog import Catalog
    from pjrt_hub.store.pins import Pins

_AT_SECURE = 23  # of getauxval(3): the kernel says that this program must not trust its caller


def environment() -> Mapping[str, str]:
    """The variables that may be listened to: all of them, but for an elevated process.

    Every part below takes them as an argument, so this is the only gate.
    """
    if elevation():
        from pjrt_hub.contract.variables import is_safe

        return {name: value for name, value in os.environ.items() if is_safe(name)}
    log.show(log.areas(os.environ.get("PJRT_HUB_DEBUG", "")))
    return os.environ


def elevation() -> str:
    """Why this process has more rights than its caller, or an empty string; logged once."""
    if not hasattr(os, "geteuid"):
        return ""  # Windows has no such programs
    if os.getuid() != os.geteuid():
        why = f"the process of user {os.getuid()} runs as user {os.geteuid()}"
    elif os.getgid() != os.getegid():
        why = f"the process of group {os.getgid()} runs as group {os.getegid()}"
    else:
        why = _started_elevated()
    if why:
        _warn(why)
    return why


@once
def _warn(why: str) -> None:
    import logging

    text = "%s: its environment, home folder and working directory are ignored"
    logging.getLogger("pjrt_hub").warning(text, why)


@once
def _started_elevated() -> str:
    if not sys.platform.startswith("linux"):
        return ""
    try:
        with open("/proc/self/auxv", "rb") as file:
            pairs = list(struct.iter_unpack("@LL", file.read()))
    except OSError:
        # Not even its own process may read that of a program with capabilities of its file.
        gained = _gained_capabilities()
        return f"the process has the capabilities {gained:#x}" if gained else ""
    secure = any(key == _AT_SECURE and value for key, value in pairs)
    return "the program was started with more rights than its caller has" if secure else ""


def _gained_capabilities() -> int:
    """What the process may do beyond its user, and did not get from whoever started it."""
    if os.geteuid() == 0:
        return 0
    try:
        with open("/proc/self/status", "rb") as file:
            lines = dict(line.split(b":", 1) for line in file if line.startswith(b"Cap"))
        return int(lines[b"CapPrm"], 16) & ~int(lines[b"CapAmb"], 16)
    except (OSError, KeyError, ValueError):
        return 0


def distrust() -> None:
    """Takes from an elevated process the variables that its caller could steer plugins with.

    Plugins read many of their own, such as flags that name files to write.
    """
    if elevation():
        safe = environment()
        for name in os.environ.keys() - safe.keys():
            del os.environ[name]


def cache() -> Cache:
    """The cache of this user: `PJRT_HUB_CACHE`, else the platform's cache directory.

    An elevated process has the system's caches that nobody but root can change.

    Raises:
        CacheError: there is no place for one.
    """
    from pjrt_hub.store.cache import SYSTEM, Cache

    if why := elevation():
        trusted = [root for root in SYSTEM if only_root_writes(str(root))]
        if not trusted:
            raise CacheError(
                f"no cache directory: {why}",
                hint=f"as root, fill {SYSTEM[0]}, or install the plugin for the whole machine",
            )
        return Cache(trusted[0], system=trusted[1:])
    return Cache.configured(environment())


def registry() -> Catalog:
    """What may be fetched where no lock file says otherwise."""
    from pjrt_hub.store.catalog import Catalog, shipped_registry

    return Catalog([shipped_registry()])


def pins() -> Pins | None:
    """The lock file that holds here: nothing else is fetched or loaded. None without one.

    Raises:
        LockFileError: it cannot be read, is malformed, or others may have written it.
    """
    from pjrt_hub.store.pins import read

    path = lock_path()
    return None if path is None else read(path)


def lock_path() -> Path | None:
    """The file that `PJRT_HUB_LOCK` names, else the nearest from the working directory upward.

    Raises:
        LockFileError: others may have written it.
    """
    from pjrt_hub.store.pins import find

    try:
        folder = None if elevation() else Path.cwd()
    except FileNotFoundError:  # the working directory is gone
        folder = None
    return find(environment(), folder)


def world() -> World:
    """What discovery looks at: this process's environment, `sys.path`, registry, lock and cache.

    Raises:
        LockFileError: as `pins`.
    """
    from dataclasses import replace

    from pjrt_hub.discovery.source import World
    from pjrt_hub.store.catalog import Catalog

    try:
        known = cache()
    except CacheError:
        known = None  # what is installed can be used without one
    locked = pins()
    catalog = Catalog([], locked.rows) if locked else registry()
    here = World.current(environment(), catalog=catalog, cache=known, pins=locked)
    if not elevation():
        return here
    trusted = tuple(folder for folder in here.sys_path if only_root_writes(folder))
    return replace(here, sys_path=trusted, finders=())


def only_root_writes(path: str) -> bool:
    """Whether nobody but root can change what an absolute path leads to."""
    if not os.path.isabs(path):
        return False
    parts = path.rstrip("/").split("/")
    for count in range(1, len(parts) + 1):
        above = "/".join(parts[:count]) or "/"
        try:
            status = os.lstat(above)
        except OSError:
            return False
        writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a sticky folder, such as /tmp, nobody else can replace what root made.
        shared = status.st_mode & stat.S_ISVTX and count < len(parts)
        if status.st_uid != 0 or stat.S_ISLNK(status.st_mode) or (writable and not shared):
            return False
    return True


def say(text: str) -> None:
    """Tells the user something on stderr."""
    if sys.stderr is not None:  # print would take stdout instead
        print(f"pjrt-hub: {text}", file=sys.stderr)
