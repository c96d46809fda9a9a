"""A progress bar for a terminal (layer 0; imports nothing of ours)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


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


def terminal_progress(label: str) -> TerminalProgress | None:
    """A bar where stderr is a terminal, else None: a pipe gets no progress."""
    return TerminalProgress(label) if sys.stderr and sys.stderr.isatty() else None
