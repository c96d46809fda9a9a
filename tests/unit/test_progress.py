"""How a transfer goes: a line on a terminal or in a notebook, lines in a log elsewhere."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

import pytest

from pjrt_hub.base.progress import LoggedProgress, TerminalProgress, choose_progress

MB = 1_000_000


def words(drawn: str) -> str:
    return " ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n━╸╺]", " ", drawn).split())


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def words(self) -> str:
        """All that was drawn, without colours, bars and movements."""
        return words(self.getvalue())

    @property
    def left(self) -> str:
        """What stands there after the last line was erased."""
        return self.getvalue().rpartition("\x1b[2K")[2]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return Screen()


class Clock:
    """A time that stands still between two lines of a test."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@contextmanager
def shown(screen: Screen, clock: Clock, label: str = "cpu") -> Iterator[TerminalProgress]:
    """A transfer whose last state is drawn for certain, at its end."""
    with redirect_stderr(screen):
        progress = choose_progress(label, clock)
        assert isinstance(progress, TerminalProgress)
        try:
            yield progress
        finally:
            progress.finish()


@contextmanager
def fetching(
    screen: Screen, clock: Clock, total: int, already: int = 0, label: str = "cpu"
) -> Iterator[TerminalProgress]:
    """A transfer that has begun to receive its file."""
    with shown(screen, clock, label) as progress:
        progress.start(total, already)
        progress.enter("fetching")
        yield progress


def test_no_bar_in_a_pipe(capsys):
    progress = choose_progress("cpu")
    assert isinstance(progress, LoggedProgress)
    progress.enter("looking")
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


def test_a_step_in_the_log_for_each_phase(caplog):
    caplog.set_level("DEBUG", "pjrt_hub.store")
    times = iter([0.0, 0.0, 10.0])
    progress = LoggedProgress("cpu", clock=lambda: next(times))
    progress.enter("looking")
    progress.start(None, 0)
    progress.enter("fetching")
    progress.advance(MB)
    assert [record.getMessage() for record in caplog.records] == [
        "cpu: looking",
        "cpu: fetching",
        "cpu: 1.0 MB, 0.1 MB/s, unknown time left",
    ]


def test_no_color_is_no_color(screen, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for no_color, shows_color in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        with fetching(screen, Clock(), 2_000_000, 500_000):
            pass
        colours = re.findall(r"\x1b\[[0-9;]*3[0-9][0-9;]*m", screen.getvalue())
        assert bool(colours) is shows_color
        screen.truncate(screen.seek(0))


def test_where_nothing_is_measured_only_the_time_is_told(screen):
    clock = Clock()
    with shown(screen, clock) as progress:
        progress.start(10 * MB, 0)
        progress.enter("looking")
        clock.seconds += 2.9
    assert screen.words.endswith("cpu looking 2 s")
    assert "MB" not in screen.words


@pytest.mark.parametrize(
    ("total", "already", "came", "seconds", "numbers"),
    [
        (10, 0, 0, 0.1, "0.0/10.0 MB"),
        (0.05, 0, 0.01, 1.0, "10.0/50.0 kB 10.0 kB/s 0:00:04"),
        (10, 0, 1, 1.0, "1.0/10.0 MB 1.0 MB/s 0:00:09"),
        (10, 5, 1, 1.0, "6.0/10.0 MB 1.0 MB/s 0:00:04"),  # what was there says nothing of speed
        (None, 0, 0, 0.1, ""),
        (None, 0, 3, 2.0, "3.0 MB 1.5 MB/s"),
    ],
)
def test_sizes_speed_and_rest(screen, total, already, came, seconds, numbers):
    clock = Clock()
    with shown(screen, clock) as progress:
        progress.start(total and total * MB, already * MB)
        clock.seconds += 60
        progress.enter("fetching")
        clock.seconds += seconds
        if came:
            progress.advance(came * MB)
    assert screen.words.endswith(f"cpu fetching {numbers}".rstrip())


def test_a_silent_server_is_no_speed(screen):
    clock = Clock()
    with fetching(screen, clock, 10 * MB) as progress:
        clock.seconds += 1
        progress.advance(MB)
        clock.seconds += 7.5
    assert screen.words.endswith("cpu fetching 1.0/10.0 MB nothing for 7 s")


def test_the_speed_is_that_of_the_last_seconds(screen):
    clock = Clock()
    with fetching(screen, clock, 100 * MB) as progress:
        for n in (*[10] * 5, *[1] * 10):
            clock.seconds += 1
            progress.advance(n * MB)
    assert screen.words.endswith("cpu fetching 60.0/100.0 MB 1.0 MB/s 0:00:40")


def test_what_is_done_leaves_a_line_and_what_is_not_leaves_none(screen):
    clock = Clock()
    with fetching(screen, clock, 10 * MB):
        pass
    assert screen.left.strip("\r") == ""
    with shown(screen, clock) as progress:
        progress.start(10 * MB, 0)
        clock.seconds += 3
        progress.enter("done")
        progress.finish()
    assert screen.left == "cpu: done, 10.0 MB in 3 s\n"


@pytest.mark.parametrize("label", ["jax-cuda13-pjrt", f"{'long_name' * 9}.whl"])
def test_the_line_leaves_room_for_ctrl_c(screen, label):
    """A terminal writes ^C behind it; in a second line nothing would erase the first."""
    clock = Clock()
    with fetching(screen, clock, 1234 * MB, label=label) as progress:
        clock.seconds += 1
        progress.advance(100 * MB)
    last = screen.getvalue().rpartition("\x1b[2K")[0].rpartition("\x1b[2K")[2]
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", last).strip("\r\n")
    assert len(drawn) <= 78
    assert "100.0/1234.0 MB 100.0 MB/s 0:00:11" in drawn


def test_without_sizes_only_the_time_is_left(screen):
    clock = Clock()
    with shown(screen, clock) as progress:
        progress.enter("unpacking")
        clock.seconds += 2
        progress.enter("done")
    assert screen.left == "cpu: done in 2 s\n"


class Notebook:
    """A kernel, and what its cells show."""

    def __init__(self) -> None:
        from jupyter_client.manager import start_new_kernel

        self.kernel, self._client = start_new_kernel(kernel_name="python3")

    def run(self, *lines: str) -> str:
        return self._client.execute("\n".join(lines))

    def shows(self, cell: str) -> Iterator[tuple[str, str]]:
        """What comes from a cell until it ends: the kind of message, and its words."""
        while True:
            message = self._client.get_iopub_msg(timeout=60)
            kind, content = message["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != cell:
                continue
            if kind in ("display_data", "update_display_data"):
                assert "<pre" in content["data"]["text/html"]
                yield kind, words(content["data"]["text/plain"])
            elif kind == "error":
                yield kind, content["ename"]
            elif kind == "status" and content["execution_state"] == "idle":
                return

    def close(self) -> None:
        self._client.stop_channels()
        self.kernel.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def notebook() -> Iterator[Notebook]:
    pytest.importorskip("ipykernel")
    notebook = Notebook()
    yield notebook
    notebook.close()


BEGIN = (
    "from pjrt_hub.base.progress import choose_progress",
    "progress = choose_progress('cpu')",
    "progress.enter('looking')",
    "progress.start(2_000_000, 0)",
)


def test_a_line_in_a_notebook(notebook: Notebook):
    cell = notebook.run(*BEGIN, "progress.enter('done')", "progress.finish()", "progress.finish()")
    (first, line), *_, (last, end) = notebook.shows(cell)
    assert first == "display_data"
    assert re.fullmatch("cpu looking( [0-9]+ s)?", line)
    assert (last, end.partition(" in ")[0]) == ("update_display_data", "cpu: done, 2.0 MB")


def test_a_notebook_sees_each_phase_and_where_it_stopped(notebook: Notebook):
    received = ("progress.enter('fetching')", "progress.advance(500_000)")
    wait = ("try:", " import time; time.sleep(600)", "finally:", " progress.finish()")
    shown = notebook.shows(notebook.run(*BEGIN, *received, *wait))
    assert any(line.startswith("cpu fetching 0.5/2.0 MB") for _, line in shown)
    notebook.kernel.interrupt_kernel()
    *_, (_, end), error = shown
    assert end.partition(" in ")[0] == "cpu: stopped, 0.5/2.0 MB"
    assert error == ("error", "KeyboardInterrupt")


def test_nothing_of_ipython_is_imported_where_no_kernel_runs():
    code = (
        "import sys; from pjrt_hub.base.progress import choose_progress as choose; choose('cpu');"
        "assert 'IPython' not in sys.modules and 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
