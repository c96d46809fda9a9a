"""From nothing to a result, as the README promises: no plugin is installed, so one is fetched."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import threading
from pathlib import Path

import pytest

HELLO = Path(__file__).parents[2] / "examples" / "hello.py"
pytestmark = [pytest.mark.network, pytest.mark.slow]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("main-job") / "cache"


@pytest.fixture(scope="module")
def fetched(call, environment, cache):
    """Fetch the plugin into the cache through a pipe, and give its path."""
    done = call(environment / "pjrt-hub", "get", "cpu", PJRT_HUB_CACHE=cache)
    [line] = done.stderr.splitlines()
    assert "no plugin for 'cpu' is installed; fetching lammps-jax-pjrt-cpu" in line
    return Path(done.stdout.strip())


def test_without_the_network_it_says_what_to_do(call, environment, tmp_path):
    done = call(
        environment / "pjrt-hub", "get", "cpu", "--offline", status=4, PJRT_HUB_CACHE=tmp_path
    )
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert "\n\nhint: " in done.stderr


def test_the_example_runs_from_the_cache(call, environment, cache, fetched):
    done = call(environment / "python", HELLO, PJRT_HUB_CACHE=cache)
    assert "tanh(a * b + 1) = [0.7616" in done.stdout
    assert "fetching" not in done.stderr


def test_a_warm_cache_is_only_read(call, environment, cache, fetched):
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    done = call(environment / "pjrt-hub", "get", "cpu", "--offline", PJRT_HUB_CACHE=cache)
    assert done.stdout.strip() == str(fetched)
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before


def test_a_changed_byte_is_found_and_never_loaded(call, environment, cache, fetched):
    command = environment / "pjrt-hub"
    call(command, "cache", "verify", PJRT_HUB_CACHE=cache)
    fetched.chmod(0o644)
    with fetched.open("r+b") as file:
        byte = file.read(1001)[-1]
        file.seek(1000)
        file.write(bytes([byte ^ 1]))
    audits = call(command, "cache", "verify", "--json", status=4, PJRT_HUB_CACHE=cache).stdout
    assert [audit["ok"] for audit in json.loads(audits)] == [False]
    call(command, "get", "cpu", "--offline", status=4, PJRT_HUB_CACHE=cache)
    call(command, "get", "cpu", PJRT_HUB_CACHE=cache)
    call(command, "cache", "verify", PJRT_HUB_CACHE=cache)


def test_a_terminal_sees_what_is_done(environment, tmp_path):
    shown = bytearray()
    ours, theirs = pty.openpty()

    def read():
        while True:
            try:
                shown.extend(os.read(ours, 4096))
            except OSError:  # EIO: the other end is closed
                return

    reader = threading.Thread(target=read)
    reader.start()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "PJRT_HUB_CACHE": str(tmp_path)}
    try:
        done = subprocess.run(
            [environment / "pjrt-hub", "get", "cpu"],
            stdout=subprocess.PIPE,
            stderr=theirs,
            timeout=300,
            env=env,
        )
    finally:
        os.close(theirs)
        reader.join(timeout=10)
        os.close(ours)
    assert done.returncode == 0, shown.decode(errors="replace")
    assert Path(done.stdout.decode().strip()).is_file()
    assert b"looking" in shown
    assert b"lammps-jax-pjrt-cpu: done, 62.7 MB in " in shown
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l")  # the cursor is shown again
