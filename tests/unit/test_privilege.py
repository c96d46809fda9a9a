"""Whether a process has more rights than its caller, and what it then does not listen to."""

import logging
import os
import stat
import struct
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from pjrt_hub import errors
from pjrt_hub.door import privilege, process
from pjrt_hub.finding.store.cache import cache

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux tells it")


@pytest.fixture(autouse=True)
def unasked():
    privilege._elevation_reason.cache_clear()
    privilege._warn.cache_clear()
    yield
    privilege._elevation_reason.cache_clear()


def test_another_group_is_another_right(monkeypatch):
    monkeypatch.setattr(os, "getegid", lambda: os.getgid() + 1)
    assert "runs as group" in privilege.reason()


@pytest.fixture
def proc(monkeypatch, tmp_path):
    """Put other files, or errors, in the place of those of /proc/self."""

    def replace(**files: bytes | OSError) -> None:
        def opened(path, *args):
            content = files.get(str(path).removeprefix("/proc/self/"))
            if isinstance(content, OSError):
                raise content
            if content is not None:
                path = tmp_path / "replaced"
                path.write_bytes(content)
            return real(path, *args)

        monkeypatch.setattr("builtins.open", opened)

    real = open
    return replace


@linux
@pytest.mark.parametrize(("secure", "said"), [(0, ""), (1, "more rights than its caller")])
def test_the_kernel_is_asked(proc, secure, said):
    proc(auxv=struct.pack("@6L", 6, 4096, 23, secure, 0, 0))
    assert said in privilege.reason()
    assert bool(privilege.reason()) == bool(secure)


@linux
@pytest.mark.parametrize(("ambient", "is_elevated"), [("0", True), ("400", False)])
def test_a_program_that_may_not_ask_looks_at_its_capabilities(
    proc, monkeypatch, ambient, is_elevated
):
    status = f"Name:\tx\nCapPrm:\t400\nCapAmb:\t{ambient}\n".encode()
    proc(auxv=PermissionError(13, "Permission denied"), status=status)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert ("capabilities 0x400" in privilege.reason()) is is_elevated


def test_only_folders_of_root_are_trusted(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to("/usr")
    trusted = ["/usr", "usr", "", "/tmp", f"{tmp_path}/absent"]
    trusted += [f"{tmp_path}/open", f"{tmp_path}/link"]
    assert [path for path in trusted if privilege.only_root_writes(path)] == ["/usr"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of root")
def test_below_a_sticky_folder_root_is_trusted(tmp_path):
    mine = tmp_path / "shared" / "mine"
    mine.mkdir(mode=0o755, parents=True)
    mine.parent.chmod(0o777 | stat.S_ISVTX)
    if not privilege.only_root_writes(str(tmp_path)):
        pytest.skip("the temporary folder itself is not only root's")
    assert privilege.only_root_writes(str(mine))
    os.chown(mine, 1000, -1)
    assert not privilege.only_root_writes(str(mine))
    assert not privilege.only_root_writes(str(mine.parent))


@pytest.fixture
def elevated(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)


def test_a_process_of_its_user_listens_to_everything(monkeypatch):
    assert privilege.reason() == ""
    monkeypatch.setenv("PJRT_HUB_CACHE", "/somewhere")
    assert process.environment() is os.environ
    assert str(process.cache().root) == "/somewhere"


def test_an_elevated_process_listens_to_nothing(elevated, monkeypatch, caplog, tmp_path):
    for name in ("PJRT_HUB_CACHE", "PJRT_HUB_PLUGIN_PATH", "HOME", "XDG_CACHE_HOME", "HTTPS_PROXY"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(cache, "SYSTEM", (tmp_path / "absent",))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "path", [*sys.path, "", "relative"])
    assert "NO_COLOR" in process.environment()
    assert "PJRT_HUB_CACHE" not in process.environment()
    world = process.world()
    assert world.cache is None
    assert not {"", "relative"} & set(world.installed.sys_path)
    assert world.installed.finders == ()
    with pytest.raises(errors.CacheError, match="runs as user") as caught:
        process.cache()
    assert caught.value.hint
    told = [each for each in caplog.records if each.name == "pjrt_hub"]
    assert [each.levelno for each in told] == [logging.WARNING]
    assert "are ignored" in told[0].getMessage()


def test_an_elevated_process_is_served_by_what_only_root_can_change(elevated, monkeypatch):
    monkeypatch.setattr(cache, "SYSTEM", (Path("/tmp"), Path("/usr"), Path("/etc")))
    served = process.cache()
    assert (served.root, served.system) == (Path("/usr"), (Path("/etc"),))


def test_an_elevated_process_gives_plugins_no_variable_of_its_caller(elevated):
    with patch.dict(os.environ, XLA_FLAGS="--xla_dump_to=/etc", TERM="dumb"):
        process.distrust(process.environment())
        assert "XLA_FLAGS" not in os.environ
        assert os.environ["TERM"] == "dumb"
        assert set(os.environ) <= {"TERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}
