"""How a transfer goes: a bar on a terminal, lines in a log elsewhere."""

from __future__ import annotations

import io
import re
import sys

from pjrt_hub.base.progress import LoggedProgress, terminal_progress


def test_no_bar_in_a_pipe(monkeypatch, capsys):
    progress = terminal_progress("cpu")
    assert isinstance(progress, LoggedProgress)
    progress.start(100, 0)
    progress.advance(100)
    progress.finish()
    assert capsys.readouterr() == ("", "")


def test_a_line_in_the_log_every_ten_seconds(caplog):
    caplog.set_level("INFO", "pjrt_hub.store")
    times = iter([0.0, 0.0, *range(1, 100)])
    progress = LoggedProgress("cpu", clock=lambda: next(times))
    progress.start(10_000_000, 1_000_000)
    for _ in range(25):
        progress.advance(100_000)
    progress.finish()
    assert [record.getMessage() for record in caplog.records] == [
        "cpu: 2.0 of 10.0 MB, 0.1 MB/s, 80 s left",
        "cpu: 3.0 of 10.0 MB, 0.1 MB/s, 70 s left",
    ]
    assert caplog.records[0].pjrt_hub_nbytes == 2_000_000


def test_no_color_is_no_color(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    for no_color, shows_color in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        bar = terminal_progress("cpu")
        bar.start(2_000_000, 500_000)
        bar.finish()
        colours = re.findall(r"\x1b\[[0-9;]*3[0-9][0-9;]*m", screen.getvalue())
        assert bool(colours) is shows_color
        screen.truncate(screen.seek(0))


def test_progress_on_a_terminal(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    bar = terminal_progress("cpu")
    bar.start(2_000_000, 500_000)
    bar.advance(1_500_000)
    bar.finish()
    bar.finish()
    shown = screen.getvalue()
    assert "cpu" in shown
    assert "2.0/2.0 MB" in shown
    assert shown.rstrip().endswith("\x1b[?25h")
