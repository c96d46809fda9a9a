"""From a choice to a loaded plugin (layer 4): fetch, prepare, load.

The runtime knows nothing of manifests and caches: what it needs of them goes in here.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pjrt_hub import log
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.surroundings import cache, distrust, elevation, environment, say, world

if TYPE_CHECKING:
    from pjrt_hub.discovery.select import Choice
    from pjrt_hub.discovery.source import Candidate, World
    from pjrt_hub.runtime.plugin import Plugin
    from pjrt_hub.store.compiled import CompiledPrograms
    from pjrt_hub.store.partial import Progress

    Reload = Callable[[str], Plugin]


def plugin(
    choice: Choice, *, offline: bool = False, progress: Progress | None = None, reload: Reload
) -> Plugin:
    """Fetches the library where it is missing, checks it, and loads it.

    Args:
        choice: what `discovery.select` chose.
        offline: use no network.
        progress: is told how a download goes; by default a bar where stderr is a terminal.
        reload: loads the same plugin again by its name or path, for what was unpickled elsewhere.

    Raises:
        StoreError: the plugin cannot be fetched.
        PluginError: it cannot be loaded, does not fit, or crashed at first contact.
    """
    candidate = choice.candidate
    with library(candidate, offline=offline, progress=progress) as path:
        return _load(candidate, path, reload)


def _load(candidate: Candidate, path: Path, reload: Reload) -> Plugin:
    from pjrt_hub import contact
    from pjrt_hub.discovery.survey import require_locked
    from pjrt_hub.runtime.plugin import Plugin

    manifest = candidate.manifest
    distrust()
    defaults = manifest.environment_for(present=candidate.hardware.ok)
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    here = world()
    require_locked(candidate, path, here)  # again: the file may be another one by now
    contact.initialize(path, manifest)
    contact.prepare(path, manifest, here, {**defaults, **environment()})
    _require_unchanged(candidate, path)
    given = dict(candidate.create_options)
    probes = contact.memory(here)
    name = str(path) if candidate.source == "explicit" else candidate.name
    log.step("runtime", "%s: load it into this process", path, path=str(path))
    return Plugin(
        path,
        name=candidate.name,
        create_options=lambda options, api: manifest.create_options({**given, **options}, api),
        takes_option=lambda option: (
            manifest.path is None or any(option == each.name for each in manifest.options)
        ),
        sha256=functools.partial(probes.sha256, path) if probes else None,
        compile_cache=_compile_cache(here),
        caches_by_default=environment().get("PJRT_HUB_COMPILE_CACHE", "") not in ("", "0"),
        topology_options=lambda target, options, api: manifest.topology_options(
            target, options, path, api
        ),
        reload=functools.partial(reload, name),
    )


def _require_unchanged(candidate: Candidate, path: Path) -> None:
    """Looks once more, right before the library enters this process: a cut one would end it."""
    if candidate.artifact is not None and cache().lookup(candidate.artifact) is None:
        raise PluginLoadError(
            f"{path} was changed or removed while it was to be loaded",
            path=path,
            hint="run it again, which fetches the library again",
        )


def _compile_cache(here: World) -> CompiledPrograms | None:
    from pjrt_hub.store.compiled import CompiledPrograms

    return CompiledPrograms.configured(environment(), here.cache.root if here.cache else None)


def library_path(
    candidate: Candidate, *, offline: bool = False, progress: Progress | None = None
) -> Path:
    """Gives the path of a candidate's library, and fetches it first where it is missing.

    Raises:
        StoreError: it cannot be fetched.
    """
    with library(candidate, offline=offline, progress=progress) as path:
        return path


@contextmanager
def library(
    candidate: Candidate, *, offline: bool = False, progress: Progress | None = None
) -> Iterator[Path]:
    """As `library_path`, and nobody removes the library in the time of the `with` block.

    Raises:
        StoreError: it cannot be fetched.
    """
    artifact = candidate.artifact
    if artifact is None:
        if candidate.library_path is None:
            raise PluginLoadError(f"{candidate} has neither a library nor a registry row", path="")
        yield candidate.library_path
        return
    from pjrt_hub.store.fetch import leased

    store = cache()
    offline = offline or bool(elevation())
    if candidate.must_be_fetched and not offline:
        size = f"{artifact.size / 1e6:.0f} MB"
        say(
            f"no plugin for {candidate.platform!r} is installed; fetching {artifact.package} "
            f"{artifact.version} ({size}) into {store.root}"
        )
        if progress is None:
            from pjrt_hub.terminal import terminal_progress

            progress = terminal_progress(artifact.package)
    with leased(
        artifact, store, env=environment(), offline=offline, progress=progress, notify=say
    ) as entry:
        yield entry.library_path
