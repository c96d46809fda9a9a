"""Steps that may end their process, in forks of one: cheaper than a process for each.

Must be used in a `part` that has not loaded the plugin: a fork with its threads would not work.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress

from pjrt_hub.running.sandbox.child import signal_name

#: Tells the process that forked something, in a line.
Tell = Callable[[str], None]


def attempt(work: Callable[[Tell], None], seconds: float) -> tuple[list[str], str]:
    """Runs `work` in a fork.

    Args:
        work: is called with what tells a line.
        seconds: for each line, and for the end after the last one.

    Returns:
        The lines that it told, and how it ended: "exited with 0", "died of SIGABRT".
    """
    heard, telling = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        status = 1
        try:
            work(lambda line: _write(telling, line))
            status = 0
        finally:
            os._exit(status)
    os.close(telling)
    said = b""
    try:
        while select.select([heard], [], [], seconds)[0]:
            if not (chunk := os.read(heard, 1 << 16)):
                return _lines(said), _ended(os.waitpid(child, 0)[1])
            said += chunk
        return _lines(said), f"did not end within {seconds:g} s"
    finally:
        os.close(heard)
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _write(descriptor: int, line: str) -> None:
    os.write(descriptor, line.encode() + b"\n")


def _lines(said: bytes) -> list[str]:
    return said.decode(errors="replace").splitlines()


def _ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"died of {signal_name(-code)}" if code < 0 else f"exited with {code}"
