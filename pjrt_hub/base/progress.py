"""How a transfer goes: a line on a terminal or in a notebook, lines in a log elsewhere.

Imports nothing of ours, and nothing of IPython where no kernel runs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

#: Seconds between two lines in the log.
LOG_SECONDS = 10.0
#: The speed is that of the last seconds, and is told after half a second.
_SPEED_SECONDS, _SHORTEST_SECONDS = 5.0, 0.5
#: A transfer without a byte for so many seconds has stopped, as far as a user can see.
_SILENT_SECONDS = 2.0
_BAR_COLUMNS = 20
_NOTEBOOK_SECONDS = 0.2


class TerminalProgress:
    """Draws one transfer as a line on stderr, and leaves there what came of it.

    Args:
        label: what is transferred.
        clock: a monotonic time in seconds.
    """

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._label = label
        self._clock = clock
        self._live: Live | None = None
        self._phase = "looking"
        self._total: int | None = None
        self._done = 0
        self._began = self._entered = clock()
        self._restart_speed()

    def enter(self, phase: str) -> None:
        """Shows what is done from now on; "done" says that all is."""
        self._phase = phase
        self._entered = self._clock()
        self._restart_speed()
        self._show()

    def start(self, total: int, already: int) -> None:
        """Sets the sizes, also where the transfer begins again.

        Args:
            total: the size of the whole transfer, in bytes.
            already: how many of them are there.
        """
        self._total, self._done = total, already
        self._restart_speed()
        self._show()

    def advance(self, n: int) -> None:
        """Adds `n` bytes that have arrived."""
        self._done += n
        self._last = now = self._clock()
        if now - self._recent[-1][0] >= _SHORTEST_SECONDS / 5:
            self._recent.append((now, self._done))
            while now - self._recent[0][0] > _SPEED_SECONDS:
                self._recent.popleft()

    def finish(self) -> None:
        """Ends the line; what is not done leaves none, since an error follows. Safe to repeat."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
            if self._phase == "done":
                live.console.print(self._result())

    def _line(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now = self._clock()
        is_measured = self._phase == "fetching" and self._total is not None
        row = Table.grid(padding=(0, 1))
        row.add_column(overflow="ellipsis")
        row.add_column(no_wrap=True)
        row.add_column(max_width=_BAR_COLUMNS)  # this one and the first yield on a narrow terminal
        row.add_column(no_wrap=True)
        row.add_row(
            Text(self._label),
            Text(f"{self._phase:9}", "cyan"),
            ProgressBar(self._total if is_measured else None, self._done, animation_time=now),
            Text(self._detail(now)),
        )
        return row

    def _show(self) -> None:
        if self._live is not None:
            return
        from rich.console import Console
        from rich.constrain import Constrain
        from rich.live import Live

        console = Console(stderr=True, force_jupyter=False)
        self._live = Live(
            # A terminal shows Ctrl-C as ^C behind it, which must not begin another line.
            get_renderable=lambda: Constrain(self._line(), console.width - 2),
            console=console,
            transient=True,
            refresh_per_second=10,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )
        self._live.start(refresh=True)

    def _restart_speed(self) -> None:
        self._last = self._clock()
        self._recent = deque([(self._last, self._done)])

    def _detail(self, now: float) -> str:
        """Return the numbers of the phase: sizes and speed, or for how long it has lasted."""
        if self._phase != "fetching":
            seconds = now - self._entered
            return f"{int(seconds)} s" if seconds >= 1 else ""
        words = [_size(self._done, self._total)] if self._done or self._total else []
        since, before = self._recent[0]
        if now - self._last >= _SILENT_SECONDS:
            words.append(f"nothing for {int(now - self._last)} s")
        elif now - since >= _SHORTEST_SECONDS and self._done > before:
            speed = (self._done - before) / (now - since)
            words.append(f"{_size(speed)}/s")
            if self._total is not None:
                words.append(str(timedelta(seconds=round((self._total - self._done) / speed))))
        return " ".join(words)

    def _result(self) -> Text:
        from rich.text import Text

        seconds = f"in {self._clock() - self._began:.0f} s"
        nbytes = self._total or self._done
        if self._phase != "done":
            words = f"stopped, {_size(self._done, self._total)} {seconds}"
        else:
            words = f"done, {_size(nbytes)} {seconds}" if nbytes else f"done {seconds}"
        return Text(f"{self._label}: {words}")


class NotebookProgress(TerminalProgress):
    """Draws one transfer as a line in the output of a notebook's cell, which keeps its end."""

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(label, clock)
        self._output: Any = None
        self._ended = threading.Event()
        self._drawing = threading.Thread(target=self._draw, name="pjrt-hub draw", daemon=True)

    def finish(self) -> None:
        """Leaves what came of it, if anything did. Safe to repeat."""
        from rich.text import Text

        output, self._output = self._output, None
        if output is not None:
            self._ended.set()
            self._drawing.join()
            output.update(self._result() if self._phase == "done" or self._done else Text())

    def _show(self) -> None:
        if self._output is None:
            from importlib import import_module

            display = import_module("IPython.display").display
            self._output = display(self._line(), display_id=True)
            self._drawing.start()

    def _draw(self) -> None:
        output = self._output
        while not self._ended.wait(_NOTEBOOK_SECONDS):
            output.update(self._line())


class LoggedProgress:
    """Tells of one transfer in the log of `pjrt_hub.store`.

    Each phase is a line of the level DEBUG; every ten seconds one of the level INFO has sizes.

    Args:
        label: what is transferred.
        clock: a monotonic time in seconds.
    """

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._label = label
        self._clock = clock
        self._total: int | None = None
        self._done = self._already = 0
        self._began = self._told = clock()

    def enter(self, phase: str) -> None:
        """Tells what is done from now on."""
        import logging

        logging.getLogger("pjrt_hub.store").debug("%s: %s", self._label, phase)

    def start(self, total: int, already: int) -> None:
        """Begins, or begins again, like `TerminalProgress.start`."""
        self._total, self._done, self._already = total, already, already
        self._began = self._clock()

    def advance(self, n: int) -> None:
        """Adds `n` bytes that have arrived."""
        self._done += n
        now = self._clock()
        if now - self._told >= LOG_SECONDS:
            self._told = now
            self._tell()

    def finish(self) -> None:
        """Tells nothing more."""

    def _tell(self) -> None:
        import logging

        speed = (self._done - self._already) / max(self._told - self._began, 1e-9)
        left = "unknown time"
        if self._total is not None and speed > 0:
            left = f"{(self._total - self._done) / speed:.0f} s"
        logging.getLogger("pjrt_hub.store").info(
            "%s: %s, %s/s, %s left",
            self._label,
            _size(self._done, self._total, " of "),
            _size(speed),
            left,
            extra={"pjrt_hub_nbytes": self._done, "pjrt_hub_total_nbytes": self._total},
        )


def _size(nbytes: float, total: int | None = None, between: str = "/") -> str:
    step, unit = (1e6, "MB") if max(nbytes, total or 0) >= 1e5 else (1e3, "kB")
    whole = "" if total is None else f"{between}{total / step:.1f}"
    return f"{nbytes / step:.1f}{whole} {unit}"


def choose_progress(
    label: str, clock: Callable[[], float] = time.monotonic
) -> TerminalProgress | LoggedProgress:
    """Return a line in a notebook or on a terminal, else lines in the log."""
    if _in_notebook():
        return NotebookProgress(label, clock)
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return TerminalProgress(label, clock) if is_terminal else LoggedProgress(label, clock)


def _in_notebook() -> bool:
    """Check whether a kernel runs this process: then IPython is imported already."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
