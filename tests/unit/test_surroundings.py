"""What a process listens to, and what one with more rights than its caller does not."""

from __future__ import annotations

import logging
import os
import stat
import struct
import sys
from pathlib import Path

import pytest

from pjrt_hub import errors, surroundings
from pjrt_hub.store import cache

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux tells it")


@pytest.fixture(autouse=True)
def fresh():
    surroundings._started_elevated.cache_clear()
    surroundings._warn.cache_clear()
    yield
    surroundings._started_elevated.cache_clear()


@pytest.fixture
def elevated(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)


def test_a_process_of_its_user_listens_to_everything(monkeypatch):
    monkeypatch.setenv("PJRT_HUB_CACHE", "/somewhere")
    assert surroundings.elevation() == ""
    assert surroundings.environment() is os.environ
    assert str(surroundings.cache().root) == "/somewhere"


def test_an_elevated_process_listens_to_nothing(elevated, monkeypatch, caplog, tmp_path):
    for name in ("PJRT_HUB_CACHE", "PJRT_HUB_PLUGIN_PATH", "HOME", "XDG_CACHE_HOME", "HTTPS_PROXY"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(cache, "SYSTEM", (tmp_path / "absent",))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "path", [*sys.path, "", "relative"])
    assert "NO_COLOR" in surroundings.environment()
    assert "PJRT_HUB_CACHE" not in surroundings.environment()
    world = surroundings.world()
    assert world.cache is None
    assert not {"", "relative"} & set(world.sys_path)
    assert world.finders == ()
    with pytest.raises(errors.CacheError, match="runs as user") as caught:
        surroundings.cache()
    assert caught.value.hint
    told = [each for each in caplog.records if each.name == "pjrt_hub"]
    assert [each.levelno for each in told] == [logging.WARNING]
    assert "are ignored" in told[0].getMessage()


def test_an_elevated_process_is_served_by_what_only_root_can_change(elevated, monkeypatch):
    monkeypatch.setattr(cache, "SYSTEM", (Path("/tmp"), Path("/usr"), Path("/etc")))
    served = surroundings.cache()
    assert (served.root, served.system) == (Path("/usr"), (Path("/etc"),))


def test_an_elevated_process_gives_plugins_no_variable_of_its_caller(elevated, monkeypatch):
    kept = dict(os.environ)
    try:
        os.environ.update(XLA_FLAGS="--xla_dump_to=/etc", TERM="dumb")
        surroundings.distrust()
        assert "XLA_FLAGS" not in os.environ
        assert os.environ["TERM"] == "dumb"
        assert set(os.environ) <= {"TERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}
    finally:
        os.environ.clear()
        os.environ.update(kept)


def test_another_group_is_another_right(monkeypatch):
    monkeypatch.setattr(os, "getegid", lambda: os.getgid() + 1)
    assert "runs as group" in surroundings.elevation()


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
    assert said in surroundings.elevation()
    assert bool(surroundings.elevation()) == bool(secure)


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
    assert ("capabilities 0x400" in surroundings.elevation()) is is_elevated


def test_only_folders_of_root_are_trusted(tmp_path):
    assert surroundings.only_root_writes("/usr")
    assert not surroundings.only_root_writes("usr")
    assert not surroundings.only_root_writes("")
    assert not surroundings.only_root_writes("/tmp")
    assert not surroundings.only_root_writes(str(tmp_path / "absent"))
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    assert not surroundings.only_root_writes(str(folder))
    (tmp_path / "link").symlink_to("/usr")
    assert not surroundings.only_root_writes(str(tmp_path / "link"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of root")
def test_below_a_sticky_folder_root_is_trusted(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777 | stat.S_ISVTX)
    mine = shared / "mine"
    mine.mkdir(mode=0o755)
    if not surroundings.only_root_writes(str(tmp_path)):
        pytest.skip("the temporary folder itself is not only root's")
    assert surroundings.only_root_writes(str(mine))
    os.chown(mine, 1000, -1)
    assert not surroundings.only_root_writes(str(mine))
    assert not surroundings.only_root_writes(str(shared))


def test_relative_paths_are_no_one_s(tmp_path, monkeypatch):
    monkeypatch.chdir(Path("/"))
    assert not surroundings.only_root_writes("usr/lib")
