"""The commands of docs/tutorial.md, run in order in an empty folder, print what the page shows."""

import os
import re
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text("utf-8")
#: The line between the outputs of two blocks.
STATUS = re.compile(r"^@@ status (\d+)\n", re.MULTILINE)

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.timeout(1200)]


def blocks() -> list[tuple[str, str]]:
    """The info string after ``` and the text of each code block of the page."""
    tokens = MarkdownIt().parse(PAGE)
    return [(token.info, token.content) for token in tokens if token.type == "fence"]


def script() -> str:
    """The page as a shell script that prints the status after each block of commands."""
    lines = ["exec 2>&1"]
    for kind, text in blocks():
        if kind == "console":
            lines += [text.rstrip("\n"), r'printf "\n@@ status %d\n" $?']
        elif kind.startswith("python "):  # the page tells readers to save this block
            name = re.fullmatch(r'python title="(\w+\.py)"', kind)[1]
            assert f"Save this as `{name}`:" in " ".join(PAGE.split())
            lines += [f"cat > {name} <<'@@'", text + "@@"]
    return "\n".join(lines) + "\n"


def shown() -> list[str | None]:
    """The output that the page shows below each block of commands, or None."""
    found: list[str | None] = []
    for kind, text in blocks():
        if kind == "console":
            found.append(None)
        elif kind == "":
            assert found[-1] is None
            found[-1] = text
    return found


def is_as_shown(printed: str, shown: str) -> bool:
    """Compare line by line, where … stands for any text within a line."""
    return bool(re.fullmatch(re.escape(shown.strip("\n")).replace("…", ".*"), printed.strip("\n")))


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="the page shows a machine without a GPU")
def test_its_commands_print_what_it_shows(checkout, clean_env, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {**clean_env, "PJRT_HUB_CACHE": str(tmp_path / "cache")}
    shell = subprocess.Popen(
        ["bash", "-c", script().replace("8000", str(port))],
        stdout=subprocess.PIPE,
        text=True,
        cwd=checkout.parent,
        env=env,
        start_new_session=True,
    )
    try:
        said, _ = shell.communicate(timeout=1100)
    finally:
        with suppress(ProcessLookupError):  # the page may have stopped its server
            os.killpg(shell.pid, signal.SIGKILL)
    printed = STATUS.split(said)
    assert set(printed[1::2]) == {"0"}, said
    pairs = list(zip(printed[::2], shown(), strict=False))
    assert len(pairs) == len(shown()) > 10
    for ours, theirs in pairs:
        assert theirs is None or is_as_shown(ours, theirs), ours
