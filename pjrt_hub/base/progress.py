"""The display of a transfer: a line by rich on a terminal or in a notebook, else lines in a log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pjrt_hub.base.listing import size_text

if TYPE_CHECKING:
    from rich.progress import Task

#: Seconds between two lines in the log.
LOG_SECONDS = 10.0
#: The speed that is shown is the average of this many last seconds.
_SPEED_SECONDS = 5.0
#: After this many seconds without a byte, a transfer is shown as stopped.
_SILENT_SECONDS = 2.0


class BarProgress:
    """A bar that shows the transfer of `label`; when that is done, it leaves a line to say so."""

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
        from rich.text import Text

        class Numbers(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(_numbers(task))

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[phase]}", style="cyan"),
            BarColumn(20),
            Numbers(),
            console=Console(stderr=True),
            get_time=clock,
            speed_estimate_period=_SPEED_SECONDS,
            transient=True,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )
        self._clock, self._began = clock, clock()
        self._bar.add_task(label, total=None, phase="looking", since=self._began)

    @property
    def _task(self) -> Task:
        return self._bar.tasks[0]

    def enter(self, phase: str) -> None:
        """Show the phase that begins; "done" means that the transfer is complete."""
        self._bar.update(self._task.id, phase=phase, since=self._clock())
        self._bar.start()

    def start(self, total: int | None, already: int) -> None:
        """Set the sizes in bytes when the transfer begins, or begins again."""
        fields = self._task.fields
        self._bar.reset(self._task.id, completed=already, **fields)
        self._task.total = total  # `reset` takes None for the total that it has.

    def advance(self, n: int) -> None:
        """Add `n` bytes that have arrived."""
        self._bar.update(self._task.id, advance=n, since=self._clock())

    def finish(self) -> None:
        """End the bar; a failed transfer leaves no line, since an error follows. Safe to repeat."""
        if not self._bar.live.is_started:
            return
        self._bar.stop()
        if self._task.fields["phase"] == "done":
            nbytes = int(self._task.total or self._task.completed)
            size = f", {size_text(nbytes)}" if nbytes else ""
            told = f"{self._task.description}: done{size} in {self._clock() - self._began:.0f} s"
            self._bar.console.print(told, markup=False, highlight=False)


def _numbers(task: Task) -> str:
    """Return the sizes and the speed of a fetch, or for how long another phase has lasted.

    The field `since` is when the phase began or, in a fetch, when the last bytes came.
    """
    seconds = task.get_time() - task.fields["since"]
    if task.fields["phase"] != "fetching":
        return f"{int(seconds)} s" if seconds >= 1 else ""
    if task.total is None:
        words = [size_text(int(task.completed))] if task.completed else []
    else:
        words = [f"{size_text(int(task.completed))} of {size_text(int(task.total))}"]
    if seconds >= _SILENT_SECONDS:
        words.append(f"nothing for {int(seconds)} s")
    elif task.speed:
        words.append(f"{size_text(int(task.speed))}/s")
        if task.time_remaining is not None:
            words.append(str(timedelta(seconds=task.time_remaining)))
    return " ".join(words)


class LoggedProgress:
    """A transfer's records in the log: each phase at DEBUG, and sizes at INFO every ten seconds."""

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._label, self._clock = label, clock
        self._log = logging.getLogger("pjrt_hub.store")
        self._total: int | None = None
        self._done = self._already = 0
        self._began = self._told = clock()

    def enter(self, phase: str) -> None:
        """Log the phase that begins."""
        self._log.debug("%s: %s", self._label, phase)

    def start(self, total: int | None, already: int) -> None:
        """Begin, or begin again, like `BarProgress.start`."""
        self._total, self._done, self._already = total, already, already
        self._began = self._clock()

    def advance(self, n: int) -> None:
        """Add `n` bytes that have arrived; every ten seconds, log how many there are."""
        self._done += n
        now = self._clock()
        if now - self._told < LOG_SECONDS:
            return
        self._told = now
        speed = (self._done - self._already) / max(now - self._began, 1e-9)
        whole, left = "", "unknown time"
        if self._total is not None:
            whole = f" of {size_text(self._total)}"
            left = f"{(self._total - self._done) / speed:.0f} s" if speed else left
        self._log.info(
            "%s: %s%s, %s/s, %s left",
            self._label,
            size_text(self._done),
            whole,
            size_text(int(speed)),
            left,
            extra={"pjrt_hub_nbytes": self._done, "pjrt_hub_total_nbytes": self._total},
        )

    def finish(self) -> None:
        """Do nothing: the log needs no last line."""


def choose_progress(
    label: str, clock: Callable[[], float] = time.monotonic
) -> BarProgress | LoggedProgress:
    """Return a bar for a terminal or a notebook, else lines in the log."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return (BarProgress if is_terminal or _in_notebook() else LoggedProgress)(label, clock)


def _in_notebook() -> bool:
    """Check whether this is a notebook's kernel with ipywidgets, which rich needs to draw."""
    ipython = sys.modules.get("IPython")  # A notebook's kernel has always imported IPython.
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None and find_spec("ipywidgets") is not None
