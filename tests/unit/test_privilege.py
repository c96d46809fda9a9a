"""Whether a process has more rights than its caller, and what only root can change."""

from __future__ import annotations

import os
import stat
import struct
import sys
from pathlib import Path

import pytest

from pjrt_hub.door import privilege

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux tells it")


@pytest.fixture(autouse=True)
def unasked():
    privilege._elevation_reason.cache_clear()
    privilege._warn.cache_clear()
    yield
    privilege._elevation_reason.cache_clear()


def test_a_process_of_its_user_has_no_more_rights():
    assert privilege.reason() == ""


def test_another_group_is_another_right(monkeypatch):
    monkeypatch.setattr(os, "getegid", lambda: os.getgid() + 1)
    assert "runs as group" in privilege.reason()


@linux
@pytest.mark.parametrize(("secure", "said"), [(0, ""), (1, "more rights than its caller")])
def test_the_kernel_is_asked(monkeypatch, tmp_path, secure, said):
    auxv = tmp_path / "auxv"
    auxv.write_bytes(struct.pack("@6L", 6, 4096, 23, secure, 0, 0))
    real = open
    monkeypatch.setattr(
        "builtins.open",
        lambda path, *args: real(auxv if path == "/proc/self/auxv" else path, *args),
    )
    assert said in privilege.reason()
    assert bool(privilege.reason()) == bool(secure)


@linux
@pytest.mark.parametrize(
    ("permitted", "ambient", "is_elevated"), [("400", "0", True), ("400", "400", False)]
)
def test_a_program_that_may_not_ask_looks_at_its_capabilities(
    monkeypatch, tmp_path, permitted, ambient, is_elevated
):
    status = tmp_path / "status"
    status.write_text(f"Name:\tx\nCapPrm:\t{permitted}\nCapAmb:\t{ambient}\n")
    real = open

    def opened(path, *args):
        if path == "/proc/self/auxv":
            raise PermissionError(13, "Permission denied")
        return real(status if path == "/proc/self/status" else path, *args)

    monkeypatch.setattr("builtins.open", opened)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert ("capabilities 0x400" in privilege.reason()) is is_elevated


def test_only_folders_of_root_are_trusted(tmp_path):
    assert privilege.only_root_writes("/usr")
    assert not privilege.only_root_writes("usr")
    assert not privilege.only_root_writes("")
    assert not privilege.only_root_writes("/tmp")
    assert not privilege.only_root_writes(str(tmp_path / "absent"))
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    assert not privilege.only_root_writes(str(folder))
    (tmp_path / "link").symlink_to("/usr")
    assert not privilege.only_root_writes(str(tmp_path / "link"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of root")
def test_below_a_sticky_folder_root_is_trusted(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777 | stat.S_ISVTX)
    mine = shared / "mine"
    mine.mkdir(mode=0o755)
    if not privilege.only_root_writes(str(tmp_path)):
        pytest.skip("the temporary folder itself is not only root's")
    assert privilege.only_root_writes(str(mine))
    os.chown(mine, 1000, -1)
    assert not privilege.only_root_writes(str(mine))
    assert not privilege.only_root_writes(str(shared))


def test_relative_paths_are_no_one_s(monkeypatch):
    monkeypatch.chdir(Path("/"))
    assert not privilege.only_root_writes("usr/lib")
