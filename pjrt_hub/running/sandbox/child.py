"""A child process that meets plugins for this one: started, listened to, and ended.

The child runs `watch.main`, which ends when its standard input does. Must not know what the child
is asked, nor remember what it answered.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pjrt_hub.base import safe_path
from pjrt_hub.errors import PluginCrashedError
from pjrt_hub.running.sandbox import watch
from pjrt_hub.running.sandbox.last_words import LastWords

_MAX_ANSWER_NBYTES = 1 << 22
_TO_END = 2.0  # Seconds for the child to end all that the plugin started.

_TO_READ = 1.0  # Seconds to read what is left in the pipes of a child that has ended.


class Child:
    """A Python process that runs the function `work` of a module of ours, under `watch.main`.

    It answers in lines of JSON, on a pipe of its own: whatever the plugin writes to the standard
    streams is kept apart, in `words`. Also a context manager, which ends the process.
    """

    def __init__(
        self,
        module: str,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Start the process, which calls the module's `work` with a `watch.Tell` and the words."""
        import subprocess  # The child imports this module as well, but needs no subprocess.

        package_root = str(Path(__file__).resolve().parents[3])
        self._answers, answering = os.pipe()
        try:
            self._process = subprocess.Popen(
                safe_path.python("-m", watch.__name__, module, str(answering), *words),
                env=safe_path.environment(env, package_root),
                stdin=subprocess.PIPE,  # Closing it tells the child to end.
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[answering, *pass_fds],
                start_new_session=True,
            )
        except BaseException:
            os.close(self._answers)
            raise
        finally:
            os.close(answering)
        assert self._process.stdout is not None
        self._open = {self._answers, self._process.stdout.fileno()}
        self._answer = bytearray()
        self.words = LastWords()

    @property
    def silent(self) -> bool:
        """Whether nothing can come from the process any more."""
        return not self._open

    def answers(self, until: float) -> Iterator[dict[str, Any]]:
        """Yield each answer, until the process is silent or `time.monotonic` reaches `until`."""
        while not self.silent and time.monotonic() < until:
            for _, line in listen([self], until):
                yield line

    def status(self) -> int:
        """Wait for the process to end, and return its exit status, negative for a signal."""
        return self._process.wait()

    def close(self) -> None:
        """Ask the child to end itself and what the plugin started, and kill it if it does not."""
        from subprocess import TimeoutExpired

        if self._answers < 0:
            return

        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutExpired):
            self._process.wait(_TO_END)
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        last = time.monotonic() + _TO_READ
        while not self.silent and time.monotonic() < last:  # This reads the last output.
            listen([self], last)
        self._process.__exit__(None, None, None)
        os.close(self._answers)
        self._answers = -1

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _take(self, descriptor: int) -> list[dict[str, Any]]:
        """Read what is available; return the answers that are complete by now."""
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            self._open.discard(descriptor)
            return []
        if descriptor != self._answers:
            self.words.add(chunk)
            return []
        self._answer += chunk
        *lines, self._answer = self._answer.split(b"\n")
        del self._answer[:-_MAX_ANSWER_NBYTES]
        return [answer for line in lines if (answer := _read(line)) is not None]


def listen(children: Sequence[Child], until: float) -> list[tuple[Child, dict[str, Any]]]:
    """Wait until one of several children answers or falls silent, or the time is over.

    Gives each answer and the child that it came from. At least one child must not be silent.
    """
    import selectors

    with selectors.DefaultSelector() as selector:
        for child in children:
            for descriptor in child._open:
                selector.register(descriptor, selectors.EVENT_READ, child)
        ready = selector.select(max(until - time.monotonic(), 0))
        return [(key.data, line) for key, _ in ready for line in key.data._take(key.fd)]


def crash(path: Path, doing: str, status: int, words: str, hint: str) -> PluginCrashedError:
    """Return the error of a plugin whose process died, `doing` such as " in PJRT_Client_Create"."""
    said = f"; its last output:\n{words}" if words else ""
    return PluginCrashedError(
        f"{path.name} {describe_end(status)}{doing}, in a process of its own ({path}){said}",
        signal=signal_name(-status) if status < 0 else None,
        returncode=status,
        stderr=words,
        hint=hint,
    )


def describe_end(status: int) -> str:
    """Say how a process ended: "died of SIGABRT", "exited with status 1"."""
    return f"died of {signal_name(-status)}" if status < 0 else f"exited with status {status}"


def signal_name(number: int) -> str:
    """Return the name of a signal: "SIGABRT"."""
    try:
        return signal.Signals(number).name
    except ValueError:  # Signals between SIGRTMIN and SIGRTMAX have no names.
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _read(line: bytes | bytearray) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError):
        answer = json.loads(line)
        if isinstance(answer, dict):
            return answer
    return None
