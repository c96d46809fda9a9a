"""What would happen, step by step, and why (layer 4): the answer of `pjrt-hub doctor`.

Walks the same path as `connect.client` up to the first contact, in a child process, and stops at
the first step that fails. Fetches nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from pjrt_hub import connect, contact, surroundings
from pjrt_hub.discovery import place
from pjrt_hub.errors import LockFileError, PjrtHubError, PluginLoadError


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the walk.

    Attributes:
        what: the step.
        ok: whether it would succeed.
        detail: what was found.
        hint: the next command, where it would not.
    """

    what: str
    ok: bool
    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The steps, in order; the last one is the one that failed, if any did."""

    steps: tuple[Step, ...]

    @property
    def ok(self) -> bool:
        """Whether every step would succeed."""
        return all(step.ok for step in self.steps)


def diagnose(name: str | os.PathLike[str] | None = None) -> Diagnosis:
    """Says what `client(name)` would do on this machine.

    Args:
        name: as for `client`, or the path of a library.
    """
    steps: list[Step] = []
    walk = _walk(name)
    what = "choice"
    try:
        for step in walk:
            steps.append(step)
            what = _NEXT.get(step.what, step.what)
    except PjrtHubError as exc:
        what = "lock" if isinstance(exc, LockFileError) else what
        steps.append(Step(what, False, exc.message, exc.hint))
    return Diagnosis(tuple(steps))


#: What comes after a step, for the name of one that raises.
_NEXT = {
    "lock": "choice",
    "choice": "library",
    "hardware": "library",
    "library": "headers",
    "initialize": "headers",
    "headers": "load",
}


def _walk(name: str | os.PathLike[str] | None) -> Iterator[Step]:
    if locked := surroundings.pins():
        names = ", ".join(dict.fromkeys(f"{row.plugin} {row.version}" for row in locked.rows))
        yield Step("lock", True, f"{locked.path} allows {names or 'nothing'}, and nothing else")
    candidate = connect.choose(name).candidate
    yield Step("choice", True, f"{candidate} [{candidate.origin}]")
    # A plugin without its hardware still compiles ahead of time: worth a word, no failure.
    absent = "" if candidate.hardware.ok else "absent, so it can only compile: "
    yield Step("hardware", True, absent + candidate.hardware.reason)
    world = surroundings.world()
    path = candidate.library_path
    if path is None:
        artifact = candidate.artifact
        what = f"{artifact.package} {artifact.version}" if artifact else "nothing"
        yield Step("library", True, f"would fetch {what} (`pjrt-hub get {candidate.name}`)")
        return
    yield Step("library", True, str(path))
    try:
        if contact.initialize(path, candidate.manifest):
            yield Step("initialize", True, f"{candidate.manifest.module}.initialize() ran")
    except PluginLoadError as exc:
        yield Step("initialize", False, exc.message, exc.hint)
        return
    preloads = place.preloads(world, candidate.manifest)
    env = surroundings.environment()
    found = list(contact.problems(path, world, preloads.paths, env))
    for problem in found:
        yield Step("headers", False, problem.text, problem.hint)
    if found:
        return
    yield Step("headers", True, f"fits {world.host}, every library it needs is there")
    if preloads.missing:
        absent = ", ".join(preloads.missing)
        yield Step("preload", True, f"not found, and perhaps not needed: {absent}")
    defaults = candidate.manifest.environment_for(present=candidate.hardware.ok)
    answer = contact.first_contact(path, preloads.paths, {**defaults, **env})
    extensions = ", ".join(sorted(answer["extensions"])) or "none"
    yield Step("load", True, f"PJRT API {answer['api_version']}, extensions: {extensions}")
