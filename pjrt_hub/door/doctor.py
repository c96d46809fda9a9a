"""What would happen, step by step, and why: the answer of `pjrt-hub doctor`.

Takes the same steps as `door.client`, but makes the client only in a child process, and stops at a
step whose failure leaves nothing to try. Fetches nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pjrt_hub import errors
from pjrt_hub.base import digest
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.base.listing import size_text
from pjrt_hub.door import dependencies, preflight, process
from pjrt_hub.door.client import choose, refused_by_name
from pjrt_hub.door.dependencies import Opening
from pjrt_hub.door.diagnosis import Diagnosis, Step
from pjrt_hub.door.plugin import library
from pjrt_hub.finding.discovery import hardware
from pjrt_hub.finding.discovery.library import preloads as find_preloads
from pjrt_hub.finding.discovery.registry_rows import row_of
from pjrt_hub.finding.discovery.requirement import find_required
from pjrt_hub.finding.discovery.survey import require_locked, survey
from pjrt_hub.finding.discovery.user_paths import OURS
from pjrt_hub.running.sandbox.mapped import code_files, code_files_after

if TYPE_CHECKING:
    from pjrt_hub.finding.discovery.library import Preloads
    from pjrt_hub.finding.discovery.source import Candidate, World

#: These kinds of probes look for a device.
SEEN = ("files", "kfd", "pci")
#: The time limit for importing what `after` names: frameworks are slow to import.
_IMPORT_SECONDS = 300.0

#: The files that a process has mapped, each with the name of what loaded it.
Mapped = dict[Path, str]


def diagnose(
    name: str | os.PathLike[str] | None = None, *, to_run: bool = True, after: Sequence[str] = ()
) -> Diagnosis:
    """Report what `client(name)`, or `topology(name, ...)`, would do on this machine.

    The plugin would also use libraries that this process has loaded already; steps say which.

    Args:
        name: as for `client`, or the path of a library.
        to_run: whether programs are to run here; False asks only for compiling ahead of time,
            which needs no hardware.
        after: modules that would be imported first, such as "torch", whose libraries the plugin
            would then use; another process imports them, to see which libraries these are.
    """
    steps: list[Step] = []
    walk = _walk(name, to_run, after)
    what = "choice"
    try:
        for step in walk:
            steps.append(step)
            what = _NEXT.get(step.what, step.what)
    except errors.PjrtHubError as exc:
        what = "lock" if isinstance(exc, errors.LockFileError) else what
        steps.append(Step(what, False, exc.message, exc.hint))
    return Diagnosis(tuple(steps))


def find_mapped(after: Sequence[str], world: World) -> Mapped:
    """Return the files that would be loaded before a plugin, each with what loads it.

    These are the files of this process, and of another process that imports `after`. A module that
    cannot be imported raises FrameworkError.
    """
    mapped = {Path(each): "already loaded in this process" for each in code_files()}
    if after:
        files = code_files_after(after, world.env, _IMPORT_SECONDS)
        who = " and ".join(after)
        mapped |= {each: f"already loaded by {who}" for each in files if each not in mapped}
    return mapped


#: An error belongs to the step that follows the last step that passed.
_NEXT = {
    "lock": "choice",
    "path": "choice",
    "choice": "library",
    "hardware": "library",
    "library": "headers",
    "initialize": "headers",
    "headers": "load",
}


def _walk(
    name: str | os.PathLike[str] | None, to_run: bool, after: Sequence[str]
) -> Iterator[Step]:
    here = process.world()
    if locked := here.pins:
        rows = (f"{row.plugin} {row.version}" for row in here.catalog.rows())
        names = ", ".join(dict.fromkeys(rows))
        yield Step("lock", True, f"{locked.path} allows {names or 'nothing'}, and nothing else")
    try:
        mapped = find_mapped(after, here)
    except errors.FrameworkError as exc:
        yield Step("after", False, exc.message, exc.hint)
        return
    for each in refused_by_name(survey(here)):
        what = f"{OURS} names {each.name}, which is left out: {each.reason}"
        yield Step("path", True, what, each.hint or f"correct {OURS}, or unset it")
    choice = choose(name)
    candidate = choice.candidate
    yield Step("choice", True, f"{candidate} [{candidate.origin}]")
    yield _hardware(candidate, to_run, here)
    # What files tell about hardware may be wrong, so a plugin that is here is asked as well.
    if to_run and not candidate.may_run and candidate.library_path is None:
        return
    import pjrt_hub.running.capi  # noqa: F401  (its error is of the next step)

    if candidate.library_path is None:
        artifact = candidate.artifact
        what = f"{artifact.package} {artifact.version}" if artifact else "nothing"
        if artifact and artifact.requires:
            nbytes = sum(each.size for each in artifact.archives)
            what += f" and what it requires, up to {size_text(nbytes)}"
        yield Step("library", True, f"would fetch {what} (`pjrt-hub fetch {candidate.name}`)")
        return
    try:
        with library(choice, offline=True) as (path, _):
            yield from _meet(candidate, path, choice.world or here, mapped, to_run)
    except errors.OfflineError:
        what = f"{candidate.library_path} was not what is pinned, and is moved aside"
        yield Step("library", False, what, f"pjrt-hub fetch {candidate.name}")


def _meet(
    candidate: Candidate, path: Path, world: World, mapped: Mapped, to_run: bool
) -> Iterator[Step]:
    """Yield the steps that need the library, once it is verified; all are about the same file."""
    identity = digest.identity_if_any(path)
    require_locked(candidate, path, world)
    preflight.refuse_noexec(path)
    yield Step("library", True, str(path))
    try:
        if preflight.initialize(path, candidate.manifest):
            yield Step("initialize", True, f"{candidate.manifest.module}.initialize() ran")
    except errors.PluginLoadError as exc:
        yield Step("initialize", False, exc.message, exc.hint)
        return
    preloads = find_preloads(world, candidate.manifest, path)
    opening = _opening(candidate, path, world, preloads, mapped, to_run)
    before = (*dependencies.relevant(mapped, opening.names), *preloads.paths)
    found = list(preflight.problems(path, world, before, world.env))
    for problem in found:
        yield Step("headers", False, problem.text, problem.hint)
    if found:
        return
    yield Step("headers", True, f"fits {world.host}, every library it needs is there")
    defaults = candidate.manifest.environment_for(present=candidate.may_run)
    try:
        options = candidate.check_options({}, world.env) if to_run else None
    except ValueError as exc:
        yield Step("client", False, str(exc), "correct that variable, or unset it")
        return
    answer = preflight.first_contact(
        path, before, {**defaults, **world.env}, options, identity, describe=not to_run
    )
    preflight.forget_crash(path, world)
    extensions = ", ".join(sorted(answer["extensions"])) or "none"
    yield Step("load", True, f"PJRT API {answer['api_version']}, extensions: {extensions}")
    flags = candidate.manifest.compile_flags_beside((), ApiVersion.parse(answer["api_version"]))
    if flags:
        told = ", ".join(f"{name}={value}" for name, value in flags.items())
        yield Step("compile flags", True, f"{told}, unless options or XLA_FLAGS say otherwise")
    yield from dependencies.report_variables(world.env)
    opened = list(dependencies.report(opening, world, answer["libraries"]))
    yield from opened
    if error := answer["client_error"]:
        hint = "the words are the plugin's own; see its documentation, and that of its driver"
        if lacking := next((step.hint for step in opened if step.hint), ""):
            hint += f"; it may lack what is told above: {lacking}"
        yield Step("client", False, error, hint)
    elif to_run:
        yield Step("client", True, "the plugin makes one")
    if error := answer["topology_error"]:
        hint = "compile where its hardware is: client.compile(program).serialize()"
        yield Step("topology", False, f"no devices that are not here: {error}", hint)
    elif not to_run:
        yield Step("topology", True, "the plugin describes devices that are not here")
    yield from _report_mapped_files(answer["libraries"])


def _hardware(candidate: Candidate, to_run: bool, world: World) -> Step:
    """Check whether the hardware is here; compiling ahead of time does not need it."""
    found, name = candidate.hardware, candidate.name
    if candidate.may_run:
        return Step("hardware", True, ("" if found.ok else "unknown: ") + found.reason)
    if not to_run:
        return Step("hardware", True, f"absent, and not needed to compile: {found.reason}")
    hint = f"`pjrt-hub doctor {name} --for compile` says whether it can compile for it here"
    if driver := hardware.driver_version(candidate.manifest.probe, world.root):
        hint = dependencies.describe_driver(candidate.manifest, driver, world).hint or hint
    return Step("hardware", False, f"absent: {found.reason}", hint)


def _opening(
    candidate: Candidate, path: Path, world: World, preloads: Preloads, mapped: Mapped, to_run: bool
) -> Opening:
    """Return what `dependencies.report` needs to know of a plugin."""
    name, row = candidate.name, row_of(world, candidate)
    required = find_required(world, name, candidate.distribution, candidate.version)
    first = {each.name: each for each in preloads.paths}
    return Opening(
        candidate.manifest,
        path,
        (*first, *preloads.missing),
        mapped,
        preloads.paths,
        required,
        candidate.hardware.ok is True and candidate.manifest.probe.kind in SEEN,
        to_run,
        f"pjrt-hub fetch {name}" if row is not None and row.requires else "",
    )


def _report_mapped_files(libraries: list[str]) -> Iterator[Step]:
    """Report the files that the loader mapped, and whether every user can write one of them."""
    if not libraries:
        return  # Only Linux tells which files are mapped.
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
    """Check whether every user can change or replace a file."""
    try:
        file, folder = os.stat(path), os.stat(os.path.dirname(path))
    except OSError:
        return False  # The file is gone.
    replaceable = folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX
    return bool(file.st_mode & stat.S_IWOTH or replaceable)
