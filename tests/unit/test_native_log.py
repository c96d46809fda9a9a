"""Native words on stderr as records: severities, nothing lost, nothing twice, nobody blocked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import pjrt_hub

BEGIN = """
import json, logging, os, signal, subprocess, sys, time
import pjrt_hub

records = []

class Keep(logging.Handler):
    def emit(self, record):
        records.append([record.levelname, record.getMessage()])

native = logging.getLogger("pjrt_hub.native")
native.setLevel(logging.DEBUG)
native.addHandler(Keep())

def say(text):
    os.write(2, text.encode())

def show():
    print(json.dumps(records))
"""


def child(script: str, timeout: float = 60):
    env = {**os.environ, "PYTHONPATH": str(Path(pjrt_hub.__file__).parents[1])}
    return subprocess.run(
        # From 3.12 on Python warns of a fork beside threads.
        [sys.executable, "-W", "ignore:This process", "-c", BEGIN + textwrap.dedent(script)],
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def records(done) -> list[list[str]]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


LINES = """\
I0000 00:00:1717171717.123456    1234 service.cc:148] XLA service
W0607 12:00:00.000001 77 pjrt_api.cc:99] old plugin
2024-06-07 12:00:00.000001: E external/xla/xla/stream.cc:12] no device
F0000 00:00:1717171717.123456 1 a.cc:1] the end
plain words
"""


def test_severities_are_those_of_the_prefix():
    script = f"""
    with pjrt_hub.capture_native_logs():
        say({LINES!r})
        say("no end of line")
    show()
    """
    done = child(script)
    assert records(done) == [
        ["INFO", "XLA service"],
        ["WARNING", "old plugin"],
        ["ERROR", "no device"],
        ["CRITICAL", "the end"],
        ["INFO", "plain words"],
        ["INFO", "no end of line"],
    ]
    assert done.stderr == LINES + "no end of line"


def test_the_place_is_an_attribute():
    script = """
    class Place(logging.Handler):
        def emit(self, record):
            records.append([record.pjrt_hub_file, record.pjrt_hub_line])
    native.addHandler(Place())
    with pjrt_hub.capture_native_logs():
        say("W0607 12:00:00.000001 77 xla/pjrt_api.cc:99] old\\n")
    show()
    """
    assert records(child(script))[1] == ["xla/pjrt_api.cc", 99]


@pytest.mark.parametrize("setup", ["logging.basicConfig()", "logging.lastResort.setLevel(0)"])
def test_a_handler_that_prints_on_stderr_does_not_hear_itself(setup):
    script = f"""
    {setup}
    with pjrt_hub.capture_native_logs():
        say("E0000 00:00:1.1 1 a.cc:1] once\\n")
        print("of Python", file=sys.stderr)
        time.sleep(0.3)
    print("after", file=sys.stderr)
    say("natively after\\n")
    show()
    """
    done = child(script)
    assert records(done) == [["ERROR", "once"]]
    lines = done.stderr.splitlines()
    assert lines.count("of Python") == lines.count("after") == 1
    assert lines[-1] == "natively after"
    assert len(lines) <= 5


@pytest.mark.parametrize("tee", [True, False])
@pytest.mark.parametrize(
    "end", ["os.kill(os.getpid(), signal.SIGSEGV)", "os.kill(os.getpid(), 9)", "os._exit(3)"]
)
def test_nothing_is_lost_in_a_crash(tee, end):
    script = f"""
    log = pjrt_hub.capture_native_logs(tee={tee})
    for count in range(20_000):
        say(f"line {{count:06d}}\\n")
    {end}
    """
    done = child(script)
    assert done.returncode in (-signal.SIGSEGV, -9, 3)
    lines = done.stderr.splitlines()
    assert lines[-1] == "line 019999"
    if tee:
        assert lines == [f"line {count:06d}" for count in range(20_000)]


def test_without_a_tee_only_the_log_hears():
    script = """
    with pjrt_hub.capture_native_logs(tee=False):
        say("quiet\\n")
    show()
    """
    done = child(script)
    assert records(done) == [["INFO", "quiet"]]
    assert done.stderr == ""


def test_a_flood_under_the_lock_of_the_interpreter_blocks_nobody():
    script = """
    import ctypes
    write = ctypes.PyDLL(None).write  # keeps the lock, so that the thread cannot read
    words = b"x" * 4095 + b"\\n"
    with pjrt_hub.capture_native_logs():
        for _ in range(500):
            assert write(2, words, len(words)) == len(words)
    print(len(records))
    """
    done = child(script)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["500"]
    assert len(done.stderr) == 500 * 4096


def test_a_fork_is_heard_and_ends_by_itself():
    script = """
    log = pjrt_hub.capture_native_logs()
    pid = os.fork()
    if pid == 0:
        say("of the child\\n")
        os._exit(0)
    os.waitpid(pid, 0)
    subprocess.run(["sh", "-c", "echo of a program >&2"], check=True)
    log.close()
    log.close()
    show()
    """
    done = child(script)
    assert records(done) == [["INFO", "of the child"], ["INFO", "of a program"]]
    assert done.stderr == "of the child\nof a program\n"


def test_the_end_of_the_process_ends_it():
    done = child("""
    pjrt_hub.capture_native_logs()
    assert pjrt_hub.capture_native_logs() is pjrt_hub.capture_native_logs()
    import atexit
    atexit.register(say, "very late\\n")
    """)
    assert (done.returncode, done.stderr) == (0, "very late\n")


def test_it_can_begin_again():
    script = """
    for word in ("one", "two"):
        with pjrt_hub.capture_native_logs():
            say(f"{word}\\n")
    show()
    """
    assert records(child(script)) == [["INFO", "one"], ["INFO", "two"]]


def test_a_process_without_stderr_is_told():
    done = child("""
    os.close(2)
    try:
        pjrt_hub.capture_native_logs()
    except OSError:
        print("no stderr")
    """)
    assert done.stdout == "no stderr\n"
