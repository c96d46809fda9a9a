"""From a choice to a loaded plugin: fetch, prepare, load.

The runtime knows nothing of manifests and caches: this module gives it what it needs of them.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pjrt_hub.base import digest, log
from pjrt_hub.door import privilege
from pjrt_hub.door.process import cache, distrust, say, world
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract.variables import is_on

if TYPE_CHECKING:
    from pjrt_hub.door.closure import Which
    from pjrt_hub.finding.discovery.select import Choice
    from pjrt_hub.finding.discovery.source import Candidate, World
    from pjrt_hub.finding.store.cache.cache import CacheEntry
    from pjrt_hub.finding.store.catalog import Archive
    from pjrt_hub.finding.store.transfer.partial import Progress
    from pjrt_hub.running.capi.values import NamedValue
    from pjrt_hub.running.client.plugin import Plugin
    from pjrt_hub.running.interpose.layers import Chain

    Reload = Callable[[str], Plugin]

#: `import jax` sets these variables if they are unset, so these values are no user's choice.
_SET_BY_JAX = {"TF_CPP_MIN_LOG_LEVEL": "1"}
#: The loader may have opened these libraries after they were changed.
_SPOILT: set[Path] = set()


def open_plugin(
    choice: Choice,
    *,
    create_options: Mapping[str, NamedValue] | None = None,
    offline: bool = False,
    progress: Progress | None = None,
    reload: Reload,
) -> Plugin:
    """Fetch the library if it is missing, check it, and load it.

    With `create_options`, one child process tries both the library and a client. `reload` loads the
    same plugin by its name or path, for objects that another process unpickles.
    """
    import pjrt_hub.running.capi  # noqa: F401  (first: where nothing runs, nothing is fetched)

    candidate = choice.candidate
    with ExitStack() as held:
        path, entry = held.enter_context(library(choice, offline=offline, progress=progress))
        plugin = _load(candidate, choice.world or world(), path, entry, reload, create_options)
        if path != (entry.library_path if entry else candidate.library_path):
            # The plugin opens the files that it requires later, when it is used.
            atexit.register(held.pop_all().close)
        return plugin


def _load(
    candidate: Candidate,
    here: World,
    path: Path,
    entry: CacheEntry | None,
    reload: Reload,
    create_options: Mapping[str, NamedValue] | None,
) -> Plugin:
    from pjrt_hub.door import preflight
    from pjrt_hub.finding.discovery.survey import require_locked
    from pjrt_hub.running.capi import library

    manifest = candidate.manifest
    distrust(here.env)
    compared = digest.identity_if_any(path)  # All later steps must find this same file.
    require_same = functools.partial(_require_same, path, compared, entry)
    chain = read_layers(here.env)
    require_same("compare")
    defaults = manifest.environment_for(present=candidate.may_run)
    for name, value in defaults.items():
        if os.environ.get(name) in (None, _SET_BY_JAX.get(name)):
            os.environ[name] = value
    require_locked(candidate, path, here)  # The file may have been replaced meanwhile.
    preflight.initialize(path, manifest)
    user_flags = _user_flags(here.env)
    env = {**defaults, **here.env}
    wanted = None if create_options is None else candidate.check_options(create_options, here.env)
    contact = preflight.Contact(path, manifest, here, env, compared)
    preflight.prepare(contact, wanted)
    name = str(path) if candidate.source == "explicit" else candidate.name
    log.step("runtime", "%s: load it into this process", path, path=str(path))
    through = chain.wrap if chain else None
    api = library.load(path, require_same, through, meanwhile=_import_runtime, identity=compared)
    from pjrt_hub.door.policy import FoundPolicy
    from pjrt_hub.running.client.plugin import Plugin

    if is_on(here.env, "PJRT_HUB_BUFFER_ORIGINS"):
        from pjrt_hub.running.client import memory_report

        memory_report.record_origins()
    policy = FoundPolicy(candidate, contact, user_flags)
    policy.reload = functools.partial(reload, name)
    return Plugin(api, policy)


def _import_runtime() -> None:
    """Import the runtime while the loader works: each of these takes a fifth of a start."""
    import pjrt_hub.running.client.plugin  # noqa: F401


def _require_same(path: Path, compared: str, entry: CacheEntry | None, step: str) -> None:
    """Check before each step of loading that the file is still the verified one.

    Before `dlopen`, because loading a truncated library would end this process; after it, because
    the loader may have opened another file. The loader would return that file for this path for
    ever, so the path is then of no more use to this process.
    """
    now = digest.identity_if_any(path)
    is_good = now == compared and (entry is None or entry.is_as_verified())
    if is_good and path not in _SPOILT:
        return
    if step not in ("compare", "dlopen"):
        _SPOILT.add(path)
    again = "start this program again" if path in _SPOILT else "run it again"
    then = "which fetches the library again" if entry else "and let nobody write to it meanwhile"
    raise PluginLoadError(
        f"{path} was changed or removed while it was to be loaded",
        path=path,
        hint=f"{again}, {then}",
    )


def read_layers(env: Mapping[str, str]) -> Chain | None:
    """Return the layers that the user asked for between host and plugin, or None."""
    names = env.get("PJRT_HUB_LAYERS")
    if not names:
        return None
    from pjrt_hub.running.interpose import layers

    return layers.read(
        names,
        folder=env.get("PJRT_HUB_TRACE"),
        without=env.get("PJRT_HUB_WITHOUT"),
        discrete=env.get("PJRT_HUB_DISCRETE"),
        options=env.get("PJRT_HUB_OPTIONS"),
    )


def _user_flags(env: Mapping[str, str]) -> set[str]:
    """Return the flags in the user's XLA_FLAGS, which a compilation's own would override."""
    text = env.get("XLA_FLAGS", "")
    if text and not text.lstrip().startswith("-"):  # XLA takes such a value for the name of a file.
        with suppress(OSError, ValueError):
            text = digest.content(text).decode("utf-8", "replace")
    return set(re.findall(r"--(\w+)", text))


def library_path(
    choice: Choice,
    *,
    which: Which = "needed",
    offline: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Return the path of a candidate's library; fetch it first if it is missing.

    `which` says how much to fetch of what the plugin requires.
    """
    with library(choice, which=which, offline=offline, progress=progress) as (path, _):
        return path


@contextmanager
def library(
    choice: Choice,
    *,
    which: Which = "needed",
    offline: bool = False,
    progress: Progress | None = None,
) -> Iterator[tuple[Path, CacheEntry | None]]:
    """Yield the path that `library_path` returns, and keep the files from removal meanwhile.

    The cache entry, which is also yielded, is None if the library does not lie in a cache.
    """
    from pjrt_hub.finding.discovery.registry_rows import row_of

    candidate = choice.candidate
    here = choice.world or world()
    row = row_of(here, candidate)
    if row is None or (candidate.artifact is None and (which == "none" or not row.requires)):
        if candidate.library_path is None:
            raise PluginLoadError(f"{candidate} has neither a library nor a registry row", path="")
        yield candidate.library_path, None
        return
    from pjrt_hub.door.closure import closure
    from pjrt_hub.finding.contract.variables import is_on
    from pjrt_hub.finding.store.transfer.fetch import lease

    store = here.cache or cache()  # `cache()` raises the error that says why there is none.
    offline = offline or is_on(here.env, "PJRT_HUB_OFFLINE") or bool(privilege.reason())

    def keep(each: Archive) -> AbstractContextManager[CacheEntry]:
        shown = progress
        if shown is None and not offline and store.place(each) is None:
            from pjrt_hub.base.progress import choose_progress

            shown = choose_progress(each.package)
        return lease(each, store, env=here.env, offline=offline, progress=shown, notify=say)

    with closure(candidate, row, here, store, keep, which=which, offline=offline) as found:
        yield found
