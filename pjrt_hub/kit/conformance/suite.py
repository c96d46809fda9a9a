"""The run of checks on a plugin, in workers that die in place of this process, with time limits.

A worker makes one check after another. A defect that it finds is checked again in a fresh worker,
once for each cause, so that no check is blamed for what another one left behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pjrt_hub.base import digest
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.door import preflight, process
from pjrt_hub.door.client import choose
from pjrt_hub.door.plugin import library_path, read_layers
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.kit.conformance.artifact import ARTIFACT, BYTECODE, TEXT
from pjrt_hub.kit.conformance.cause import Causes, group
from pjrt_hub.kit.conformance.check import Check, checks
from pjrt_hub.kit.conformance.verdict import Identity, Report, Result, Verdict
from pjrt_hub.kit.conformance.worker_process import Setup, Task, WorkerProcess, finished_workers

if TYPE_CHECKING:
    from pjrt_hub.finding.contract.manifest import Manifest

#: A check makes at most this many clients and compiles this many programs; each takes time.
_NUM_CLIENTS, _NUM_PROGRAMS = 4, 10
_CREATE = "PJRT_Client_Create"
_SUSPECTS = (Verdict.FAIL, Verdict.CRASH)


class Suite:
    """The checks to run on one plugin.

    Attributes:
        identity: the plugin's identity, as far as it is known yet.
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
        """Choose the plugin and read its file; load nothing.

        Args:
            plugin: a name as for `pjrt_hub.client`, or the path of a library.
            options: create options of its clients.
            target: a machine that the plugin describes without hardware; by default one it lists.
            jobs: workers at once; by default two, but one where hardware is in use, which may
                belong to one process only.
            seconds: the time limit of every check; by default each has its own.
            offline: use no network.

        Raises:
            PluginNotFoundError: nothing fits.
            StoreError: the plugin cannot be fetched.
            PjrtHubError: PJRT_HUB_LAYERS names unknown layers, or their settings are wrong.
            ValueError: the name is empty, an option is unknown, or jobs or seconds is not above 0.
            TypeError: an option has another type.
        """
        for name, value in (("jobs", jobs), ("seconds", seconds)):
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}, and must be above 0")
        # An empty name may come from an unset variable; it must not select the best plugin.
        if plugin == "":
            raise ValueError("the plugin's name is empty")
        choice = choose(plugin, offline=offline)
        candidate = choice.candidate
        manifest, asked = candidate.manifest, options or {}
        manifest.create_options(asked)  # Wrong options are an error before anything is fetched.
        path = library_path(choice, offline=offline).absolute()
        self._setup = _setup(path, manifest, {**dict(candidate.create_options), **asked}, target)
        defaults = manifest.environment_for(present=candidate.may_run)
        self._env = {**defaults, **process.environment()}
        self._jobs, self._candidate = jobs, candidate
        self._seconds = seconds
        self._begin = time.monotonic()
        self.identity = Identity(
            path.name if candidate.source == "explicit" else candidate.name,
            path.name,
            digest.of_file(path),
            target=self._setup.target,
            layers=str(read_layers(process.environment()) or ""),
        )
        #: What cannot be loaded or made, with the verdict of the check that found this, and why.
        self._missing = _load_problems(self._setup, self._env)
        self._load_check = ""  # The check that tells why the plugin cannot be loaded.
        self._causes = Causes()
        self._took: dict[str, float] = {}

    def results(
        self, wanted: Iterable[Check], resume: bool | None = None
    ) -> Generator[Result, None, None]:
        """Run the checks, and yield each result as soon as it is final.

        Args:
            wanted: as `pjrt_hub.kit.conformance.check.select` gives them.
            resume: True takes the results of an interrupted run with the same plugin and settings;
                False takes none. Both keep this run's results for the next run until this one
                ends; None takes and keeps none.
        """
        journal = None if resume is None else process.journal(self._name(), resume=resume)
        known, left = self._read_journal(journal.records if journal else ()), []
        finished = False
        try:
            for check in wanted:
                if check.name in known:
                    self._causes.learn(check, known[check.name])
                    yield known[check.name]
                else:
                    left.append(check)
            for each in self._redacted_results(left):
                # A library that cannot be loaded is noticed at once: its results need no journal.
                if journal and not self._missing:
                    learnt = {"identity": asdict(self.identity), "took": self._took}
                    journal.add({"result": asdict(each), **learnt})
                yield each
            finished = True
        finally:
            if journal:
                journal.close(finished=finished)

    def _name(self) -> str:
        """Return the journal's name, made from the plugin and all else that a result depends on."""
        from pjrt_hub import __version__

        setup = self._setup
        preload = [digest.of_file(path) for path in setup.preload]
        host = str(process.world().host)
        plugin = (self.identity.sha256, self.identity.layers)
        parts = [plugin, setup.options, setup.target, preload, host, self._seconds]
        text = json.dumps([*parts, __version__], sort_keys=True, default=str)
        return f"check-{hashlib.sha256(text.encode()).hexdigest()}"

    def _read_journal(self, records: Iterable[Mapping[str, Any]]) -> dict[str, Result]:
        """Return a journal's results by check, and take its identity and times of the plugin."""
        known = {}
        for record in records:
            # A record that pjrt-hub did not write is passed over.
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                result = Result.of_fields(record["result"])
                identity = {**record["identity"], "devices": tuple(record["identity"]["devices"])}
                self.identity = replace(self.identity, **identity)
                self._took = {name: float(seconds) for name, seconds in record["took"].items()}
                known[result.name] = result
        return known

    def _redacted_results(self, wanted: Iterable[Check]) -> Iterator[Result]:
        # The folder tells about the user's machine, not about the plugin.
        folder = f"{self._setup.path.parent}/"
        for each in self._run_checks(wanted):
            notes = tuple(note.replace(folder, "") for note in each.notes)
            text, words = each.text.replace(folder, ""), each.words.replace(folder, "")
            yield replace(each, text=text, words=words, notes=notes)

    def _run_checks(self, wanted: Iterable[Check]) -> Iterator[Result]:
        # Checks of an unloaded library come first, because a worker that loaded the plugin cannot
        # make them. Checks that prove functions come before other checks that call them.
        order = sorted(wanted, key=lambda check: (check.needs != "library", not check.proves))
        queue = deque(Task(check) for check in order)
        workers: list[WorkerProcess] = []
        try:
            while queue or any(worker.task for worker in workers):
                yield from self._hand_out(queue, workers)
                for worker in finished_workers([each for each in workers if each.task]):
                    result = self._settle(worker)
                    if worker.is_spent:
                        worker.end()
                        workers.remove(worker)
                    if isinstance(result, Result):
                        yield result
                    else:
                        queue.appendleft(result)
        finally:
            for worker in workers:
                worker.end()

    def _hand_out(self, queue: deque[Task], workers: list[WorkerProcess]) -> Iterator[Result]:
        """Give workers to tasks, as long as there are both."""
        while queue and self._may_begin(queue[0], [each.task for each in workers if each.task]):
            task = queue.popleft()
            if result := self._without(task.check):
                yield result
                continue
            idle = next((worker for worker in workers if not worker.task), None)
            # A plugin may set limits and filters in its process, which later processes inherit.
            if idle and (task.earlier or task.check.needs == "process"):
                idle.end()
                workers.remove(idle)
                idle = None
            if not idle:
                idle = WorkerProcess(self._setup, self._env)
                workers.append(idle)
            patience = self._patience
            seconds, known = self._seconds or task.check.seconds + patience, self._causes
            of = {"broken": known.broken, "works": known.works, "hung": known.hung}
            idle.ask(task, seconds, patience, **of)

    def _may_begin(self, task: Task, busy: list[Task]) -> bool:
        """Say whether a task may begin beside others: one that proves functions is made alone."""
        alone = any(each.check.proves for each in [task, *busy])
        return len(busy) < (1 if alone else self._jobs or self._default_jobs())

    def _default_jobs(self) -> int:
        """Return 2 workers, but 1 on present hardware, which may serve one process at a time."""
        platform = self.identity.platform or self._candidate.platform
        spared = platform == "cpu" or not self._candidate.may_run
        return min(2, os.cpu_count() or 1) if spared else 1

    @property
    def _patience(self) -> float:
        """The extra seconds of each check of a slow plugin, from what its first steps took."""
        counts = {_CREATE: _NUM_CLIENTS, "PJRT_Client_Compile": _NUM_PROGRAMS}
        return sum(count * self._took.get(name, 0.0) for name, count in counts.items())

    def _settle(self, worker: WorkerProcess) -> Result | Task:
        """Return a worker's result, or the same task for a fresh worker."""
        task, said = worker.release()
        check = task.check
        if identity := said.pop("identity", {}):
            identity["devices"] = tuple(identity.get("devices", self.identity.devices))
            self.identity = replace(self.identity, **identity)
        for function, seconds in said.pop("took", {}).items():
            self._took[function] = max(seconds, self._took.get(function, 0.0))
        missing, returned = said.pop("missing", ""), said.pop("returned", ())
        if hidden := said.pop("hidden", ""):
            said |= self._cause_fields(hidden)
        result = _result(check, **said)
        new = result.verdict in _SUSPECTS and not self._causes.knows(result)
        suspicious = bool(missing) or new
        if worker.num_made > 1 and suspicious and result.verdict is not Verdict.TIMEOUT:
            worker.is_spent = True
            return Task(check, task.earlier or result)
        if missing:
            self._missing[missing] = result.verdict, result.text
            result = self._without(check) or result
        if task.earlier and task.earlier.verdict != result.verdict:
            earlier = task.earlier
            note = f"{earlier.verdict} in a process that had made other checks: {earlier.text}"
            result = replace(result, notes=(*result.notes, note))
        if not check.loads and result.verdict.is_defect:
            self._load_check = self._load_check or check.name
        self._causes.learn(check, result, returned)
        return result

    def _cause_fields(self, function: str) -> dict[str, Any]:
        """Return the fields of a check that needs a function or a form that does not work."""
        cause = self._causes.broken.get(function, "")
        does = f"calls {function}, which does not work"
        if function in (ARTIFACT, BYTECODE, TEXT):
            does = f"sends {function}, which the plugin does not take"
        return {"cause": cause, "text": f"it {does}: see {cause}"}

    def _without(self, check: Check) -> Result | None:
        """Return the result of a check that needs something that is missing, or None."""
        if check.num_devices and _CREATE in self._causes.broken:
            return _result(check, Verdict.SKIP, **self._cause_fields(_CREATE))
        needs = ["library"]
        if check.loads:
            needs += ["plugin", *(["client"] if check.num_devices else []), check.needs]
        lost = next((each for each in needs if each in self._missing), None)
        if lost is None:
            return None
        verdict, text = self._missing[lost]
        if lost in ("library", "plugin"):
            if self._load_check and self._load_check != check.name:
                text = f"the plugin cannot be loaded: {text}"
                return _result(check, Verdict.SKIP, text, cause=self._load_check)
            self._load_check = check.name  # Only this check reports it, as it is one defect.
            return _result(check, verdict, text)
        version = ApiVersion.parse(self.identity.api_version)
        if lacking := check.missing_requirement(version, self.identity.extensions):
            return _result(check, Verdict.UNSUPPORTED, lacking)
        return _result(check, Verdict.SKIP, text)

    def report(self, results: Iterable[Result], left: int = 0) -> Report:
        """Sort results into the order of the checks, and find common causes.

        Args:
            results: all results of the run.
            left: how many checks were not made.
        """
        from datetime import UTC, datetime

        from pjrt_hub import __version__

        order = {check.name: place for place, check in enumerate(checks())}
        found = tuple(sorted(results, key=lambda each: order[each.name]))
        return Report(
            self.identity,
            str(process.world().host),
            __version__,
            datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            round(time.monotonic() - self._begin, 1),
            group(found),
            left,
        )


def run(
    plugin: str | os.PathLike[str],
    *,
    areas: Iterable[str] = (),
    names: Iterable[str] = (),
    **how: Any,
) -> Report:
    """Check a plugin.

    Args:
        plugin: a name as for `pjrt_hub.client`, or the path of a library.
        areas: make only the checks of these areas; by default all.
        names: make only checks with these names; `*` stands for anything.
        how: as for `Suite`: options, target, jobs, seconds, offline.

    Raises:
        ValueError: no check or area has such a name.
        PjrtHubError: no plugin is found by that name, or it cannot be fetched.
    """
    from pjrt_hub.kit.conformance.check import select

    wanted = select(areas, names)
    suite = Suite(plugin, **how)
    return suite.report(suite.results(wanted))


def _result(check: Check, verdict: str, text: str, **more: Any) -> Result:
    more["notes"] = tuple(more.get("notes", ()))
    return Result(check.name, check.title, Verdict(verdict), text, number=check.number, **more)


def _setup(path: Path, manifest: Manifest, options: Mapping[str, Any], target: str | None) -> Setup:
    """Collect what workers need to know of a chosen plugin."""
    preload = preflight.dependencies(path, manifest, process.world())
    chosen = _some_target(manifest, path) if target is None else target
    return Setup(path, digest.identity(path), manifest, options, preload, chosen)


def _load_problems(setup: Setup, env: Mapping[str, str]) -> dict[str, tuple[Verdict, str]]:
    """Say whether the library or the plugin cannot be loaded, and why, without loading it."""
    try:
        found = preflight.problems(setup.path, process.world(), setup.preload, env)
        texts = [each.text for each in found]
    except PluginLoadError as exc:  # A damaged file may crash the loader itself.
        return {"library": (Verdict.FAIL, exc.message)}
    return {"plugin": (Verdict.FAIL, "; ".join(texts))} if texts else {}


def _some_target(manifest: Manifest, path: Path) -> str:
    """Choose a target from the list's middle: neither too old nor too new for the tools here."""
    named = {target.name for target in manifest.targets.known}
    targets = [each.name for each in manifest.targets.list(manifest.name, path)]
    known = [name for name in targets if name in named] or targets
    return known[len(known) // 2] if known else ""
