"""Worker processes as the suite sees them: asked for a check, listened to, ended.

Must not decide which check comes next, nor what comes after a death.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import re
import signal
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pjrt_hub.errors import InternalError
from pjrt_hub.kit.conformance.check import Check
from pjrt_hub.kit.conformance.progress import HURRY, CallProgress, open_file
from pjrt_hub.kit.conformance.verdict import Result, Verdict
from pjrt_hub.running.sandbox.child import Child, describe_end, listen

if TYPE_CHECKING:
    from pjrt_hub.finding.contract.manifest import Manifest

_SETUP_SECONDS = 60.0  # Seconds that a worker has to start, load the plugin and make a client.
_MAX_WORDS = 8000  # Longer output is cut to this many characters.
_PYTHON = re.compile(r"Fatal Python error: |^(?:Current thread|Thread) 0x", re.MULTILINE)
_IN_A_CHECK = re.compile(r"/conformance/(checks/\w+\.py)\", line (\d+)")


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker must know of the plugin."""

    path: Path
    identity: str  # The file's identity; no other file is checked.
    manifest: Manifest
    options: Mapping[str, Any]  # Create options that were asked for.
    preload: tuple[Path, ...] = ()  # Libraries to load before the plugin.
    target: str = ""  # A machine that the plugin describes without hardware, or empty.


@dataclass(frozen=True, slots=True)
class Task:
    """A check to make, and the result in an earlier worker that had made other checks before."""

    check: Check
    earlier: Result | None = None


class WorkerProcess:
    """A worker process, as the suite sees it."""

    def __init__(self, setup: Setup, env: Mapping[str, str]) -> None:
        asked, asking = os.pipe()
        try:
            with open_file() as progress:
                passed = [asked, progress]
                module, words = "pjrt_hub.kit.conformance.worker", [str(each) for each in passed]
                self.child = Child(module, words, env=env, pass_fds=passed)
                self._progress = CallProgress(progress)
        finally:
            os.close(asked)
        self._asking = open(asking, "w", encoding="ascii")  # noqa: SIM115 - `end` closes it
        self._say(base64.b64encode(pickle.dumps(setup)).decode() + "\n")
        self.task: Task | None = None  # The task that the worker works on.
        self.num_made = 0  # How many checks the worker was asked for.
        self.is_spent = False  # Whether the worker must not be used again.

    def ask(self, task: Task, seconds: float, patience: float, **known: Collection[str]) -> None:
        """Give the worker a check, which it makes once it has what the check needs.

        The check has so many `seconds`, and the preparation of a slow plugin `patience` more.
        `known` are attributes of `CallProgress` about C functions and forms of programs.
        """
        self.task = task
        self.num_made += 1
        self._seconds, self._hurry = seconds, HURRY + patience
        self._said: dict[str, Any] = {}
        self._begin("starting", max(_SETUP_SECONDS, seconds) + patience)
        self.child.words.clear()
        names = {what: list(each) for what, each in known.items()}
        question = {"name": task.check.name, "patience": patience, **names}
        self._say(f"{json.dumps(question)}\n")

    def hear(self, line: Mapping[str, Any]) -> None:
        """Take a line of the worker's answer."""
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
        """Whether the worker will tell nothing more about its task."""
        return bool(
            {"verdict", "status"} & self._said.keys()
            or self.child.silent
            or time.monotonic() >= self.deadline
        )

    def release(self) -> tuple[Task, dict[str, Any]]:
        """Take the task from the worker, with its outcome: the fields of a result, and others.

        "missing" names what the check needed and did not get, "identity" what was learnt of the
        plugin, "took" how long its steps took.
        """
        assert self.task
        task, self.task = self.task, None
        said = {name: value for name, value in self._said.items() if name != "status"}
        if "verdict" not in said:
            self.is_spent = True
            said |= self._death()
            if self._step == "starting" and self.num_made == 1:  # No plugin was loaded yet.
                raise InternalError(f"no check can be made: {said['text']}:\n{said['words']}")
            if self._step not in ("starting", "check"):
                loading = ("loading", "dlopen", "GetPjrtApi")
                is_loading = self._step in loading or "Plugin_" in self._step
                said["missing"] = "plugin" if is_loading else task.check.needs
        return task, said

    def _death(self) -> dict[str, Any]:
        function = self._progress.function
        step = function or ("" if self._step == "check" else self._step)
        during = f" in {step}" if step else ""
        hurried = self._said.get("status") == -signal.SIGALRM
        late = hurried or ("status" not in self._said and not self.child.silent)
        self.end()
        words = _of_the_plugin(self.child.words.text(_MAX_WORDS))
        died: dict[str, Any] = {"words": words, "function": function}
        if late:
            text = f"it did not end within {self._hurry if hurried else self._limit:g} s{during}"
            return {"verdict": Verdict.TIMEOUT, "text": text, **died}
        how = describe_end(self._said.get("status", 1))
        return {"verdict": Verdict.CRASH, "text": f"the process {how}{during}", **died}

    def _say(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # The worker's death is noticed elsewhere.
            self._asking.write(text)
            self._asking.flush()

    def end(self) -> None:
        """End the process with all that the plugin started."""
        with contextlib.suppress(BrokenPipeError):
            self._asking.close()
        self.child.close()


def finished_workers(busy: list[WorkerProcess]) -> list[WorkerProcess]:
    """Listen to workers for a while; return those whose tasks have ended."""
    if not busy:
        return []
    by_child = {worker.child: worker for worker in busy}
    for child, line in listen(list(by_child), min(worker.deadline for worker in busy)):
        by_child[child].hear(line)
    return [worker for worker in busy if worker.has_ended]


def _of_the_plugin(words: str) -> str:
    """Shorten what a process wrote at its end: Python's stack becomes the check's own line."""
    said, _, stack = _PYTHON.sub("\0", words, count=1).partition("\0")
    lines = (f"called from {place[1]}, line {place[2]}" for place in _IN_A_CHECK.finditer(stack))
    return "\n".join([said.strip(), *list(lines)[-1:]]).strip()
