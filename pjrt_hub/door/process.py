"""What is around this process: its environment, `sys.path`, registry, lock, cache.

Read for the towers, which take it as arguments; also the messages to the user. An elevated process
takes nothing of it from its caller.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING

from pjrt_hub.base import frames, log
from pjrt_hub.door import privilege

if TYPE_CHECKING:
    from pjrt_hub.finding.discovery.source import World
    from pjrt_hub.finding.store.cache.cache import Cache
    from pjrt_hub.finding.store.cache.journal import Journal
    from pjrt_hub.finding.store.catalog import Archive, Catalog
    from pjrt_hub.finding.store.pins import Pins
    from pjrt_hub.finding.store.registry.remote import Remote


def environment() -> Mapping[str, str]:
    """Return the variables that may be used: all of them, except in an elevated process.

    Every part below takes them as an argument, so this is the only gate.
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
        return  # so nobody waits for the table
    from pjrt_hub.finding.contract import names, variables

    for name in ours:
        if variables.find(name) is None:
            known = (each.name for each in variables.OURS)
            meant = names.did_you_mean(name, known, prefix=prefix)
            warn(f"nothing reads the variable {name}{meant and f': {meant}'}")


def distrust(safe: Mapping[str, str]) -> None:
    """Remove the variables by which the caller of an elevated process could steer plugins.

    Plugins read many of their own, such as flags that name files to write.

    Args:
        safe: those that may be listened to, as `environment` gave them.
    """
    if privilege.reason():
        for name in os.environ.keys() - safe.keys():
            del os.environ[name]


def cache() -> Cache:
    """Return the cache of this user: `PJRT_HUB_CACHE`, else the platform's cache directory.

    An elevated process has the system's caches that nobody but root can change.

    Raises:
        CacheError: there is no place for one.
    """
    return _cache(environment())


def _cache(env: Mapping[str, str]) -> Cache:
    # Late, because JAX asks for a variable at every start and should not wait for it.
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

    Args:
        name: of the work, and of all that its results depend on.
        resume: keep the records that are there.
    """
    from pjrt_hub.errors import CacheError
    from pjrt_hub.finding.store.cache.journal import Journal

    try:
        return Journal(cache().root, name, resume=resume)
    except CacheError:
        return None


def registry(env: Mapping[str, str]) -> Catalog:
    """Return the registry that applies without a lock file; use no network.

    That is the shipped registry, and beside it what was read last of `PJRT_HUB_REGISTRY`.

    Raises:
        RegistryError: that one is not trusted, or has rows for names of the shipped one.
    """
    from pjrt_hub.finding.store.catalog import Catalog

    shipped = Catalog.read_shipped()
    if (elsewhere := remote(env)) is None:
        return shipped
    reading = elsewhere.last_reading()
    if reading is not None and elsewhere.has_expired(reading):
        text = f"what was read of the registry {elsewhere.name} has expired: what it pins goes on "
        text += "working, and nothing new of it is fetched before `pjrt-hub registry refresh` or "
        warn(text + "the next fetch reads it")
    return Catalog([], elsewhere.beside(shipped.rows(), reading))


def catalog(env: Mapping[str, str], locked: Pins | None) -> Catalog:
    """Return what may be fetched: the rows of a named lock file, else of the registry.

    Args:
        env: the variables that may be listened to.
        locked: the lock file that holds here, or None; one that was found leaves of the registry
            what it has, too.

    Raises:
        RegistryError: as `registry`.
    """
    from pjrt_hub.finding.store.catalog import Catalog

    if locked is None:
        return registry(env)
    return Catalog([], locked.rows if locked.is_named else locked.among(registry(env).rows()))


def follows_registry(locked: Pins | None) -> bool:
    """Check whether rows of the registry may be fetched: unless the user named a lock file."""
    return locked is None or not locked.is_named


def remote(env: Mapping[str, str]) -> Remote | None:
    """The registry that `PJRT_HUB_REGISTRY` names, or None.

    Raises:
        RegistryError: its root keys are not known.
        CacheError: there is no place to keep what is read of it.
    """
    if not env.get("PJRT_HUB_REGISTRY"):
        return None
    from pjrt_hub.finding.store.registry.remote import Remote, read_trust

    trust = read_trust(env, configuration())
    return None if trust is None else Remote(trust, _cache(env).root)


def refresh_registry(env: Mapping[str, str], wanted: Archive | None = None) -> bool:
    """Read the signed registry again, if there is one and its last reading is old.

    Args:
        env: the variables that may be listened to.
        wanted: the archive that is to be fetched, which must not be where it is one of that
            registry, and this cannot be read or trusted now; None where any row of it may be taken
            up.

    Returns:
        Whether it was read.

    Raises:
        RegistryError: it cannot be read or trusted, and what is wanted may be its own: its last
            reading says so, or has expired, or there is none.
    """
    if (elsewhere := remote(env)) is None:
        return False
    from pjrt_hub.base.progress import choose_progress
    from pjrt_hub.errors import RegistryError
    from pjrt_hub.finding.store.catalog import Catalog
    from pjrt_hub.finding.store.transfer.partial import enter, report_to

    reading = elsewhere.last_reading()
    if elsewhere.is_fresh(reading):
        return False
    try:
        with report_to(choose_progress("registry")) as progress:
            enter(progress, "looking")
            elsewhere.refresh(env, Catalog.read_shipped().rows(), notify=say)
    except RegistryError as exc:
        if reading is None or any(wanted in row.archives for row in reading.rows):
            raise
        if wanted is None and elsewhere.has_expired(reading):
            raise
        say(exc.message)
        return False
    return True


def configuration() -> Path:
    """Return the folder of this user's configuration."""
    from platformdirs import user_config_path

    return user_config_path("pjrt-hub", appauthor=False)


@once
def warn(text: str) -> None:
    """Log a warning, once in this process."""
    import logging

    logging.getLogger("pjrt_hub").warning("%s", text)


def pins() -> Pins | None:
    """Return the lock file that holds here, or None.

    Raises:
        LockFileError: it cannot be read, is malformed, or others may have written it.
    """
    return _pins(environment())


def _pins(env: Mapping[str, str]) -> Pins | None:
    from pjrt_hub.finding.store.pins import read

    path = lock_path(env)
    return None if path is None else read(path, is_named=bool(env.get("PJRT_HUB_LOCK")))


def lock_path(env: Mapping[str, str]) -> Path | None:
    """Return the file that `PJRT_HUB_LOCK` names, else the nearest from here upward.

    Raises:
        LockFileError: others may have written it.
    """
    from pjrt_hub.finding.store.pins import find

    try:
        folder = None if privilege.reason() else Path.cwd()
    except FileNotFoundError:  # the working directory is gone
        folder = None
    return find(env, folder)


def world() -> World:
    """Return the world of discovery: environment, `sys.path`, registry, lock and cache.

    Raises:
        LockFileError: as `pins`.
        RegistryError: as `registry`.
    """
    from pjrt_hub.base.frozen import replace
    from pjrt_hub.errors import CacheError
    from pjrt_hub.finding.discovery.source import World

    env = environment()
    try:
        known = _cache(env)
    except CacheError:
        known = None  # what is installed can be used without one
    locked = _pins(env)
    here = World.current(env, catalog=catalog(env, locked), cache=known, pins=locked)
    if not privilege.reason():
        return here
    trusted = tuple(folder for folder in here.sys_path if privilege.only_root_writes(folder))
    return replace(here, sys_path=trusted, finders=())


def say(text: str) -> None:
    """Print a message to the user on stderr."""
    if sys.stderr is not None:  # print would take stdout instead
        print(f"pjrt-hub: {text}", file=sys.stderr)
