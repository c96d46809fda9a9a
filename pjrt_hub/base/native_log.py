"""The output of native code to stderr, as records of the logger `pjrt_hub.native`.

Owns file descriptor 2 while it captures. A separate process, which imports nothing of ours, relays
the output, so that a crash of this process loses nothing.
"""

from __future__ import annotations

import os
import re
import select
import sys
import threading
from contextlib import suppress
from typing import Any

LOGGER = "pjrt_hub.native"
#: This matches "W0000 00:00:1717171717.1 123 a.cc:12] text" and TensorFlow's "2024-...: W a.cc:1]".
_PREFIX = re.compile(
    r"(?:(?P<level>[IWEF])\d{4} \d\d:\d\d:[\d.]+\s+(?P<thread>\d+) "
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: (?P<level_2>[IWEF]) )"
    r"(?P<file>[^\s:\]]+):(?P<line>\d+)\] ?(?P<text>.*)"
)
_LEVELS = {"I": 20, "W": 30, "E": 40, "F": 50}  # These are the levels of `logging`.
_PATIENCE = 2.0  # Seconds that `close` waits for the last output.
_KEPT_NBYTES = 1 << 16  # The output that is kept in case the logging process dies.
_WAITING_NBYTES = 1 << 24  # The most output that is kept for a slow reader.

_current: NativeLog | None = None
_changing = threading.Lock()


def capture_native_logs(*, tee: bool = True) -> NativeLog:
    """Turn output of plugins and XLA to stderr into records of `logging`, from now on.

    A line with the prefix of absl or TensorFlow becomes a record of that severity, without the
    prefix; its place in the source is in `pjrt_hub_file` and `pjrt_hub_line`. Any other line has
    the level INFO. Python's own `sys.stderr`, and handlers that write to it, keep the former
    stderr.

    Args:
        tee: also write everything to the former stderr. Without it, only output that could not be
            logged gets there: the last 64 kB before a crash.

    Returns:
        The capture, which `close()`, the end of a `with` block, or the end of the process ends. A
        second call returns the same capture.

    Raises:
        OSError: there is no stderr.
    """
    global _current
    with _changing:
        if _current is None or _current.is_closed:
            _current = NativeLog(tee)
        return _current


class NativeLog:
    """The capture of stderr; `capture_native_logs` makes it."""

    def __init__(self, tee: bool) -> None:
        import atexit
        import subprocess

        from pjrt_hub.base import safe_path

        ours = ("-m", __name__) if safe_path.is_frozen() else ("-I", "-S", __file__)
        self.is_closed = False
        self._stderr = os.dup(2)
        taking, giving = os.pipe()
        self._back, back = os.pipe()
        self._relay = subprocess.Popen(
            safe_path.python(*ours, str(int(tee)), str(back)),
            stdin=taking,
            stdout=self._stderr,
            stderr=subprocess.DEVNULL,
            pass_fds=[back],
            start_new_session=True,  # Ctrl-C must not reach this process.
        )
        os.close(taking)
        os.close(back)
        self._moved = _move_python(self._stderr)
        os.dup2(giving, 2)
        os.close(giving)
        self._thread = threading.Thread(target=self._read, name="pjrt_hub.native", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forget)

    def __enter__(self) -> NativeLog:
        """Return the capture itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the capture."""
        self.close()

    def close(self) -> None:
        """Restore stderr, and wait until earlier output is logged; safe to call again."""
        if self.is_closed:
            return
        self.is_closed = True
        os.dup2(self._stderr, 2)
        with suppress(Exception):  # Another child of this process may keep the pipe open longer.
            self._relay.wait(_PATIENCE)
        self._thread.join(_PATIENCE)
        self._moved()
        os.close(self._stderr)

    def _forget(self) -> None:
        """Forget the capture in a forked child, whose stderr the parent goes on to capture."""
        global _changing
        _changing = threading.Lock()  # A thread of the parent may hold the old lock.
        if not self.is_closed:
            self.is_closed = True
            os.close(self._back)

    def _read(self) -> None:
        import logging

        logger = logging.getLogger(LOGGER)
        rest = b""
        while chunk := os.read(self._back, 1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                _log(logger, line)
        if rest:
            _log(logger, rest)
        os.close(self._back)


def _log(logger: Any, line: bytes) -> None:
    text = line.decode("utf-8", "replace").rstrip("\r")
    found = _PREFIX.fullmatch(text)
    if not found:
        if text:
            logger.info("%s", text)
        return
    level = _LEVELS[found["level"] or found["level_2"]]
    place = {"pjrt_hub_file": found["file"], "pjrt_hub_line": int(found["line"])}
    logger.log(level, "%s", found["text"], extra=place)


def _move_python(stderr: int) -> Any:
    """Point `sys.stderr` and handlers that use it at the former stderr; return how to undo this."""
    import logging

    old = sys.stderr
    if not _is_stderr(old):
        return lambda: None
    old.flush()
    new = open(os.dup(stderr), "w", 1, old.encoding, old.errors)  # noqa: SIM115 - lives on
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    handlers = [
        handler
        for logger in loggers
        for handler in getattr(logger, "handlers", ())
        if isinstance(handler, logging.StreamHandler) and _is_stderr(handler.stream)
    ]
    streams = [(handler, handler.stream) for handler in handlers]
    for handler in handlers:
        handler.setStream(new)
    sys.stderr = new

    def back() -> None:
        for handler, stream in streams:
            handler.setStream(stream)
        if sys.stderr is new:
            sys.stderr = old
        new.flush()

    return back


def _is_stderr(stream: Any) -> bool:
    try:
        return bool(stream.fileno() == 2)
    except (AttributeError, OSError, ValueError):
        return False


def main() -> None:
    """Run the relaying process, which never blocks on the logging process, and outlives it."""
    import signal

    tee, back = bool(int(sys.argv[1])), int(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.set_blocking(back, False)
    waiting, kept = bytearray(), bytearray()
    is_open = is_heard = True  # Whether stdin is open, and whether the logging process reads.
    while is_open or (waiting and is_heard):
        readable, writable, _ = select.select(
            [0] if is_open else [], [back] if waiting and is_heard else [], []
        )
        if readable:
            chunk = os.read(0, 1 << 16)
            is_open = bool(chunk)
            if tee or not is_heard:
                _write(chunk)
            waiting += chunk if is_heard else b""
            del waiting[:-_WAITING_NBYTES]
        if writable or (not is_open and is_heard):
            is_heard = _hand_over(back, waiting, kept)
            if not is_heard and not tee:
                _write(kept + waiting)
                waiting.clear()


def _hand_over(back: int, waiting: bytearray, kept: bytearray) -> bool:
    """Write as much as the pipe takes; return False if nobody reads the pipe any more."""
    poll = select.poll()
    poll.register(back, 0)
    if poll.poll(0):  # POLLERR means that the reader is gone.
        return False
    try:
        count = os.write(back, waiting[: 1 << 16]) if waiting else 0
    except BlockingIOError:
        return True
    except OSError:
        return False
    kept += waiting[:count]
    del kept[:-_KEPT_NBYTES]
    del waiting[:count]
    return True


def _write(text: bytes | bytearray) -> None:
    view = memoryview(text)
    while view:
        try:
            view = view[os.write(1, view) :]
        except OSError:  # The original stderr is gone or full.
            return


if __name__ == "__main__":
    main()
