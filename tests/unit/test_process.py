"""What a process listens to, and what one with more rights than its caller does not."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest

from pjrt_hub import errors
from pjrt_hub.door import privilege, process
from pjrt_hub.finding.store.cache import cache


@pytest.fixture(autouse=True)
def unwarned():
    privilege._warn.cache_clear()


@pytest.fixture
def elevated(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)


def test_a_process_of_its_user_listens_to_everything(monkeypatch):
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
    kept = dict(os.environ)
    try:
        os.environ.update(XLA_FLAGS="--xla_dump_to=/etc", TERM="dumb")
        process.distrust(process.environment())
        assert "XLA_FLAGS" not in os.environ
        assert os.environ["TERM"] == "dumb"
        assert set(os.environ) <= {"TERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}
    finally:
        os.environ.clear()
        os.environ.update(kept)
