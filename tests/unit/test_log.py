"""Logs: which areas print, what records contain, and native output on stderr as records."""

import atexit
import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from children import command

import pjrt_hub
from pjrt_hub.base import log, native_log

heard: list[logging.LogRecord] = []


def say(text: str) -> None:
    os.write(2, text.encode())


def hear() -> None:
    native_log._PATIENCE = 30  # the other process may start late
    native, handler = logging.getLogger("pjrt_hub.native"), logging.Handler()
    handler.emit = heard.append  # type: ignore[method-assign]
    native.setLevel(logging.DEBUG)
    native.addHandler(handler)


def show() -> None:
    print(json.dumps([[each.levelname, each.getMessage()] for each in heard]))


def child(function: Callable[..., object], *arguments: object):
    env = {**os.environ, "PYTHONPATH": str(Path(pjrt_hub.__file__).parents[1])}
    words = command(function, *arguments, prepared=False)
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)


def records(done) -> list[list[str]]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


LINES = """\
I0000 00:00:1717171717.123456    1234 service.cc:148] XLA service
W0607 12:00:00.000001 77 xla/pjrt_api.cc:99] old plugin
2024-06-07 12:00:00.000001: E external/xla/xla/stream.cc:12] no device
F0000 00:00:1717171717.123456 1 a.cc:1] the end
plain words
"""


def say_lines():
    hear()
    with pjrt_hub.capture_native_logs():
        say(LINES)
        say("no end of line")
    print(heard[1].pjrt_hub_file, heard[1].pjrt_hub_line)
    show()


def test_severities_and_places_are_those_of_the_prefix():
    done = child(say_lines)
    assert records(done) == [
        ["INFO", "XLA service"],
        ["WARNING", "old plugin"],
        ["ERROR", "no device"],
        ["CRITICAL", "the end"],
        ["INFO", "plain words"],
        ["INFO", "no end of line"],
    ]
    assert done.stdout.splitlines()[0] == "xla/pjrt_api.cc 99"
    assert done.stderr == LINES + "no end of line"


def print_on_stderr(setup):
    if setup == "basicConfig":
        logging.basicConfig()
    else:
        logging.lastResort.setLevel(0)
    hear()
    with pjrt_hub.capture_native_logs():
        say("E0000 00:00:1.1 1 a.cc:1] once\n")
        print("of Python", file=sys.stderr)
        time.sleep(0.3)
    print("after", file=sys.stderr)
    say("natively after\n")
    show()


@pytest.mark.parametrize("setup", ["basicConfig", "lastResort"])
def test_a_handler_that_prints_on_stderr_does_not_hear_itself(setup):
    done = child(print_on_stderr, setup)
    assert records(done) == [["ERROR", "once"]]
    lines = done.stderr.splitlines()
    assert lines.count("of Python") == lines.count("after") == 1
    assert lines[-1] == "natively after"
    assert len(lines) <= 5


def crash(tee, end):
    hear()
    pjrt_hub.capture_native_logs(tee=tee)
    for count in range(20_000):
        say(f"line {count:06d}\n")
    if end > 0:
        os._exit(end)
    os.kill(os.getpid(), -end)


@pytest.mark.parametrize("tee", [True, False])
@pytest.mark.parametrize("end", [-signal.SIGSEGV, -signal.SIGKILL, 3])
def test_nothing_is_lost_in_a_crash(tee, end):
    done = child(crash, tee, int(end))
    assert done.returncode == end
    lines = done.stderr.splitlines()
    assert lines[-1] == "line 019999"
    if tee:
        assert lines == [f"line {count:06d}" for count in range(20_000)]


def be_quiet():
    hear()
    for word in ("one", "two"):
        with pjrt_hub.capture_native_logs(tee=False):
            say(f"{word}\n")
    show()


def test_without_a_tee_only_the_log_hears_again_and_again():
    done = child(be_quiet)
    assert records(done) == [["INFO", "one"], ["INFO", "two"]]
    assert done.stderr == ""


def flood():
    write = ctypes.PyDLL(None).write  # PyDLL keeps the GIL, so the thread cannot read
    words = b"x" * 4095 + b"\n"
    hear()
    with pjrt_hub.capture_native_logs():
        for _ in range(500):
            assert write(2, words, len(words)) == len(words)
    print(len(heard))


def test_a_flood_under_the_lock_of_the_interpreter_blocks_nobody():
    done = child(flood)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["500"]
    assert len(done.stderr) == 500 * 4096


def fork():
    hear()
    capture = pjrt_hub.capture_native_logs()
    pid = os.fork()
    if pid == 0:
        say("of the child\n")
        os._exit(0)
    os.waitpid(pid, 0)
    subprocess.run(["sh", "-c", "echo of a program >&2"], check=True)
    capture.close()
    capture.close()
    show()
    assert pjrt_hub.capture_native_logs() is pjrt_hub.capture_native_logs()
    atexit.register(say, "very late\n")


def test_a_fork_is_heard_and_the_end_of_a_process_ends_it():
    done = child(fork)
    assert records(done) == [["INFO", "of the child"], ["INFO", "of a program"]]
    assert done.stderr == "of the child\nof a program\nvery late\n"


def close_stderr():
    os.close(2)
    try:
        pjrt_hub.capture_native_logs()
    except OSError:
        print("no stderr")


def test_a_process_without_stderr_is_told():
    assert child(close_stderr).stdout == "no stderr\n"


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


def test_only_the_named_areas_print_where_there_is_a_stderr(capsys, monkeypatch):
    log.show(["store"])
    log.step("store", "from %s", "here")
    log.step("probe", "not seen")
    log.show(["store"])
    log.step("store", "once")
    log.show(["probe"])
    log.step("store", "not seen")
    assert capsys.readouterr() == ("", "pjrt-hub: from here\npjrt-hub: once\n")
    monkeypatch.setattr(sys, "stderr", None)
    log.show(["store"])
    log.step("store", "into nothing")


def test_a_record_has_attributes(caplog):
    caplog.set_level(logging.DEBUG, "pjrt_hub.contact")
    log.step("probe", "%s: PJRT API %s", "a.so", "0.81", path="a.so", name="kept apart")
    (record,) = caplog.records
    assert record.name == "pjrt_hub.contact"
    assert record.getMessage() == "a.so: PJRT API 0.81"
    assert (record.pjrt_hub_path, record.pjrt_hub_name) == ("a.so", "kept apart")


def test_nobody_who_listens_costs_nothing():
    # Without `site`, Python does not find an editable install.
    path = [str(Path(log.__file__).parents[2]), *sys.path]
    code = f"import sys; sys.path = {path!r}; from pjrt_hub.base import log; log.show(()); "
    code += "log.step('store', 'nothing'); assert 'logging' not in sys.modules"
    subprocess.run([sys.executable, "-S", "-c", code], check=True, timeout=60)
