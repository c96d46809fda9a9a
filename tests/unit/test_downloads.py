"""Downloads by several processes, killed, interrupted, watched: one download, and right bytes."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import wheels
from fetching import (
    FILE,
    PIN,
    WHEEL,
    Slept,
    assert_empty,
    assert_whole,
    env,
    get,
)
from loopback import Answer, Loopback, Request

from pjrt_hub import errors
from pjrt_hub.base.host import HostTag
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.pins import Pins

CHILD = """
import os, sys
sys.path.insert(0, {tests!r})
import wheels
from pathlib import Path
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.transfer.fetch import obtain
members = wheels.contents({nbytes})
pin = wheels.pin(wheels.build(members), members)
cache = Cache(Path({root!r}))
{action}
"""


def child(cache: Cache, action: str, nbytes: int = 3 << 20) -> list[str]:
    """A process that fetches for itself."""
    tests = str(Path(__file__).parent)
    code = CHILD.format(tests=tests, nbytes=nbytes, root=str(cache.root), action=action)
    return [sys.executable, "-c", code]


def child_env(server: Loopback) -> dict[str, str]:
    """The child imports the same pjrt_hub as this process does."""
    return {**env(server), "PYTHONPATH": str(Path(errors.__file__).parents[1])}


def test_ctrl_c_keeps_the_partial_and_frees_the_lock(
    server: Loopback, cache: Cache, slept: Slept
) -> None:
    head = {"Content-Length": str(len(WHEEL)), "ETag": '"one"'}
    server.script(FILE, Answer(WHEEL[: 1 << 20], headers=head, stall_seconds=60))
    process = subprocess.Popen(
        child(cache, "obtain(pin, cache, env=os.environ)"),
        env=child_env(server),
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 60
        while not any(p.stat().st_size == 1 << 20 for p in cache.root.glob("v1/partial/*/archive")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=20)
    finally:
        process.kill()
    assert told.endswith(
        b"KeyboardInterrupt\n"
        b"interrupted: 1.05 MB of 3.15 MB of Toy.Plugin are kept; run it again to continue\n"
    )
    assert_empty(cache)
    server.file(FILE, WHEEL)
    server.requests.clear()
    get(server, cache, slept)
    assert [request.start for request in server.asked(FILE)] == [1 << 20]
    assert_whole(cache)


class Terminal:
    """A command on a terminal of 80 columns, and all that it wrote there."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            command, env={**env, "TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self.drawn = ""

    def read_until(self, word: str | None) -> None:
        """Read until a word was drawn; without one, to the end."""
        decode = codecs.getincrementaldecoder("utf-8")().decode
        with suppress(OSError):  # which is how the end of a terminal reads
            while word is None or word not in self.drawn:
                self.drawn += decode(os.read(self._ours, 4096))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def test_a_terminal_shows_what_is_done_and_what_ctrl_c_keeps(
    server: Loopback, cache: Cache, tmp_path: Path
) -> None:
    head = {"Content-Length": str(len(WHEEL)), "ETag": '"one"'}
    server.script(FILE, Answer(WHEEL[: 1 << 20], headers=head, stall_seconds=60))
    lock_path = tmp_path / "toy.lock"
    Pins(lock_path, (), (), (PIN._replace(host=HostTag.current()),)).write()
    given = {"PJRT_HUB_LOCK": str(lock_path), "PJRT_HUB_CACHE": str(cache.root)}
    command = [sys.executable, "-m", "pjrt_hub", "fetch", "toy"]
    terminals = [Terminal(command, {**child_env(server), **given})]
    try:
        terminals[0].read_until("1.05 MB of 3.15 MB")
        assert re.search("Toy.Plugin.*looking.*fetching", terminals[0].drawn, re.S)
        terminals[0].process.send_signal(signal.SIGINT)
        terminals[0].read_until(None)
        server.file(FILE, WHEEL)
        terminals.append(Terminal(command, {**child_env(server), **given}))
        terminals[1].read_until(None)
        assert [each.process.wait(20) for each in terminals] == [130, 0]
    finally:
        for each in terminals:
            each.close()
    left = [each.drawn.rpartition("\x1b[2K")[2].splitlines() for each in terminals]
    told = r"interrupted: 1\.0\d MB of 3\.15 MB of Toy\.Plugin are kept; run it again to continue"
    assert re.fullmatch(told, "".join(left[0]))
    assert server.requests[-1].start == 1 << 20
    entry = cache.lookup(PIN)
    assert entry is not None
    assert re.fullmatch(r"Toy\.Plugin: done, 3\.15 MB in \d+ s", left[1][0])
    assert left[1][1:] == [str(entry.library_path)]


def test_a_killed_download_is_adopted(server: Loopback, cache: Cache, slept: Slept) -> None:
    head = {"Content-Length": str(len(WHEEL)), "ETag": '"one"'}
    server.script(FILE, Answer(WHEEL[: 1 << 20], headers=head, stall_seconds=60))
    process = subprocess.Popen(
        child(cache, "obtain(pin, cache, env=os.environ)"), env=child_env(server)
    )
    try:
        deadline = time.monotonic() + 60
        while not any(p.stat().st_size == 1 << 20 for p in cache.root.glob("v1/partial/*/archive")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait(20)
    server.file(FILE, WHEEL)
    server.requests.clear()
    get(server, cache, slept)
    assert [request.start for request in server.asked(FILE)] == [1 << 20]
    assert_whole(cache)
    assert list(cache.root.glob("v1/partial/*")) == []


def test_eight_processes_make_one_download(server: Loopback, cache: Cache) -> None:
    server.file(FILE, WHEEL)
    action = "print(obtain(pin, cache, env=os.environ).library_path)"
    processes = [
        subprocess.Popen(
            child(cache, action), env=child_env(server), stdout=subprocess.PIPE, text=True
        )
        for _ in range(8)
    ]
    try:
        printed = {process.communicate(timeout=120)[0].strip() for process in processes}
    finally:
        for process in processes:
            process.kill()
    assert printed == {str(cache.entry_root(PIN) / wheels.LIBRARY)}
    assert len(server.asked(FILE)) == 1
    assert_whole(cache)


def test_without_working_locks_it_is_correct_and_only_slower(
    server: Loopback, cache: Cache, slept: Slept, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.file(FILE, WHEEL)
    gate = threading.Barrier(6)

    def answer(request: Request) -> Answer:
        gate.wait(30)  # every downloader is in the middle of its own download
        return Answer(WHEEL)

    server.routes[FILE] = answer
    monkeypatch.setattr("fcntl.flock", lambda *args: None)
    # As if each thread was a process of its own.
    monkeypatch.setattr(
        "pjrt_hub.finding.store.transfer.flight.share", lambda key, work, **limits: work()
    )
    with ThreadPoolExecutor(6) as pool:
        found = [pool.submit(get, server, cache, slept) for _ in range(6)]
    assert {each.result().root for each in found} == {cache.entry_root(PIN)}
    assert len(server.asked(FILE)) == 6
    assert_whole(cache)


WATCH = """
import pjrt_hub.finding.store.transfer.fetch
obtain(pin, cache, env=os.environ)
seen = []
def watch(event, args):
    if event.partition(".")[0] in ("socket", "subprocess", "shutil") or event in (
        "os.mkdir", "os.rename", "os.remove", "os.chmod", "os.utime"
    ):
        seen.append(event)
    if event == "open" and (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        seen.append(args)
sys.addaudithook(watch)
for _ in range(2):
    assert obtain(pin, cache, env=os.environ).library_path.exists()
    with pjrt_hub.finding.store.transfer.fetch.lease(pin, cache, env=os.environ) as entry:
        assert entry.library_path.exists()
assert seen == [], seen
"""


def test_a_warm_hit_makes_no_call_and_no_write(server: Loopback, cache: Cache) -> None:
    server.file(FILE, WHEEL)
    done = subprocess.run(
        child(cache, WATCH), env=child_env(server), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert len(server.asked(FILE)) == 1


CACHED = """
import json, sys
from pathlib import Path
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact
from pjrt_hub.finding.store.transfer.fetch import lease
pin = Artifact.from_row(json.loads({row!r}), "test")
with lease(pin, Cache(Path({root!r})), env={{}}) as entry:
    print(entry.root)
for name in ("http", "httpx", "urllib.request", "pjrt_hub.finding.store.transfer.transport"):
    assert name not in sys.modules, name
"""


def test_what_is_in_the_cache_is_had_without_the_modules_of_the_network(
    server: Loopback, cache: Cache, slept: Slept
) -> None:
    server.file(FILE, WHEEL)
    entry = get(server, cache, slept)
    code = CACHED.format(row=json.dumps(PIN.as_row()), root=str(cache.root))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=child_env(server),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(entry.root)


MEMORY = """
import json, os
from pathlib import Path
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact
from pjrt_hub.finding.store.transfer.fetch import obtain
pin = Artifact.from_row(json.loads({row!r}), "test")
def peak():
    # Of this program alone; what getrusage tells begins with that of whoever started it.
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak()
obtain(pin, Cache(Path({root!r})), env=os.environ)
print(peak() - before)
"""


def test_the_peak_of_memory_does_not_follow_the_file(server: Loopback, tmp_path: Path) -> None:
    members = {wheels.LIBRARY: bytes(96 << 20), wheels.SIBLING: b"helper"}
    body = wheels.build(members, stored=True)
    server.file(FILE, body)
    row = json.dumps(wheels.pin(body, members).as_row())
    done = subprocess.run(
        [sys.executable, "-c", MEMORY.format(row=row, root=str(tmp_path / "cache"))],
        env=child_env(server),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert 0 < int(done.stdout) < 64 << 10  # KiB


def test_threads_that_replace_one_file_publish_whole_ones(tmp_path):
    path = tmp_path / "reading.json"
    contents = [bytes([number]) * (1 << 16) for number in range(4)]

    def write(content: bytes) -> None:
        for _ in range(20):
            disk.replace(path, content)
            assert path.read_bytes() in contents

    with ThreadPoolExecutor(len(contents)) as pool:
        list(pool.map(write, contents))
    assert list(tmp_path.iterdir()) == [path]
