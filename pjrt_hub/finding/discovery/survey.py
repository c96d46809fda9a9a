"""Every candidate of a world, joined, in one order.

Owns which of several findings are one plugin, and which of them stands for it; must not choose
among plugins, as `select` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from pjrt_hub.base.abi import DECLARED, compatible
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract.binary import unfit
from pjrt_hub.finding.contract.headers import inspect
from pjrt_hub.finding.contract.manifest import Manifest
from pjrt_hub.finding.contract.names import canonical
from pjrt_hub.finding.discovery import library, manifests, packages, registry_rows, user_paths
from pjrt_hub.finding.discovery.hardware import present
from pjrt_hub.finding.discovery.registry_rows import known_api
from pjrt_hub.finding.discovery.source import Candidate, Described, Found, Rejection, World

#: Earlier sources win: the environment, what is installed, the cache, and last the registry.
ORDER = ("environment", "entry_points", "namespace", "vendor_wheels", "manifests", "cached")
#: What these sources find is no build of a plugin that another source finds.
_ALONE = {user_paths.ENVIRONMENT, manifests.MANIFESTS}


class Survey(NamedTuple):
    """The result of asking all sources."""

    candidates: tuple[Candidate, ...]  # Sorted by priority, the highest first, then by name.
    rejections: tuple[Rejection, ...]  # Sorted by name.
    known: tuple[Manifest, ...] = ()  # All manifests, even if the library cannot be had.

    def without(self, failed: Candidate, reason: str) -> Survey:
        """Return the survey without a failed candidate; the plugin's next build takes its place."""
        left = [each for each in self.candidates if not each.is_same_build(failed)]
        others = [each for each in self.rejections if not failed.is_same_build(each.build)]
        if failed.name not in (each.name for each in left):
            for each in others:
                if each.build is not None and each.name == failed.name:
                    others.remove(each)
                    left.append(each.build)
                    break
        why = Rejection(failed.name, failed.origin, reason)
        return self._replace(candidates=tuple(left), rejections=(*others, why))


def reject_unfit(surveyed: Survey, world: World) -> Survey:
    """Return a survey that rejects candidates whose libraries cannot run here, with reasons."""
    rejections = list(surveyed.rejections)
    candidates = _separate(_fit(list(surveyed.candidates), world), rejections)
    return surveyed._replace(candidates=tuple(candidates), rejections=tuple(rejections))


def survey(world: World, explicit_path: Path | None = None) -> Survey:
    """Ask every source; import, load and run nothing of a plugin.

    A library that the caller named by its path is the only candidate; it raises PluginLoadError if
    it is not a file, or not one that the lock file lists.
    """
    described, rejections = packages.describe(world)
    outside = list(manifests.find(world))
    described += (each for each in outside if isinstance(each, Described))
    described.sort(key=lambda each: each.source != user_paths.ENVIRONMENT)
    known = tuple(each.manifest for each in described)
    if explicit_path is not None:
        only = user_paths.from_path(explicit_path, world, described)
        require_locked(only, explicit_path, world)
        return Survey((_look_at_hardware(only, world),), (), known)
    found: list[Found] = [
        *user_paths.from_variables(world, described),
        *library.find_described(world, described),
        *(each for each in outside if isinstance(each, Rejection)),
        *packages.find_vendor_libraries(world),
        *registry_rows.find(world, described),
    ]
    return _settle(found, world, rejections, known)


def survey_rows(world: World) -> Survey:
    """Ask the registry alone, as if nothing were installed."""
    described, rejections = packages.describe(world)
    found = list(registry_rows.find(world, described))
    return _settle(found, world, rejections, tuple(each.manifest for each in described))


def _settle(
    found: list[Found], world: World, rejections: list[Rejection], known: tuple[Manifest, ...]
) -> Survey:
    candidates = _separate(_join(_separate(found, []), world), rejections)
    vetoes = [(each, world.veto(each.name)) for each in candidates]
    rejections += (Rejection(each.name, each.origin, why) for each, why in vetoes if why)
    candidates = [each for each, why in vetoes if not why]
    candidates = _separate(_fit(candidates, world), rejections)
    candidates = _separate(_apply_lock(candidates, world), rejections)
    candidates = _separate(_choose_builds(candidates, world), rejections)
    rejections += _reject_hidden(world, candidates)
    names = {each.name for each in candidates} | {each.name for each, why in vetoes if why}
    # That a plugin is not installed matters only if it cannot be had in another way.
    rejections += (
        item
        for item in found
        if isinstance(item, Rejection) and not (item.absent and item.name in names)
    )
    distinct = {item._replace(build=None): item for item in rejections}
    looked_at = (_look_at_hardware(item, world) for item in candidates)
    listed = sorted(looked_at, key=_order_of_listing)
    return Survey(tuple(listed), tuple(distinct[item] for item in sorted(distinct)), known)


def _join(found: Iterable[Candidate], world: World) -> Iterator[Found]:
    """Join candidates that are one library under one name; reject other manifests' claims to it."""
    by_library: dict[Path | None, list[Candidate]] = {}
    for candidate in found:
        path = candidate.library_path
        by_library.setdefault(path.resolve() if path else None, []).append(candidate)
    for real, group in by_library.items():
        if real is None:
            yield from group
            continue
        # If a manifest or a variable also names a vendor's library, that name counts.
        named = [each for each in group if each.source != packages.VENDOR_WHEELS]
        vendors = [each for each in group if each.source == packages.VENDOR_WHEELS]
        for name in dict.fromkeys(each.name for each in named or vendors[:1]):
            same = [each for each in named or vendors if each.name == name]
            # The manifest from the library's own distribution wins, or else the first one.
            winner = next((each for each in same if _by_owner(each)), same[0])
            equals = [each for each in same if each.manifest.path == winner.manifest.path]
            joined = (winner, *equals, *vendors)
            shipped = next((each for each in joined if each.distribution), winner)
            manifest = winner.manifest if named else packages.add_priority(winner, world)
            yield winner._replace(
                manifest=manifest,
                source=same[0].source,
                origins=tuple(dict.fromkeys(origin for each in joined for origin in each.origins)),
                distribution=shipped.distribution,
                version=shipped.version,
            )
            for each in same:
                if each not in equals:
                    reason = f"{winner.origin} describes the same library"
                    yield Rejection(each.name, each.origin, reason)


def _by_owner(candidate: Candidate) -> bool:
    return bool(candidate.distribution) and candidate.described_by == candidate.distribution


def _fit(candidates: list[Candidate], world: World) -> Iterator[Found]:
    """Reject libraries that cannot run here, by their manifests and headers alone."""
    for candidate in candidates:
        # A registry row was compared with the host already.
        path = candidate.library_path if candidate.artifact is None else None
        reason = hint = ""
        newest = candidate.manifest.api_maximum
        if newest is not None and not (verdict := compatible(DECLARED, newest)):
            reason = verdict.reason
        elif path is not None:
            try:
                binary = inspect(path)
                problem = next(iter(unfit(binary, world.host)), None)
                reason, hint = (problem.text, problem.hint) if problem else ("", "")
            except PluginLoadError as exc:
                reason, hint = exc.message, exc.hint
        if not reason:
            yield candidate
        else:
            where = f"{candidate.origin}, {path}" if path else candidate.origin
            yield Rejection(candidate.name, where, reason, hint)


def _apply_lock(candidates: list[Candidate], world: World) -> Iterator[Found]:
    """Reject what the lock file does not list, before it can shadow or rival what it lists."""
    for candidate in candidates:
        path = candidate.library_path if candidate.artifact is None else None
        reason = world.refusal(path) if path is not None else ""
        if not reason:
            yield candidate
        else:
            yield Rejection(candidate.name, candidate.origin, reason, _unlock(candidate))


def require_locked(candidate: Candidate, library_path: Path, world: World) -> None:
    """Raise PluginLoadError for a library that the lock file does not list."""
    if reason := world.refusal(library_path):
        raise PluginLoadError(reason, path=library_path, hint=_unlock(candidate))


def _unlock(candidate: Candidate) -> str:
    """Return how a user can make the lock file allow a candidate."""
    shipped = candidate.distribution and candidate.version
    what = f"{candidate.distribution}=={candidate.version}" if shipped else candidate.library_path
    return f"`pjrt-hub lock {what}` would allow it, and PJRT_HUB_LOCK=0 goes without a lock"


def _choose_builds(candidates: list[Candidate], world: World) -> Iterator[Found]:
    """Keep the best build for each claim to a name; `select` reports a name with several claims."""
    named: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        named.setdefault(candidate.name, []).append(candidate)
    for group in named.values():
        pinned = {canonical(each.artifact.package) for each in group if each.artifact}
        ranked = list(_rank(group, world))
        first = ranked[0]
        claims: dict[object, list[Candidate]] = {}
        for candidate in ranked:
            # A plugin that the user named in the environment is meant to replace installed ones.
            if candidate.source != first.source and {candidate.source, first.source} & _ALONE:
                yield _shadowed(candidate, first)
                continue
            builds = claims.setdefault(_claim(candidate, group, pinned), [])
            same = (each for each in builds if each.distribution == candidate.distribution)
            if not builds:
                yield candidate
            elif winner := next(same, None):
                yield _shadowed(candidate, winner)
            else:
                reason = _explain_rank(candidate, builds[0], world)
                build = _look_at_hardware(candidate, world)
                yield Rejection(candidate.name, candidate.origin, reason, build=build)
            builds.append(candidate)


def _shadowed(candidate: Candidate, winner: Candidate) -> Rejection:
    return Rejection(candidate.name, candidate.origin, f"shadowed by {winner}", shadowed=True)


def _rank(group: list[Candidate], world: World) -> Iterator[Candidate]:
    """Sort candidates of one name by where they were found, then by the newest PJRT API first.

    If one of these APIs is unknown, the order of the manifest or of the registry stays.
    """
    for _, found in groupby(sorted(group, key=_source_order), key=_source_order):
        builds = list(found)
        if len(builds) > 1:
            versions = [(known_api(world, each), each) for each in builds]
            known = [(api, each) for api, each in versions if api is not None]
            if len(known) == len(builds):
                builds = [each for _, each in sorted(known, key=itemgetter(0), reverse=True)]
        yield from builds


def _explain_rank(loser: Candidate, winner: Candidate, world: World) -> str:
    """Return why a build of a plugin is used before another, and how to choose the other."""
    first = f"{winner.distribution} {winner.version}".strip()
    word = f"{loser.distribution}:{loser.name}"
    if loser.must_be_fetched and not winner.must_be_fetched:
        return f"{first} is here; `pjrt-hub fetch {word}` fetches this build"
    if winner.source != loser.source:
        return f"{first} is installed; {word!r} chooses this build"
    newer, older = known_api(world, winner), known_api(world, loser)
    if newer is None or older is None or newer <= older:
        return f"{first} comes before it; {word!r} chooses this build"
    return f"{first} has the newer PJRT API, {newer}; {word!r} chooses this build"


def _claim(candidate: Candidate, group: Sequence[Candidate], pinned: set[str]) -> object:
    """Return who claims a name: a manifest, the registry, a variable, or a distribution.

    `group` holds all candidates of that name; `pinned` are the packages that build the plugin of
    that name according to the registry.
    """
    if candidate.source == user_paths.ENVIRONMENT:
        return candidate.library_path
    if candidate.artifact is not None:
        # If a row's package is installed with a manifest of its own, both make the same claim.
        installed = (each for each in group if each.artifact is None)
        here = (each for each in installed if each.distribution in pinned)
        candidate = next(here, candidate)
    if candidate.manifest.path is not None:
        return candidate.manifest.path.resolve()
    if candidate.artifact is not None or candidate.distribution in pinned:
        return candidate.name
    return candidate.distribution or candidate.library_path


def _source_order(candidate: Candidate) -> int:
    return ORDER.index(candidate.source) if candidate.source in ORDER else len(ORDER)


def _reject_hidden(world: World, candidates: list[Candidate]) -> Iterator[Rejection]:
    """Reject plugin distributions that Python does not see, because another comes first."""
    used = {candidate.distribution: candidate for candidate in candidates}
    for loser, winner in world.installed.shadowed:
        if loser.name in used and loser.info.resolve() != winner.info.resolve():
            yield Rejection(
                used[loser.name].name,
                f"{loser} in {loser.folder}",
                f"shadowed by {winner} in {winner.folder}, which comes first on sys.path",
                shadowed=True,
            )


def _separate(found: Iterable[Found], rejections: list[Rejection]) -> list[Candidate]:
    candidates = []
    for item in found:
        if isinstance(item, Candidate):
            candidates.append(item)
        else:
            rejections.append(item)
    return candidates


def _look_at_hardware(candidate: Candidate, world: World) -> Candidate:
    return candidate._replace(hardware=present(candidate.manifest.probe, world.root))


def _order_of_listing(candidate: Candidate) -> tuple[object, ...]:
    return (-candidate.priority, candidate.name, _source_order(candidate), str(candidate))
