"""What would happen, step by step, and why (layer 4): the answer of `pjrt-hub doctor`.

Walks the same path as `connect.client` up to the first contact, in a child process, and stops at
the first step that fails. Fetches nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from pjrt_hub import connect, contact, surroundings
from pjrt_hub.abi import ApiVersion
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
        rows = surroundings.catalog(locked).rows()
        names = ", ".join(dict.fromkeys(f"{row.plugin} {row.version}" for row in rows))
        yield Step("lock", True, f"{locked.path} allows {names or 'nothing'}, and nothing else")
    candidate = connect.choose(name).candidate
    yield Step("choice", True, f"{candidate} [{candidate.origin}]")
    # A plugin without its hardware still compiles ahead of time: worth a word, no failure.
    words = {True: "", None: "unknown: ", False: "absent, so it can only compile: "}
    hardware = candidate.hardware
    yield Step("hardware", True, words[hardware.ok] + hardware.reason)
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
    defaults = candidate.manifest.environment_for(present=candidate.may_run)
    answer = contact.first_contact(path, preloads.paths, {**defaults, **env})
    extensions = ", ".join(sorted(answer["extensions"])) or "none"
    yield Step("load", True, f"PJRT API {answer['api_version']}, extensions: {extensions}")
    flags = candidate.manifest.compile_flags_beside((), ApiVersion.parse(answer["api_version"]))
    if flags:
        told = ", ".join(f"{name}={value}" for name, value in flags.items())
        yield Step("compile flags", True, f"{told}, unless options or XLA_FLAGS say otherwise")
    yield from _mapped(answer["libraries"])


def _mapped(libraries: list[str]) -> Iterator[Step]:
    """What the loader really took, of all the places where it could look."""
    if not libraries:
        return  # it is told by Linux only
    loose = [each for each in libraries if _others_write(each)]
    if loose:
        yield Step(
            "mapped",
            False,
            f"every user can write {', '.join(loose)}",
            "keep libraries where only you and root can write; see LD_LIBRARY_PATH",
        )
    else:
        yield Step("mapped", True, ", ".join(libraries))


def _others_write(path: str) -> bool:
    """Whether every user can change or replace a file."""
    try:
        file, folder = os.stat(path), os.stat(os.path.dirname(path))
    except OSError:
        return False  # it is gone
    replaceable = folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX
    return bool(file.st_mode & stat.S_IWOTH or replaceable)
