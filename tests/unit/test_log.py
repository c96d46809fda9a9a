"""PJRT_HUB_DEBUG and the loggers: which areas print, and what a record carries."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from pjrt_hub.base import log


@pytest.fixture(autouse=True)
def quiet():
    yield
    log.show(())


@pytest.mark.parametrize(
    ("text", "areas"),
    [
        ("", ()),
        ("0", ()),
        ("all", tuple(log.AREAS)),
        ("1", tuple(log.AREAS)),
        ("store", ("store",)),
        ("Probe, store", ("probe", "store")),
        ("discovery,discovery", ("discovery",)),
    ],
)
def test_the_variable_names_areas(text, areas):
    assert log.areas(text) == areas


def test_only_the_named_areas_print(capsys):
    log.show(["store"])
    log.step("store", "from %s", "here")
    log.step("probe", "not seen")
    log.show(["store"])
    log.step("store", "once")
    log.show(["probe"])
    log.step("store", "not seen")
    assert capsys.readouterr() == ("", "pjrt-hub: from here\npjrt-hub: once\n")


def test_a_record_has_attributes(caplog):
    caplog.set_level(logging.DEBUG, "pjrt_hub.contact")
    log.step("probe", "%s: PJRT API %s", "a.so", "0.81", path="a.so", name="kept apart")
    (record,) = caplog.records
    assert record.name == "pjrt_hub.contact"
    assert record.getMessage() == "a.so: PJRT API 0.81"
    assert (record.pjrt_hub_path, record.pjrt_hub_name) == ("a.so", "kept apart")


def test_a_process_without_stderr_steps_on(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    log.show(["store"])
    log.step("store", "into nothing")


def test_nobody_who_listens_costs_nothing():
    script = """
import sys
from pathlib import Path
from pjrt_hub.base import log
log.show(())
log.step("store", "nothing")
print("logging" in sys.modules)
"""
    # Without `site` nobody finds an editable install.
    path = [str(Path(log.__file__).parents[2]), *sys.path]
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path = {path!r}\n{script}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "False"
