"""Steps of a check that run in a process of their own, or in forks of it, which cost less.

Checks use it for a second member of a job, a fresh start, or a step that may end its process.
"""

from __future__ import annotations

import base64
import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pjrt_hub.door import process
from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance import finding
from pjrt_hub.kit.conformance.progress import CallProgress, open_file
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.capi import library
from pjrt_hub.running.sandbox import watch
from pjrt_hub.running.sandbox.child import Child, signal_name

#: A `Tell` sends a line to the parent process.
Tell = Callable[[str], object]


class Died(Exception):
    """The process ended without an answer; the text says how: "died of SIGABRT"."""


class TimedOut(Died):
    """The process did not answer in time; `function` is the C function that it was in, or empty."""

    def __init__(self, seconds: float, function: str) -> None:
        during = f" in {function}" if function else ""
        super().__init__(f"took longer than {seconds:g} s{during}")
        self.function = function


class SeparateProcess:
    """A process that runs `function(subject, *words)` and tells the result; the `with` ends it.

    The function must be one of a module, and its result must be possible in JSON.
    """

    def __init__(self, subject: Subject, function: Callable[..., Any], *words: Any) -> None:
        self._patience = subject.patience
        request = base64.b64encode(pickle.dumps((subject, function, words))).decode()
        with open_file() as progress:
            self._progress = CallProgress(progress)
            given, env = [request, str(progress)], dict(process.environment())
            self._child = Child(__name__, given, env=env, pass_fds=[progress])

    def answer(self, seconds: float) -> Any:
        """Wait for the result, longer if the plugin is slow; raise the check's finding, or Died."""
        said = dict[str, Any]()
        seconds += self._patience
        for line in self._child.answers(time.monotonic() + seconds):
            said.update(line)
            if "kind" in said:
                break
        if "kind" not in said:
            if not self._child.silent:
                raise TimedOut(seconds, self._progress.function)
            raise Died(_describe_end(said.get("status", 1)))
        if said["kind"] == "answer":
            return said["value"]
        raise getattr(finding, said["kind"])(said["value"])

    def __enter__(self) -> SeparateProcess:
        return self

    def __exit__(self, *raised: object) -> None:
        self._child.__exit__(*raised)


def run(subject: Subject, function: Callable[..., Any], *words: Any, seconds: float = 15) -> Any:
    """Run one function in one process; see `SeparateProcess`."""
    with SeparateProcess(subject, function, *words) as child:
        return child.answer(seconds)


def attempt(work: Callable[[Tell], None], seconds: float) -> tuple[list[str], str]:
    """Run `work` in a fork of this process, which has not loaded the plugin: forks lose threads.

    Return the lines that `work` told, and how the fork ended: "exited with 0", "died of SIGABRT".
    It has the `seconds` for each line, and for the end after the last one.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 1
        try:
            work(lambda line: os.write(writing, line.encode() + b"\n"))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    said, end = b"", f"did not end within {seconds:g} s"
    try:
        while select.select([reading], [], [], seconds)[0]:
            if not (chunk := os.read(reading, 1 << 16)):
                end = _describe_end(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                break
            said += chunk
        return said.decode(errors="replace").splitlines(), end
    finally:
        os.close(reading)
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _describe_end(code: int) -> str:
    return f"died of {signal_name(-code)}" if code < 0 else f"exited with {code}"


def work(tell: watch.Tell, request: str, progress: str) -> int:
    subject, function, words = pickle.loads(base64.b64decode(request))
    if subject.progress:
        subject.progress.share(int(progress))
    for dependency in subject.preload:
        library.preload(dependency)
    try:
        tell(kind="answer", value=function(subject, *words))
    except finding.Hidden as exc:
        tell(kind="Hidden", value=exc.function)
    except (finding.Failed, finding.Unsupported, finding.Skipped) as exc:
        tell(kind=type(exc).__name__, value=str(exc))
    except PjrtError as exc:
        code = finding.code_name(exc.code)
        text = f"expected success in another process, found {code}: {exc.message}"
        tell(kind="Failed", value=text)
    return 0
