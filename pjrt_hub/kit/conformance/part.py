"""Parts of a check that run in a process of their own.

For a second member of a job, a start without a past, a step that may end the process. Must not know
what runs there.
"""

from __future__ import annotations

import base64
import pickle
import time
from collections.abc import Callable
from typing import Any

from pjrt_hub.door import process
from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance import finding
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.capi import library
from pjrt_hub.running.sandbox import watch
from pjrt_hub.running.sandbox.child import Child, signal_name


class Died(Exception):
    """The process ended without an answer; the text says how: "died of SIGABRT"."""


class Part:
    """A process that runs `function(subject, *words)` and tells what it returns; ends with `with`.

    Args:
        subject: whose library and options it has.
        function: of a module; what it returns must be JSON.
        words: for it.
    """

    def __init__(self, subject: Subject, function: Callable[..., Any], *words: Any) -> None:
        self._patience = subject.patience
        request = base64.b64encode(pickle.dumps((subject, function, words))).decode()
        self._child = Child(__spec__.name, [request], env=dict(process.environment()))

    def answer(self, seconds: float) -> Any:
        """Waits for it, and longer where the plugin is slow.

        Raises:
            Died: it crashed, exited, or took longer.
            Failed: what the function found; as Unsupported and Skipped.
        """
        said = dict[str, Any]()
        seconds += self._patience
        for line in self._child.answers(time.monotonic() + seconds):
            said.update(line)
            if "kind" in said:
                break
        if "kind" not in said:
            if not self._child.silent:
                raise Died(f"took longer than {seconds:g} s")
            status = said.get("status", 1)
            died = status < 0
            raise Died(f"died of {signal_name(-status)}" if died else f"exited with {status}")
        if said["kind"] == "answer":
            return said["value"]
        raise getattr(finding, said["kind"])(said["value"])

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *raised: object) -> None:
        self._child.__exit__(*raised)


def run(subject: Subject, function: Callable[..., Any], *words: Any, seconds: float = 15) -> Any:
    """Runs one function in one process; see `Part`."""
    with Part(subject, function, *words) as part:
        return part.answer(seconds)


def _work(tell: watch.Tell, request: str) -> int:
    subject, function, words = pickle.loads(base64.b64decode(request))
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


if __name__ == "__main__":
    watch.serve(_work)
