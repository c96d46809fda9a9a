"""How a transfer goes: a bar on a terminal, lines in a log elsewhere.

Imports nothing of ours.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: Seconds between two lines in the log.
LOG_SECONDS = 10.0


class TerminalProgress:
    """Draws one transfer on stderr and leaves its last state there.

    Args:
        label: what is transferred.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: Progress | None = None
        self._task: TaskID

    def start(self, total: int, already: int) -> None:
        """Shows the bar, or sets it back where the transfer begins again.

        Args:
            total: the size of the whole transfer, in bytes.
            already: how many of them an earlier attempt left.
        """
        from rich import progress
        from rich.console import Console

        if self._bar is not None:
            self._bar.update(self._task, total=total, completed=already)
            return
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(self._label, total=total, completed=already)
        self._bar.start()

    def advance(self, n: int) -> None:
        """Adds `n` bytes that have arrived."""
        if self._bar is not None:
            self._bar.advance(self._task, n)

    def finish(self) -> None:
        """Leaves the bar as it is and gives the cursor back; safe to call again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class LoggedProgress:
    """Tells of one transfer in the log of `pjrt_hub.store`, every ten seconds, at the level INFO.

    Args:
        label: what is transferred.
        clock: a monotonic time in seconds.
    """

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._label = label
        self._clock = clock
        self._total = self._done = self._already = 0
        self._began = self._told = clock()

    def start(self, total: int, already: int) -> None:
        """Begins, or begins again; as `TerminalProgress.start`."""
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
        left = (self._total - self._done) / speed if speed > 0 else float("inf")
        logging.getLogger("pjrt_hub.store").info(
            "%s: %.1f of %.1f MB, %.1f MB/s, %s left",
            self._label,
            self._done / 1e6,
            self._total / 1e6,
            speed / 1e6,
            f"{left:.0f} s" if left < 1e6 else "unknown time",
            extra={"pjrt_hub_nbytes": self._done, "pjrt_hub_total_nbytes": self._total},
        )


def terminal_progress(label: str) -> TerminalProgress | LoggedProgress:
    """A bar where stderr is a terminal, else lines in the log."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return TerminalProgress(label) if is_terminal else LoggedProgress(label)
