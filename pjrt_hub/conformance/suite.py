"""Runs checks on a plugin (layer 5): in workers that die for this process, a time limit for each.

A worker makes one check after another. What it finds against the plugin is looked at again in a
fresh worker, so that no check is blamed for what another one left behind.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pjrt_hub import connect, contact, digest, opening, surroundings
from pjrt_hub._capi.child import Child, listen, signal_name
from pjrt_hub.abi import ApiVersion
from pjrt_hub.conformance.check import Check, checks
from pjrt_hub.conformance.setup import Setup
from pjrt_hub.conformance.verdict import Identity, Report, Result, Verdict
from pjrt_hub.errors import InternalError, PluginLoadError

if TYPE_CHECKING:
    from pjrt_hub.contract.manifest import Manifest

_SETUP_SECONDS = 60.0  # to start, to load the plugin, and to make a client
_MAX_WORDS = 8000  # characters
_PREAMBLE = re.compile(r"^WARNING: All log messages before absl::InitializeLog.*\n", re.MULTILINE)
_PYTHON = re.compile(r"Fatal Python error: |^(?:Current thread|Thread) 0x", re.MULTILINE)
_IN_A_CHECK = re.compile(r"/conformance/(checks/\w+\.py)\", line (\d+)")
_SUSPECTS = (Verdict.FAIL, Verdict.CRASH)


class Suite:
    """The checks of one plugin.

    Attributes:
        identity: of the plugin, as far as it is known yet.
    """

    def __init__(
        self,
        plugin: str | os.PathLike[str],
        *,
        options: Mapping[str, Any] | None = None,
        target: str | None = None,
        jobs: int | None = None,
        seconds: float | None = None,
        offline: bool = False,
    ) -> None:
        """Chooses the plugin and reads its file; loads nothing.

        Args:
            plugin: a name as for `pjrt_hub.client`, or the path of a library.
            options: create options of its clients.
            target: a machine that it describes without hardware; by default one of its list.
            jobs: workers at once; by default two, but one where hardware is in use, which may
                belong to one process only.
            seconds: the time limit of every check; by default each has its own.
            offline: use no network.

        Raises:
            PluginNotFoundError: nothing fits.
            StoreError: the plugin cannot be fetched.
            ValueError: the name is empty, there is no such option, or no worker or time for it.
            TypeError: an option has another type.
        """
        for name, value in (("jobs", jobs), ("seconds", seconds)):
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}, and must be above 0")
        if plugin == "":  # as from a variable that is not set: not the best one here
            raise ValueError("the plugin's name is empty")
        candidate = connect.choose(plugin, offline=offline).candidate
        manifest, asked = candidate.manifest, options or {}
        manifest.create_options(asked)  # before anything is fetched
        path = opening.library_path(candidate, offline=offline).resolve()
        self._setup = _setup(path, manifest, {**dict(candidate.create_options), **asked}, target)
        defaults = manifest.environment_for(present=candidate.may_run)
        self._env = {**defaults, **surroundings.environment()}
        self._jobs = jobs or _default_jobs(candidate.platform, candidate.may_run)
        self._seconds = seconds
        self._begin = time.monotonic()
        self.identity = Identity(
            path.name if candidate.source == "explicit" else candidate.name,
            path.name,
            digest.of_file(path),
            target=self._setup.target,
        )
        #: What cannot be had: the verdict of what tells so, and the reason.
        self._missing = _ruled_out(self._setup, self._env)
        self._told = False

    def results(self, wanted: Iterable[Check]) -> Iterator[Result]:
        """Makes checks, and yields what became of each as soon as that is known.

        Args:
            wanted: as `pjrt_hub.conformance.check.select` gives them.
        """
        folder = f"{self._setup.path.parent}/"  # tells of the user's machine, not of the plugin
        for each in self._made(wanted):
            notes = tuple(note.replace(folder, "") for note in each.notes)
            text, words = each.text.replace(folder, ""), each.words.replace(folder, "")
            yield replace(each, text=text, words=words, notes=notes)

    def _made(self, wanted: Iterable[Check]) -> Iterator[Result]:
        # To have loaded the plugin makes a worker useless for a check before anything is loaded.
        order = sorted(wanted, key=lambda check: check.needs != "library")
        queue = deque(_Task(check) for check in order)
        crew: list[_Worker] = []
        try:
            while queue or any(worker.task for worker in crew):
                yield from self._hand_out(queue, crew)
                for worker in _heard([each for each in crew if each.task]):
                    result = self._settle(worker)
                    if worker.is_spent:
                        worker.end()
                        crew.remove(worker)
                    if isinstance(result, Result):
                        yield result
                    else:
                        queue.appendleft(result)
        finally:
            for worker in crew:
                worker.end()

    def _hand_out(self, queue: deque[_Task], crew: list[_Worker]) -> Iterator[Result]:
        """Gives workers to tasks, as long as there are both."""
        while queue and sum(1 for worker in crew if worker.task) < self._jobs:
            task = queue.popleft()
            if result := self._without(task.check):
                yield result
                continue
            idle = next((worker for worker in crew if not worker.task), None)
            if idle and task.earlier:
                idle.end()
                crew.remove(idle)
                idle = None
            if not idle:
                idle = _Worker(self._setup, self._env)
                crew.append(idle)
            idle.ask(task, self._seconds or task.check.seconds)

    def _settle(self, worker: _Worker) -> Result | _Task:
        """What became of a worker's task: a result, or the same task for a fresh worker."""
        task, said = worker.release()
        check = task.check
        if identity := said.pop("identity", {}):
            identity["devices"] = tuple(identity.get("devices", self.identity.devices))
            self.identity = replace(self.identity, **identity)
        missing = said.pop("missing", "")
        result = _result(check, **said)
        suspicious = bool(missing) or result.verdict in _SUSPECTS
        if worker.num_made > 1 and suspicious and result.verdict is not Verdict.TIMEOUT:
            worker.is_spent = True
            return _Task(check, task.earlier or result)
        if missing:
            self._missing[missing] = result.verdict, result.text
            result = self._without(check) or result
        if task.earlier and task.earlier.verdict != result.verdict:
            earlier = task.earlier
            note = f"{earlier.verdict} in a process that had made other checks: {earlier.text}"
            result = replace(result, notes=(*result.notes, note))
        return result

    def _without(self, check: Check) -> Result | None:
        """The result of a check that needs what cannot be had."""
        needs = ["library"]
        if check.needs != "library":
            needs += ["plugin", *(["client"] if check.num_devices else []), check.needs]
        lost = next((each for each in needs if each in self._missing), None)
        if lost is None:
            return None
        verdict, text = self._missing[lost]
        if lost in ("library", "plugin"):
            if self._told:
                return _result(check, Verdict.SKIP, f"the plugin cannot be loaded: {text}")
            self._told = True  # once, whichever checks are wanted: it is one defect
            return _result(check, verdict, text)
        version = ApiVersion.parse(self.identity.api_version)
        if lacking := check.lacking(version, self.identity.extensions):
            return _result(check, Verdict.UNSUPPORTED, lacking)
        return _result(check, Verdict.SKIP, text)

    def report(self, results: Iterable[Result]) -> Report:
        """Puts what `results` gave into the order of the checks.

        Args:
            results: all of them.
        """
        from datetime import UTC, datetime

        from pjrt_hub import __version__

        order = {check.name: place for place, check in enumerate(checks())}
        found = tuple(sorted(results, key=lambda each: order[each.name]))
        return Report(
            self.identity,
            str(surroundings.world().host),
            __version__,
            datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            round(time.monotonic() - self._begin, 1),
            found,
        )


def run(
    plugin: str | os.PathLike[str],
    *,
    areas: Iterable[str] = (),
    names: Iterable[str] = (),
    **how: Any,
) -> Report:
    """Checks a plugin.

    Args:
        plugin: a name as for `pjrt_hub.client`, or the path of a library.
        areas: only these; by default all.
        names: only checks of these names; `*` stands for anything.
        how: as for `Suite`: options, target, jobs, seconds, offline.

    Raises:
        ValueError: no check is called so.
        PjrtHubError: no plugin is found by that name, or it cannot be fetched.
    """
    from pjrt_hub.conformance.check import select

    wanted = select(areas, names)
    suite = Suite(plugin, **how)
    return suite.report(suite.results(wanted))


@dataclass(frozen=True, slots=True)
class _Task:
    """A check to make, and what a worker found that had made others before."""

    check: Check
    earlier: Result | None = None


class _Worker:
    """A worker process, as seen from here.

    Attributes:
        task: what it is at, or None.
        num_made: how many checks it was asked for.
        is_spent: whether it is of no more use.
    """

    def __init__(self, setup: Setup, env: Mapping[str, str]) -> None:
        asked, asking = os.pipe()
        try:
            words = [str(asked)]
            self.child = Child("pjrt_hub.conformance.worker", words, env=env, pass_fds=[asked])
        finally:
            os.close(asked)
        self._asking = open(asking, "w", encoding="ascii")  # noqa: SIM115 - `end` closes it
        self._say(setup.line())
        self.task: _Task | None = None
        self.num_made = 0
        self.is_spent = False

    def ask(self, task: _Task, seconds: float) -> None:
        """Gives it a check to make within so many seconds, once it has what the check needs."""
        self.task = task
        self.num_made += 1
        self._seconds = seconds
        self._said: dict[str, Any] = {}
        self._begin("starting", max(_SETUP_SECONDS, seconds))
        self.child.forget_words()
        self._say(f"{task.check.name}\n")

    def hear(self, line: Mapping[str, Any]) -> None:
        """Takes a line that it answers."""
        if "step" in line:
            if line["step"] == "check":
                self._begin("check", self._seconds)
            self._step = line["step"]
        elif "identity" in line:
            self._said["identity"] = {**self._said.get("identity", {}), **line["identity"]}
        else:
            self._said |= line

    def _begin(self, step: str, seconds: float) -> None:
        self._step, self._limit = step, seconds
        self.deadline = time.monotonic() + seconds

    @property
    def has_ended(self) -> bool:
        """Whether no more will come of its task."""
        return bool(
            {"verdict", "status"} & self._said.keys()
            or self.child.silent
            or time.monotonic() >= self.deadline
        )

    def release(self) -> tuple[_Task, dict[str, Any]]:
        """Takes its task from it, with what came of it: the fields of a result, and more.

        "missing" names what could not be had for it, "identity" what was learnt of the plugin.
        """
        assert self.task
        task, self.task = self.task, None
        said = {name: value for name, value in self._said.items() if name != "status"}
        if "verdict" not in said:
            self.is_spent = True
            said |= self._death()
            if self._step == "starting" and self.num_made == 1:  # nothing of the plugin was there
                raise InternalError(f"no check can be made: {said['text']}:\n{said['words']}")
            if self._step not in ("starting", "check"):
                said["missing"] = "plugin" if self._is_loading else task.check.needs
        return task, said

    @property
    def _is_loading(self) -> bool:
        return self._step in ("loading", "dlopen", "GetPjrtApi") or "Plugin_" in self._step

    def _death(self) -> dict[str, Any]:
        during = "" if self._step == "check" else f" in {self._step}"
        late = "status" not in self._said and not self.child.silent
        self.end()
        words = _of_the_plugin(self.child.words(_MAX_WORDS))
        if late:
            text = f"it did not end within {self._limit:g} s"
            return {"verdict": Verdict.TIMEOUT, "text": text + during, "words": words}
        status = self._said.get("status", 1)
        how = f"died of {signal_name(-status)}" if status < 0 else f"exited with status {status}"
        return {"verdict": Verdict.CRASH, "text": f"the process {how}{during}", "words": words}

    def _say(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # that it died is heard elsewhere
            self._asking.write(text)
            self._asking.flush()

    def end(self) -> None:
        """Ends the process with all that the plugin started."""
        with contextlib.suppress(BrokenPipeError):
            self._asking.close()
        self.child.close()


def _heard(busy: list[_Worker]) -> list[_Worker]:
    """Listens to workers for a while; gives those with whom it is over."""
    if not busy:
        return []
    by_child = {worker.child: worker for worker in busy}
    for child, line in listen(list(by_child), min(worker.deadline for worker in busy)):
        by_child[child].hear(line)
    return [worker for worker in busy if worker.has_ended]


def _of_the_plugin(words: str) -> str:
    """What a process wrote before it ended, with the check's own line for Python's whole stack."""
    said, _, stack = _PYTHON.sub("\0", _PREAMBLE.sub("", words), count=1).partition("\0")
    lines = (f"called from {place[1]}, line {place[2]}" for place in _IN_A_CHECK.finditer(stack))
    return "\n".join([said.strip(), *list(lines)[-1:]]).strip()


def _result(check: Check, verdict: str, text: str, **more: Any) -> Result:
    more["notes"] = tuple(more.get("notes", ()))
    return Result(check.name, check.title, Verdict(verdict), text, number=check.number, **more)


def _setup(path: Path, manifest: Manifest, options: Mapping[str, Any], target: str | None) -> Setup:
    """What workers are told of a chosen plugin."""
    preload = contact.dependencies(manifest, surroundings.world())
    chosen = _some_target(manifest, path) if target is None else target
    return Setup(path, digest.identity(path), manifest, options, preload, chosen)


def _ruled_out(setup: Setup, env: Mapping[str, str]) -> dict[str, tuple[Verdict, str]]:
    """What cannot be had of a file, as far as it can be told from outside, and why."""
    try:
        found = contact.problems(setup.path, surroundings.world(), setup.preload, env)
        texts = [each.text for each in found]
    except PluginLoadError as exc:  # damaged: the loader itself may die of it
        return {"library": (Verdict.FAIL, exc.message)}
    return {"plugin": (Verdict.FAIL, "; ".join(texts))} if texts else {}


def _some_target(manifest: Manifest, path: Path) -> str:
    """One from the middle of the list: neither too old nor too new for the tools that are here."""
    named = {target.name for target in manifest.targets.known}
    targets = [each.name for each in manifest.targets.list(manifest.name, path)]
    known = [name for name in targets if name in named] or targets
    return known[len(known) // 2] if known else ""


def _default_jobs(platform: str, is_here: bool) -> int:
    """Two, but for hardware that is here: it may serve one process at a time."""
    return min(2, os.cpu_count() or 1) if platform == "cpu" or not is_here else 1
