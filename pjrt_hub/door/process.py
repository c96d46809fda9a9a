"""What is around this process: its environment, `sys.path`, registry, lock, cache.

Read here for `finding` and `running`, which take it as arguments. Also prints messages to the user.
An elevated process takes nothing of this from its caller.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING

from pjrt_hub.base import frames, log
from pjrt_hub.door import privilege

if TYPE_CHECKING:
    from pjrt_hub.finding.discovery.installed import Installed
    from pjrt_hub.finding.discovery.source import World
    from pjrt_hub.finding.store.cache.cache import Cache
    from pjrt_hub.finding.store.cache.journal import Journal
    from pjrt_hub.finding.store.catalog import Artifact, Catalog, RegistryPackage
    from pjrt_hub.finding.store.pins import Pins


def environment() -> Mapping[str, str]:
    """Return the variables that may be used: all of them, except in an elevated process.

    All modules below take the variables as an argument, so this is the only gate.
    """
    if privilege.reason():
        from pjrt_hub.finding.contract.variables import is_safe

        return {name: value for name, value in os.environ.items() if is_safe(name)}
    asked = log.areas(os.environ.get("PJRT_HUB_DEBUG", ""))
    frames.shown = bool(asked)
    log.show(asked)
    _warn_of_unknown_variables()
    return os.environ


@once
def _warn_of_unknown_variables() -> None:
    """Warn of names that begin like ours but that nothing reads: probably misspelled."""
    prefix = "PJRT_HUB_"
    ours = sorted(name for name in os.environ if name.startswith(prefix))
    if not ours:
        return  # Without such a variable, the table of variables is not imported.
    from pjrt_hub.finding.contract import names, variables

    for name in ours:
        if variables.find(name) is None:
            known = (each.name for each in variables.OURS)
            meant = names.did_you_mean(name, known, prefix=prefix)
            warn(f"nothing reads the variable {name}{meant and f': {meant}'}")


def distrust(safe: Mapping[str, str]) -> None:
    """Remove all variables but `safe` from an elevated process, whose caller could steer plugins.

    Plugins read many variables of their own, such as flags that name files to write.
    """
    if privilege.reason():
        for name in os.environ.keys() - safe.keys():
            del os.environ[name]


def cache() -> Cache:
    """Return the cache of this user: `PJRT_HUB_CACHE`, else the platform's cache directory.

    An elevated process gets the system's caches that nobody but root can change.

    Raises:
        CacheError: there is no place for a cache.
    """
    return _cache(environment())


def _cache(env: Mapping[str, str]) -> Cache:
    # Every start of JAX imports this module for `environment`, so these imports are late.
    from pjrt_hub.errors import CacheError
    from pjrt_hub.finding.store.cache.cache import SYSTEM, Cache

    if why := privilege.reason():
        trusted = [root for root in SYSTEM if privilege.only_root_writes(str(root))]
        if not trusted:
            raise CacheError(
                f"no cache directory: {why}",
                hint=f"as root, fill {SYSTEM[0]}, or install the plugin for the whole machine",
            )
        return Cache(trusted[0], system=trusted[1:])
    return Cache.from_env(env)


def journal(name: str, *, resume: bool) -> Journal | None:
    """Open a journal in the cache; return None without a cache.

    Its name stands for the work, and for all that the results of the work depend on.
    """
    from pjrt_hub.errors import CacheError
    from pjrt_hub.finding.store.cache.journal import Journal

    try:
        return Journal(cache().root, name, resume=resume)
    except CacheError:
        return None


def installed() -> Installed:
    """Return what is installed; for an elevated process, only what nobody but root can change."""
    from pjrt_hub.finding.discovery.installed import Installed

    if not privilege.reason():
        return Installed.current()
    return Installed([folder for folder in sys.path if privilege.only_root_writes(folder)])


def registry(there: Installed) -> Catalog:
    """Return the registry that applies without a lock file: shipped rows, and rows of packages."""
    from pjrt_hub.finding.store.catalog import Catalog, shipped_registry

    def find() -> Iterable[RegistryPackage]:
        from pjrt_hub.finding.discovery.packages import find_registries

        return find_registries(there)

    return Catalog([shipped_registry()], packages=find)


def catalog(there: Installed, locked: Pins | None) -> Catalog:
    """Return what may be fetched: a named lock file's rows, else the registry's.

    A lock file that was found, but not named, leaves only the registry's rows that it pins.
    """
    from pjrt_hub.finding.store.catalog import Catalog

    if locked is None:
        return registry(there)
    if locked.is_named:
        return Catalog([], locked.rows)
    known = registry(there)
    return known.only(locked.among(known.rows()))


def known_rows(known: Catalog) -> tuple[Artifact, ...]:
    """Return the rows of a catalog, and warn of rows of packages that are left out."""
    for flaw in known.flaws:
        warn(f"{flaw.origin}: {flaw.reason}; {flaw.hint}")
    return known.rows()


@once
def warn(text: str) -> None:
    """Log a warning, once in this process."""
    log.warn("pjrt_hub", "%s", text)


def pins() -> Pins | None:
    """Return the lock file that applies here, or None.

    Raises:
        LockFileError: it cannot be read, is malformed, or others may have written it.
    """
    return _pins(environment())


def _pins(env: Mapping[str, str]) -> Pins | None:
    from pjrt_hub.finding.store.pins import read

    path = lock_path(env)
    return None if path is None else read(path, is_named=bool(env.get("PJRT_HUB_LOCK")))


def lock_path(env: Mapping[str, str]) -> Path | None:
    """Return the lock file that `PJRT_HUB_LOCK` names, else the nearest from this folder upward."""
    from pjrt_hub.finding.store.pins import find

    try:
        folder = None if privilege.reason() else Path.cwd()
    except FileNotFoundError:  # The working directory is gone.
        folder = None
    return find(env, folder)


def world() -> World:
    """Return the world of discovery: environment, `sys.path`, registry, lock and cache."""
    from pjrt_hub.errors import CacheError
    from pjrt_hub.finding.discovery.source import World

    env = environment()
    try:
        known = _cache(env)
    except CacheError:
        known = None  # Installed plugins can be used without a cache.
    locked, there = _pins(env), installed()
    rows = catalog(there, locked)
    return World.current(env, there)._replace(catalog=rows, cache=known, pins=locked)


def say(text: str) -> None:
    """Print a message to the user on stderr."""
    if sys.stderr is not None:  # With None, print would write to stdout.
        print(f"pjrt-hub: {text}", file=sys.stderr)
