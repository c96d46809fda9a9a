"""What is looked for where a process is started never lies in the working directory."""

import os
import sys
from pathlib import Path

import pytest

from pjrt_hub.base import safe_path
from pjrt_hub.finding.store.transfer import installers
from pjrt_hub.finding.store.transfer.credentials import Credentials


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a program `uv` and a folder `bin` with another."""
    here, there = tmp_path / "here", tmp_path / "there"
    for each in (here, here / "bin", there):
        each.mkdir()
        (each / "uv").write_text("#!/bin/sh\n")
        (each / "uv").chmod(0o755)
    monkeypatch.chdir(here)
    return there


NONE, FOUND = ["", ":", ".", "bin", "./bin:../here"], [":{}", "{}:", ".:{}", "bin:{}", "./bin::{}:"]


@pytest.mark.parametrize("path", [*NONE, *FOUND])
def test_a_program_is_looked_for_in_absolute_folders_only(folder: Path, path: str) -> None:
    expected = str(folder / "uv") if path in FOUND else None
    assert safe_path.which("uv", {"PATH": path.format(folder)}) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, "/ours"), ("", "/ours"), (":/a", "/ours:/a"), ("/a::b:", "/ours:/a:b")],
)
def test_the_empty_entries_of_pythonpath_are_left_out(given: str | None, expected: str) -> None:
    env = {"X": "1"} if given is None else {"X": "1", "PYTHONPATH": given}
    assert safe_path.environment(env, "/ours") == {"X": "1", "PYTHONPATH": expected}
    assert safe_path.python("-m", "pip") == [sys.executable, "-P", "-m", "pip"]


def test_without_a_home_nothing_of_the_working_directory_stands_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".netrc").write_text("machine h login me password secret\n")
    (folder / "uv.d" / "uv").mkdir(parents=True)
    (folder / "uv.d" / "uv" / "uv.toml").write_text('find-links = ["/trap"]\n')
    monkeypatch.chdir(folder)
    assert Credentials({}, "disabled").find("https://h/") is None
    assert Credentials({"HOME": str(folder)}, "disabled").find("https://h/") == ("me", "secret")
    bare = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull}
    for variable in ("XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"):
        for place, is_read in (("uv.d", False), (str(folder / "uv.d"), True)):
            found = installers.read_sources({**bare, variable: place}, directory=Path("/"))
            assert ("/trap" in found.find_links) is is_read, (variable, place)
