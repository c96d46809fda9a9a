"""Progress of a transfer: a line on a terminal or in a notebook, and log lines elsewhere."""

import io
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from unittest.mock import Mock

import pytest

from pjrt_hub.base.progress import BarProgress, LoggedProgress, choose_progress

MB = 1_000_000


class Screen(io.StringIO):
    """A stream that acts as a terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def words(self) -> str:
        """The drawn text without colours, bars and cursor movements."""
        drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n━╸╺]", " ", self.getvalue())
        return " ".join(drawn.split())

    @property
    def left(self) -> str:
        """The text that is left after the last erased line."""
        return self.getvalue().rpartition("\x1b[2K")[2]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    return Screen()


@pytest.fixture
def clock() -> Mock:
    """A clock that only moves when a test changes it."""
    return Mock(return_value=100.0)


@contextmanager
def shown(screen: Screen, clock: Mock) -> Iterator[BarProgress]:
    """A transfer's progress on the screen, which is certainly drawn at its end."""
    with redirect_stderr(screen):
        progress = choose_progress("cpu", clock)
        assert isinstance(progress, BarProgress)
        progress.enter("looking")
        try:
            yield progress
        finally:
            progress.finish()


def test_no_bar_in_a_pipe(capsys):
    progress = choose_progress("cpu")
    assert isinstance(progress, LoggedProgress)
    progress.enter("looking")
    progress.start(100, 0)
    progress.advance(100)
    progress.finish()
    assert capsys.readouterr() == ("", "")


def test_a_line_in_the_log_every_ten_seconds_and_for_each_phase(caplog):
    caplog.set_level("DEBUG", "pjrt_hub.store")
    times = iter([0.0, 0.0, *range(1, 100)])
    progress = LoggedProgress("cpu", clock=lambda: next(times))
    progress.enter("looking")
    progress.start(10 * MB, MB)
    for _ in range(25):
        progress.advance(100_000)
    progress.finish()
    assert caplog.messages == [
        "cpu: looking",
        "cpu: 2 MB of 10 MB, 100 kB/s, 80 s left",
        "cpu: 3 MB of 10 MB, 100 kB/s, 70 s left",
    ]
    assert caplog.records[1].pjrt_hub_nbytes == 2 * MB
    caplog.clear()
    times = iter([0.0, 0.0, 10.0])
    progress = LoggedProgress("cpu", clock=lambda: next(times))
    progress.start(None, 0)
    progress.advance(MB)
    assert caplog.messages == ["cpu: 1 MB, 100 kB/s, unknown time left"]


def test_no_color_is_no_color(screen, clock, monkeypatch):
    for no_color, shows_color in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        with shown(screen, clock):
            pass
        colours = re.findall(r"\x1b\[[0-9;]*3[0-9][0-9;]*m", screen.getvalue())
        assert bool(colours) is shows_color
        screen.truncate(screen.seek(0))


@pytest.mark.parametrize(
    ("total", "already", "came", "silent", "numbers"),
    [
        (10, 0, [], 0.1, "0 B of 10 MB"),
        (0.05, 0, [0.01, 0.01], 0, "20 kB of 50 kB 10 kB/s 0:00:03"),
        (10, 0, [1, 1], 0, "2 MB of 10 MB 1 MB/s 0:00:08"),
        (10, 5, [1, 1], 0, "7 MB of 10 MB 1 MB/s 0:00:03"),  # earlier bytes do not count
        (None, 0, [], 0.1, ""),
        (None, 0, [3, 3], 0, "6 MB 3 MB/s"),
        (100, 0, [10] * 5 + [1] * 10, 0, "60 MB of 100 MB 1 MB/s 0:00:40"),  # the speed is recent
        (10, 0, [1, 1], 7.5, "2 MB of 10 MB nothing for 7 s"),
    ],
)
def test_sizes_speed_and_rest(screen, clock, total, already, came, silent, numbers):
    with shown(screen, clock) as progress:
        progress.start(7 * MB, 0)
        progress.start(total and total * MB, already * MB)
        clock.return_value += 60
        progress.enter("fetching")
        for n in came:
            clock.return_value += 1
            progress.advance(n * MB)
        clock.return_value += silent
    assert screen.words.endswith(f"cpu fetching {numbers}".rstrip())


@pytest.mark.parametrize(("total", "size"), [(10 * MB, ", 10 MB"), (None, "")])
def test_what_is_done_leaves_a_line_and_what_is_not_leaves_none(screen, clock, total, size):
    with shown(screen, clock) as progress:
        progress.start(10 * MB, 0)
        clock.return_value += 2.9
    # Without measured bytes, the line only shows the time.
    assert screen.words.endswith("cpu looking 2 s")
    assert "MB" not in screen.words
    assert screen.left.strip("\r") == ""
    with shown(screen, clock) as progress:
        progress.start(total, 0)
        clock.return_value += 3
        progress.enter("done")
        progress.finish()
    assert screen.left == f"cpu: done{size} in 3 s\n"


@pytest.mark.slow
@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_draws_by_ipywidgets_and_else_the_log_has_it(tmp_path, has_widgets):
    """Without ipywidgets, rich would print a warning in each cell."""
    manager = pytest.importorskip("jupyter_client.manager")
    (tmp_path / "ipywidgets.py").write_text("class Output: pass")
    code = f"import sys; sys.path += [{str(tmp_path)!r}] * {has_widgets:d}\n"
    code += "from pjrt_hub.base.progress import choose_progress"
    kernel, client = manager.start_new_kernel(kernel_name="python3")
    try:
        client.execute(code)
        asked = {"kind": "type(choose_progress('cpu')).__name__"}
        told = client.execute_interactive("", user_expressions=asked, timeout=60)
        found = told["content"]["user_expressions"]["kind"]["data"]["text/plain"]
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    assert found == repr("BarProgress" if has_widgets else "LoggedProgress")


def test_nothing_of_ipython_is_imported_where_no_kernel_runs():
    code = (
        "import sys; from pjrt_hub.base.progress import choose_progress as choose; choose('cpu');"
        "assert 'IPython' not in sys.modules and 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
