"""What would happen, step by step, and why: the answer of `pjrt-hub doctor`.

Walks the same path as `door.client`, which makes the client in a child process, and stops at the
first step that fails. Fetches nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pjrt_hub.base import digest
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.door import preflight, process
from pjrt_hub.door.client import choose
from pjrt_hub.door.plugin import library
from pjrt_hub.errors import LockFileError, OfflineError, PjrtHubError, PluginLoadError
from pjrt_hub.finding.contract import headers, linking
from pjrt_hub.finding.contract.shippers import shipper
from pjrt_hub.finding.discovery.library import preloads as find_preloads
from pjrt_hub.finding.discovery.survey import require_locked

if TYPE_CHECKING:
    from pjrt_hub.finding.discovery.library import Preloads
    from pjrt_hub.finding.discovery.source import Candidate, World

#: What decides which libraries, devices and flags a plugin gets, beside variables of ours.
_READ = re.compile(r"LD_(LIBRARY_PATH|PRELOAD)$|(CUDA|NVIDIA|NCCL|XLA|TF_XLA|HIP|ROCR|ROCM)_")
#: Probes that see a device.
_SEEN = ("files", "kfd", "pci")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the walk.

    Attributes:
        what: the step.
        ok: whether it would succeed.
        detail: what was found.
        hint: the next command, where it would not, or where something lacks.
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


def diagnose(name: str | os.PathLike[str] | None = None, *, to_run: bool = True) -> Diagnosis:
    """Report what `client(name)`, or `topology(name, ...)`, would do on this machine.

    Args:
        name: as for `client`, or the path of a library.
        to_run: whether programs are to run here; False asks only for compiling ahead of time,
            which needs no hardware.
    """
    steps: list[Step] = []
    walk = _walk(name, to_run)
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


def _walk(name: str | os.PathLike[str] | None, to_run: bool) -> Iterator[Step]:
    here = process.world()
    if locked := here.pins:
        rows = here.catalog.rows() if here.catalog else ()
        names = ", ".join(dict.fromkeys(f"{row.plugin} {row.version}" for row in rows))
        yield Step("lock", True, f"{locked.path} allows {names or 'nothing'}, and nothing else")
    choice = choose(name)
    candidate = choice.candidate
    yield Step("choice", True, f"{candidate} [{candidate.origin}]")
    yield _hardware(candidate, to_run)
    if to_run and not candidate.may_run:
        return
    import pjrt_hub.running.capi  # noqa: F401  (its error is of the next step)

    if candidate.library_path is None:
        artifact = candidate.artifact
        what = f"{artifact.package} {artifact.version}" if artifact else "nothing"
        yield Step("library", True, f"would fetch {what} (`pjrt-hub fetch {candidate.name}`)")
        return
    try:
        with library(choice, offline=True) as (path, _):
            yield from _meet(candidate, path, choice.world or here, to_run)
    except OfflineError:
        what = f"{candidate.library_path} was not what is pinned, and is moved aside"
        yield Step("library", False, what, f"pjrt-hub fetch {candidate.name}")


def _meet(candidate: Candidate, path: Path, world: World, to_run: bool) -> Iterator[Step]:
    """Yield the steps with a verified library; the library stays the same between them."""
    identity = digest.identity_if_any(path)
    require_locked(candidate, path, world)
    preflight.refuse_noexec(path)
    yield Step("library", True, str(path))
    try:
        if preflight.initialize(path, candidate.manifest):
            yield Step("initialize", True, f"{candidate.manifest.module}.initialize() ran")
    except PluginLoadError as exc:
        yield Step("initialize", False, exc.message, exc.hint)
        return
    preloads = find_preloads(world, candidate.manifest, path)
    found = list(preflight.problems(path, world, preloads.paths, world.env))
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
        path, preloads.paths, {**defaults, **world.env}, options, identity, describe=not to_run
    )
    extensions = ", ".join(sorted(answer["extensions"])) or "none"
    yield Step("load", True, f"PJRT API {answer['api_version']}, extensions: {extensions}")
    flags = candidate.manifest.compile_flags_beside((), ApiVersion.parse(answer["api_version"]))
    if flags:
        told = ", ".join(f"{name}={value}" for name, value in flags.items())
        yield Step("compile flags", True, f"{told}, unless options or XLA_FLAGS say otherwise")
    yield from _variables(world.env)
    opened = list(_opened(candidate, path, world, preloads, answer["libraries"]))
    yield from opened
    if error := answer["client_error"]:
        hint = "the words are the plugin's own; see its documentation, and that of its driver"
        if lacking := next((step.hint for step in opened if step.hint), ""):
            hint += f"; it may lack what was not found: {lacking}"
        yield Step("client", False, error, hint)
    elif to_run:
        yield Step("client", True, "the plugin makes one")
    if error := answer["topology_error"]:
        hint = "compile where its hardware is: client.compile(program).serialize()"
        yield Step("topology", False, f"no devices that are not here: {error}", hint)
    elif not to_run:
        yield Step("topology", True, "the plugin describes devices that are not here")
    yield from _report_mapped_files(answer["libraries"])


def _hardware(candidate: Candidate, to_run: bool) -> Step:
    """Check whether the hardware is here; compiling ahead of time does not need it."""
    found, name = candidate.hardware, candidate.name
    if candidate.may_run:
        return Step("hardware", True, ("" if found.ok else "unknown: ") + found.reason)
    if not to_run:
        return Step("hardware", True, f"absent, and not needed to compile: {found.reason}")
    hint = f"`pjrt-hub doctor {name} --for compile` says whether it can compile for it here"
    return Step("hardware", False, f"absent: {found.reason}", hint)


def _variables(env: Mapping[str, str]) -> Iterator[Step]:
    """Report the variables that are set and that drivers, loaders and compilers read."""
    told = [f"{name}={value}" for name, value in sorted(env.items()) if value and _READ.match(name)]
    if told:
        yield Step("variables", True, ", ".join(told))


def _opened(
    candidate: Candidate, path: Path, world: World, preloads: Preloads, libraries: list[str]
) -> Iterator[Step]:
    """Report each library that the plugin opens by itself: which file it gets, and why.

    One that is nowhere is a failure where the hardware is here: some programs need it. What the
    plugin cannot load without is named in its headers.
    """
    search = preflight.search(preloads.paths, world.env)
    plugin = headers.inspect(path, machine=world.host.arch)
    first = {each.name: each for each in preloads.paths}
    absent = []
    for name in (*first, *preloads.missing):
        found = linking.find(name, world.host.arch, search, plugin)
        # A file's name may say more than the library's: libcudnn.so.99.0.96.
        mapped = next((each for each in libraries if _is_named(each, name)), "")
        if found is not None:
            is_first = found.library.path == first.get(name)
            reason = "loaded before the plugin" if is_first else found.reason
            yield Step(
                "opens", True, _describe(name, found.library.path, reason, world, found.hidden)
            )
        elif mapped:
            reason = "the plugin knows where it is"
            yield Step("opens", True, _describe(name, Path(mapped), reason, world, ()))
        else:
            absent.append(name)
    if absent:
        ways = dict.fromkeys(how for _, how in map(shipper, absent) if how)
        if (whole := f"pip install 'pjrt-hub[{candidate.name}]'") in ways:
            ways = {whole: None}
        hint = "; ".join(ways) or "install them, or name their folders in LD_LIBRARY_PATH"
        is_needed = candidate.hardware.ok and candidate.manifest.probe.kind in _SEEN
        what = f"not found, and needed by some programs only: {', '.join(absent)}"
        yield Step("opens", not is_needed, what, hint)


def _is_named(file: str, name: str) -> bool:
    return f"{os.path.basename(file)}.".startswith(f"{name}.")


def _describe(name: str, path: Path, reason: str, world: World, hidden: tuple[Path, ...]) -> str:
    """Return a file with its distribution, why it is that one, and which it hides."""

    def owned(file: Path) -> str:
        owner = world.installed.owner(file) or world.installed.owner(file.resolve())
        return f"{file} of {owner}" if owner else str(file)

    text = f"{name}: {owned(path)}, {reason}"
    return text + (f"; it hides {', '.join(map(owned, hidden))}" if hidden else "")


def _report_mapped_files(libraries: list[str]) -> Iterator[Step]:
    """Report the files that the loader mapped, of all the places where it could look."""
    if not libraries:
        return  # only Linux tells them
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
        return False  # it is gone
    replaceable = folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX
    return bool(file.st_mode & stat.S_IWOTH or replaceable)
