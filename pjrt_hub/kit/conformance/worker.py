"""The process that checks a plugin: loads it, runs one check after another, answers.

It is expected to die. Run as a module, by `suite`; must not decide what comes after a death.
"""

from __future__ import annotations

import base64
import faulthandler
import json
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pjrt_hub import errors
from pjrt_hub.base import digest
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import PjrtError, PjrtHubError
from pjrt_hub.kit.conformance.check import Check, checks
from pjrt_hub.kit.conformance.finding import Failed, Hidden, Skipped, Unsupported, code_name
from pjrt_hub.kit.conformance.progress import HURRY, CallProgress
from pjrt_hub.kit.conformance.separate_process import TimedOut
from pjrt_hub.kit.conformance.subject import Subject, Target, load
from pjrt_hub.kit.conformance.verdict import Verdict
from pjrt_hub.kit.conformance.worker_process import Setup
from pjrt_hub.running.capi import library
from pjrt_hub.running.sandbox import watch

#: Only XLA's CPU plugin simulates devices by a create option.
_DEVICE_COUNT = "cpu_device_count"


class Unavailable(Exception):
    """This check lacks something that it needs, and so does every other one that needs it."""

    def __init__(self, what: str, text: str) -> None:
        super().__init__(text)
        self.what = what  # "plugin" if it cannot be loaded, else the `Check.needs` that failed.


class Worker:
    """A runner of checks on one plugin, which tells the suite what it finds."""

    def __init__(self, setup: Setup, tell: watch.Tell, progress: CallProgress) -> None:
        self._setup = setup
        self._tell = tell
        self._progress = progress
        self._checks = {check.name: check for check in checks()}
        self._subjects: dict[int, Subject] = {}
        self._is_identified = False
        self._patience = 0.0

    def make(self, name: str, patience: float, **known: Collection[str]) -> None:
        """Make a check and tell what it found.

        The check's separate processes may take `patience` seconds more. `known` are attributes of
        `CallProgress`: the functions and forms that are broken, work or hung.
        """
        check = self._checks[name]
        self._patience = patience
        for what, names in known.items():
            setattr(self._progress, what, frozenset(names))
        self._progress.hurry = HURRY + patience
        self._progress.returned.clear()
        self._progress.leave()
        try:
            subject = self._prepare(check)
        except Hidden as exc:
            self._tell(verdict=Verdict.SKIP, text=str(exc), hidden=exc.function)
            return
        except Unavailable as exc:
            verdict = Verdict.FAIL if exc.what == "plugin" else Verdict.SKIP
            self._tell(missing=exc.what, verdict=verdict, text=str(exc))
            return
        except Unsupported as exc:
            self._tell(verdict=Verdict.UNSUPPORTED, text=str(exc))
            return
        self._tell(step="check")
        begin = time.monotonic()
        found = _outcome(check, subject)
        found |= {"seconds": time.monotonic() - begin, "notes": subject.notes}
        self._tell(**found, took=subject.took, returned=sorted(self._progress.returned))
        subject.notes = []

    def _prepare(self, check: Check) -> Subject:
        """Load the plugin and make what the check needs."""
        if digest.identity_if_any(self._setup.path) != self._setup.identity:
            raise Unavailable("plugin", f"{self._setup.path} was changed or removed meanwhile")
        if not check.loads:
            for dependency in self._setup.preload:
                library.preload(dependency)
            return self._subject(self._setup.manifest.create_options(self._setup.options))
        subject = self._load()
        if lacking := check.missing_requirement(subject.api.version, subject.api.extensions):
            raise Unsupported(lacking)
        try:
            if check.num_devices:
                subject = self._with_devices(subject, check.num_devices)
            elif check.needs == "topology":
                self._tell(step="making a topology")
                _ = subject.topology
        except Hidden:
            raise
        except (Skipped, PjrtHubError) as exc:
            raise Unavailable(check.needs, _words(exc)) from exc
        return subject

    def _load(self) -> Subject:
        for subject in self._subjects.values():
            subject.patience = self._patience
        if 1 in self._subjects:
            return self._subjects[1]
        from pjrt_hub.door import preflight

        setup = self._setup
        try:
            self._tell(step="loading")
            preflight.initialize(setup.path, setup.manifest)
            for dependency in setup.preload:
                library.preload(dependency)
            api = load(setup.path, lambda step: self._tell(step=step), setup.identity)
            options = setup.manifest.create_options(setup.options, api.version)
        except (PjrtHubError, ValueError, TypeError) as exc:
            raise Unavailable("plugin", _words(exc)) from exc
        identity = {"api_version": str(api.version), "extensions": api.extensions}
        self._tell(identity={**identity, "attributes": dict(api.attributes), "options": options})
        self._subjects[1] = self._subject(options, self._target(api.version))
        return self._subjects[1]

    def _subject(self, options: Mapping[str, Any], target: Target | None = None) -> Subject:
        setup = self._setup
        known = {option.name: option.type for option in setup.manifest.options}
        subject = Subject(setup.path, options, target, setup.preload, known)
        subject.progress, subject.patience = self._progress, self._patience
        return subject

    def _target(self, version: ApiVersion) -> Target | None:
        setup = self._setup
        with suppress(errors.TargetNotFoundError):
            if setup.target:
                return setup.manifest.topology_options(setup.target, {}, setup.path, version)
        return None

    def _with_devices(self, subject: Subject, count: int) -> Subject:
        """Return a subject whose client has at least `count` devices."""
        if not self._is_identified:
            self._tell(step="PJRT_Client_Create")
            self._tell(identity=_identity(subject))
            self._is_identified = True
        if count <= len(subject.devices):
            return subject
        if count not in self._subjects:
            platform = subject.call("PJRT_Client_PlatformName", client=subject.client)
            # A layer may give the CPU plugin another name.
            if platform != b"cpu" and _DEVICE_COUNT not in subject.known_options:
                raise Skipped(f"it takes {count} devices, there are {len(subject.devices)}")
            options = {**subject.options, _DEVICE_COUNT: count}
            wider = self._subject(options, subject.target)
            if len(wider.devices) < count:
                raise Skipped(f"it takes {count} devices, {_DEVICE_COUNT} gave fewer")
            self._subjects[count] = wider
        return self._subjects[count]


def _identity(subject: Subject) -> dict[str, object]:
    ask = partial(subject.call, client=subject.client)
    return {
        "platform": _text(partial(ask, "PJRT_Client_PlatformName")),
        "platform_version": _text(partial(ask, "PJRT_Client_PlatformVersion")),
        "devices": [_text(partial(subject.describe, each, "Kind")) for each in subject.devices],
    }


def _text(ask: Callable[[], bytes]) -> str:
    """Return what the plugin says of itself; empty if it fails, which checks report."""
    with suppress(Hidden, Unsupported, PjrtError):
        return ask().decode("utf-8", "replace")
    return ""


def _words(exc: Exception) -> str:
    return str(getattr(exc, "message", exc))


def _outcome(check: Check, subject: Subject) -> dict[str, Any]:
    """Return the fields of a result that say what was found."""

    def result(verdict: Verdict, text: str = "", **more: str) -> dict[str, Any]:
        return {"verdict": verdict, "text": text, **more}

    try:
        try:
            check.run(subject)
        finally:
            subject.end_check()
    except Failed as exc:
        cause = exc.__cause__
        verdict = Verdict.TIMEOUT if isinstance(cause, TimedOut) else Verdict.FAIL
        function = cause.function if isinstance(cause, (PjrtError, TimedOut)) else ""
        return result(verdict, exc.found, function=function)
    except (Unsupported, errors.UnsupportedByPluginError, errors.UnimplementedError) as exc:
        return result(Verdict.UNSUPPORTED, _words(exc))
    except Hidden as exc:
        return result(Verdict.SKIP, str(exc), hidden=exc.function)
    except Skipped as exc:
        return result(Verdict.SKIP, str(exc))
    except PjrtError as exc:
        text = f"expected success, found {code_name(exc.code)}: {exc.message}"
        return result(Verdict.FAIL, text, function=exc.function)
    except Exception as exc:  # An unexpected answer can lead to any exception.
        last = traceback.extract_tb(exc.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        text = f"what the plugin answered led to {type(exc).__name__}: {exc} ({where})"
        return result(Verdict.FAIL, text)
    return result(Verdict.PASS)


def work(tell: watch.Tell, asking: str, progress: str) -> int:
    """Make each check that the suite asks for; this is what the child process runs."""
    faulthandler.enable()  # If the process crashes, its last words name the line that was running.
    faulthandler.register(signal.SIGTERM, chain=True)
    with open(int(asking), encoding="ascii") as questions:
        setup: Setup = pickle.loads(base64.b64decode(questions.readline()))
        worker = Worker(setup, tell, CallProgress(int(progress)))
        for line in questions:
            worker.make(**json.loads(line))
    return 0
