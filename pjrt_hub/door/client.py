"""From a platform's name to a client: the door between the two towers.

Read it as choose -> open_plugin -> client.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pjrt_hub import errors
from pjrt_hub.base import log
from pjrt_hub.base.frames import hide_below
from pjrt_hub.base.listing import Listing
from pjrt_hub.door import preflight
from pjrt_hub.door.plugin import library_path, open_plugin
from pjrt_hub.door.process import warn, world
from pjrt_hub.finding.contract.variables import is_on
from pjrt_hub.finding.discovery import registry_rows, select, user_paths
from pjrt_hub.finding.discovery.survey import reject_unfit, survey

if TYPE_CHECKING:
    from pjrt_hub.door.closure import Which
    from pjrt_hub.finding.contract.target import Target
    from pjrt_hub.finding.discovery.finding import Finding
    from pjrt_hub.finding.discovery.select import Choice
    from pjrt_hub.finding.discovery.source import Candidate, Rejection, World
    from pjrt_hub.finding.discovery.survey import Survey
    from pjrt_hub.finding.store.transfer.partial import Progress
    from pjrt_hub.running.capi.values import NamedValue
    from pjrt_hub.running.client.client import Client
    from pjrt_hub.running.client.plugin import Plugin
    from pjrt_hub.running.client.topology import Topology
    from pjrt_hub.running.distributed.kv_store import Distributed

Used = TypeVar("Used")


@hide_below
def client(
    platform: str | None = None,
    *,
    options: Mapping[str, NamedValue] | None = None,
    distributed: Distributed | None = None,
    shared: bool = False,
    offline: bool = False,
    progress: Progress | None = None,
) -> Client:
    """Choose a plugin, fetch it if it is missing, load it and make a client.

    A plugin that fails is skipped for the next one, with a warning, unless you named it alone. A
    plugin whose hardware is absent is not fetched.

    Args:
        platform: a platform, plugin or alias ("cuda"), "distribution:plugin", or several joined by
            commas in the order of preference; or the path of a library. None uses
            `PJRT_HUB_PLATFORMS`, then `JAX_PLATFORMS`, then takes the plugin of the highest
            priority whose hardware is not absent.
        options: create options of the plugin's client, checked before they reach it.
        distributed: the place of this process among the processes that share the platform.
        shared: True returns the same client of the chosen plugin to all callers in this process, so
            that libraries can pass buffers to each other. The first call makes the client; options
            of later calls must have the same values. `close` and `with` leave it open: it is freed
            when nothing refers to it or to anything of it, or when Python ends.
        offline: use no network.
        progress: receives a download's progress; by default a line on a terminal or in a notebook.

    Raises:
        PluginNotFoundError: nothing fits; `.rejections` says why not.
        AmbiguousPluginError: several of equal standing fit.
        StoreError: the plugin cannot be fetched.
        PluginError: the plugin cannot be loaded, does not fit, or crashed at first contact.
        PjrtError: the plugin cannot make a client, for example without its hardware.
        TypeError: an option does not have the type that the plugin takes.
        ValueError: the plugin has no such option, or the shared client has another value of it.
    """
    make = functools.partial(
        connect,
        options=options,
        distributed=distributed,
        shared=shared,
        offline=offline,
        progress=progress,
    )
    # The other processes of the job would not follow to another platform.
    if distributed is not None:
        return make(choose(platform, offline=offline, to_run=True))

    def is_mistake(choice: Choice, exc: Exception) -> bool:
        """Check whether the user's options, of the call or of variables, are what is wrong."""
        candidate, env = choice.candidate, world().env
        said = candidate.manifest.options_from_environment(env, candidate.api_version)
        told = bool(options or candidate.create_options or said)
        return told and isinstance(exc, errors.InvalidArgumentError)

    return use_first(platform, make, offline=offline, to_run=True, is_mistake=is_mistake)


def connect(
    choice: Choice,
    *,
    options: Mapping[str, NamedValue] | None = None,
    distributed: Distributed | None = None,
    shared: bool = False,
    offline: bool = False,
    progress: Progress | None = None,
) -> Client:
    """Make a client of the chosen plugin; the other arguments are as for `client`."""
    wanted = dict(options or {}) if distributed is None else None
    plugin = _load(choice, offline, progress, wanted)
    client = plugin.client(options, distributed=distributed, shared=shared)
    log.step("runtime", "%s", client, plugin=plugin.name, options=dict(options or {}))
    return client


@hide_below
def load(
    path_or_name: str | os.PathLike[str], *, offline: bool = False, progress: Progress | None = None
) -> Plugin:
    """Load a plugin without making a client: a library by its path, or as `client` chooses.

    A loaded plugin can compile ahead of time, so one that you named alone is fetched even if its
    hardware is absent.

    Args:
        path_or_name: a library's path, or what `client` takes.
        offline: use no network.
        progress: as for `client`.

    Raises:
        PluginNotFoundError: nothing fits; `.rejections` says why not.
        AmbiguousPluginError: several of equal standing fit.
        StoreError: the plugin cannot be fetched.
        PluginError: the plugin cannot be loaded, does not fit, or crashed at first contact.
    """
    return use_first(path_or_name, lambda choice: _load(choice, offline, progress), offline=offline)


@hide_below
def topology(
    platform: str | os.PathLike[str],
    name: str = "",
    *,
    options: Mapping[str, NamedValue] | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Topology:
    """Describe a machine that need not be present, to compile for it ahead of time.

    Args:
        platform: as for `client`, or the path of a library.
        name: the machine's name: "v5e:2x2", "H100", ...; `targets` lists them.
        options: topology options of the plugin.
        offline: use no network.
        progress: as for `client`.

    Raises:
        TargetNotFoundError: nothing describes a machine of that name.
        UnsupportedByPluginError: the plugin describes only machines that are present.
        TypeError: an option does not have the type that the plugin takes.
        ValueError: there is no such option, or no machine has the shape.
        PjrtError: the plugin knows no such machine.
        PluginError: no plugin fits, or the plugin cannot be loaded, as for `load`.
        StoreError: the plugin cannot be fetched.
    """

    def load_for(choice: Choice) -> Plugin:
        candidate = choice.candidate
        if candidate.must_be_fetched:
            candidate.manifest.targets.require(name, dict(options or {}), plugin=candidate.name)
        return _load(choice, offline, progress)

    def is_mistake(_: Choice, exc: Exception) -> bool:
        return isinstance(exc, errors.TargetNotFoundError)

    plugin = use_first(platform, load_for, offline=offline, is_mistake=is_mistake)
    return plugin.topology(name, options)


def targets(platform: str | None = None) -> Listing[Target]:
    """List the machines that plugins compile for ahead of time; load and fetch nothing.

    A plugin may know more machines than these, by names of the same form.

    Args:
        platform: a plugin, platform or alias, or "distribution:plugin"; None means all of them.
    """
    known = survey(world())
    found: dict[str, list[Target]] = {}
    for each in known.candidates if platform is None else select.matches(known, platform):
        if each.name not in found:  # The best candidate of a name comes first.
            found[each.name] = each.manifest.targets.list(each.name, each.library_path)
    return Listing(target for known in found.values() for target in known)


@hide_below
def fetch(
    name: str, *, offline: bool = False, plugin_only: bool = False, progress: Progress | None = None
) -> Path:
    """Return the path of a plugin's library; fetch it first if it is missing.

    What the plugin requires at run time, such as CUDA's libraries, comes with it: it is fetched
    unless it is installed, and laid out around the library, which finds it there.

    Args:
        name: as for `client`.
        offline: use no network; a missing plugin is then an error.
        plugin_only: leave out what the plugin requires.
        progress: as for `client`.

    Raises:
        PluginNotFoundError: nothing fits; `.rejections` says why not.
        AmbiguousPluginError: several of equal standing fit.
        StoreError: the plugin cannot be fetched.
        PluginLoadError: the path is not that of a plugin's library.
    """
    choice = choose(name, offline=offline)
    if (path := choice.candidate.library_path) and _is_path(name):
        here = choice.world or world()
        before = preflight.dependencies(path, choice.candidate.manifest, here)
        preflight.refuse(path, list(preflight.problems(path, here, before, here.env)))
    which: Which = "none" if plugin_only else "all"
    return library_path(choice, which=which, offline=offline, progress=progress)


@hide_below
def plugins(
    platform: str | os.PathLike[str] | None = None, *, offline: bool = False
) -> Listing[Finding]:
    """List every plugin, the chosen one first, each with the reason why it is chosen or not.

    Args:
        platform: as for `client`: list as if it had been asked for; a path lists only that library.
        offline: as for `client`.

    Raises:
        PluginLoadError: the path is not a file, or the lock file does not name the file.
    """
    from pjrt_hub.finding.discovery.finding import findings

    here = world()
    if platform is not None and _is_path(platform):
        found, request = reject_unfit(survey(here, Path(platform).absolute()), here), None
    else:
        asked = None if platform is None else os.fspath(platform)
        found, request = survey(here), select.Request.read(asked, here.env)
    return findings(
        found,
        request,
        offline=offline or is_on(here.env, "PJRT_HUB_OFFLINE"),
        probes=preflight.memory(here),
        row_of=functools.partial(registry_rows.row_of, here),
    )


def choose(
    path_or_name: str | os.PathLike[str] | None = None,
    *,
    offline: bool = False,
    to_run: bool = False,
    failed: Sequence[tuple[Candidate, str]] = (),
    origin: str = select.ARGUMENT,
    here: World | None = None,
) -> Choice:
    """Choose a plugin as `client` does, or take the library at a path.

    With `to_run`, nothing is fetched for hardware that is absent. `failed` has earlier choices, and
    why each is of no use. `origin` is what asks for it, and `here` where to look, by default in
    this process's world. With `PJRT_HUB_DEBUG`, every candidate is printed with its reason.
    """
    here = here or world()
    if path_or_name is not None and _is_path(path_or_name):
        given = survey(here, Path(path_or_name).absolute())
        return select.choose(given)._replace(world=here)
    asked = None if path_or_name is None else os.fspath(path_or_name)
    request = select.Request.read(asked, here.env, origin)
    offline = offline or is_on(here.env, "PJRT_HUB_OFFLINE")
    found = survey(here)
    for each in refused_by_name(found):
        warn(f"{each}")
    for candidate, reason in failed:
        found = found.without(candidate, reason)
    choice = select.choose(found, request, offline=offline, to_run=to_run)._replace(world=here)
    _tell(choice)
    return choice


def refused_by_name(found: Survey) -> list[Rejection]:
    """Return what the user named in `PJRT_HUB_PLUGIN_PATH` and what cannot be used."""
    named = [each for each in found.rejections if each.origin.startswith(f"${user_paths.OURS}")]
    return [each for each in named if not (each.shadowed or each.build)]


def use_first(
    path_or_name: str | os.PathLike[str] | None,
    use: Callable[[Choice], Used],
    *,
    offline: bool,
    to_run: bool = False,
    is_mistake: Callable[[Choice, Exception], bool] = lambda choice, exc: False,
) -> Used:
    """Use the chosen plugin; if it fails and was not named alone, use the next one.

    An error that is not a plugin's ends the search, and so does one that `is_mistake` calls the
    caller's own, because another plugin would not help.
    """
    failed: list[tuple[Candidate, str]] = []
    choice = choose(path_or_name, offline=offline, to_run=to_run)
    while True:
        try:
            return use(choice)
        except (errors.PluginError, errors.PjrtError) as exc:
            if choice.was_asked_for_alone or is_mistake(choice, exc):
                raise
            loser = choice.candidate
            failed.append((loser, f"it failed: {exc.message}"))
            try:
                choice = choose(path_or_name, offline=offline, to_run=to_run, failed=failed)
            except errors.PluginError:
                raise exc from exc.__cause__
            warn(f"{loser} is passed over for {choice.candidate.name}: {exc.message}; {exc.hint}")


def _tell(choice: Choice) -> None:
    for word in choice.unknown:
        warn(f"{word}")
    for lost in choice.rejections:
        # The rows that were rejected might have won, so the user is told.
        if lost.name == registry_rows.REGISTRY:
            warn(f"{lost}")
    winner, why = choice.candidate, choice.reason
    text = select.explain(select.Choice(winner, (), why))
    log.step("discovery", "%s", text, plugin=winner.name, reason=why)
    for lost in choice.rejections:
        log.step("discovery", "%s", lost, plugin=lost.name, reason=lost.reason)


def _load(
    choice: Choice,
    offline: bool,
    progress: Progress | None,
    create_options: Mapping[str, NamedValue] | None = None,
) -> Plugin:
    return open_plugin(
        choice, create_options=create_options, offline=offline, progress=progress, reload=load
    )


def _is_path(path_or_name: str | os.PathLike[str]) -> bool:
    if not isinstance(path_or_name, str):
        return True
    return os.sep in path_or_name or path_or_name.endswith((".so", ".dylib", ".dll"))
