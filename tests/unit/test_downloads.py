"""Downloads in child processes, interrupted or on a terminal; tests/faults has many at once."""

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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import finished
import wheels
from fetching import FILE, PIN, WHEEL, assert_empty, assert_whole, env, get
from loopback import Answer, Loopback

from pjrt_hub import errors
from pjrt_hub.base.host import HostTag
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact
from pjrt_hub.finding.store.pins import Pins

#: The first lines of a child's code, which make a pin and a cache.
BEGIN = """
import json, os, sys
from pathlib import Path
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact
from pjrt_hub.finding.store.transfer.fetch import lease, obtain
pin = Artifact.from_row(json.loads(sys.argv[1]), "test")
cache = Cache(Path(sys.argv[2]))
"""


def printed(server: Loopback, cache: Cache, code: str, pin: Artifact = PIN) -> str:
    """The output of such a child process, which must succeed."""
    given = [json.dumps(pin.as_row()), str(cache.root)]
    done = finished.python("-c", BEGIN + code, *given, seconds=120, env=child_env(server))
    assert done.returncode == 0, done.stderr
    return done.stdout


def child_env(server: Loopback) -> dict[str, str]:
    """An environment in which a child imports the same pjrt_hub as this process."""
    return {**env(server), "PYTHONPATH": str(Path(errors.__file__).parents[1])}


@contextmanager
def terminal(command: list[str], env: dict[str, str]) -> Iterator[tuple[subprocess.Popen, int]]:
    """Run a command on a terminal of 80 columns; returns the process and the terminal's file."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    process = subprocess.Popen(command, env={**env, "TERM": "xterm"}, **streams)
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(ours: int, word: str | None) -> str:
    """Read the terminal until a word appears, or to the end if no word is given."""
    drawn, decode = "", codecs.getincrementaldecoder("utf-8")().decode
    with suppress(OSError):  # a terminal's end gives this error
        while word is None or word not in drawn:
            drawn += decode(os.read(ours, 4096))
    return drawn


def test_a_terminal_shows_what_is_done_and_what_ctrl_c_keeps(server, cache, tmp_path):
    head = {"Content-Length": str(len(WHEEL)), "ETag": '"one"'}
    server.script(FILE, Answer(WHEEL[: 1 << 20], headers=head, stall_seconds=60))
    lock_path = tmp_path / "toy.lock"
    Pins(lock_path, (), (), (PIN._replace(host=HostTag.current()),)).write()
    given = {"PJRT_HUB_LOCK": str(lock_path), "PJRT_HUB_CACHE": str(cache.root)}
    command = [sys.executable, "-m", "pjrt_hub", "fetch", "toy"]
    with terminal(command, {**child_env(server), **given}) as (process, drawn):
        assert re.search(
            "Toy.Plugin.*looking.*fetching", read_until(drawn, "1.05 MB of 3.15 MB"), re.S
        )
        process.send_signal(signal.SIGINT)
        left = lines_left(read_until(drawn, None))
        assert process.wait(20) == 130
    told = r"interrupted: 1\.0\d MB of 3\.15 MB of Toy\.Plugin are kept; run it again to continue"
    assert re.fullmatch(told, "".join(left))
    assert_empty(cache)
    server.file(FILE, WHEEL)
    with terminal(command, {**child_env(server), **given}) as (process, drawn):
        first, *others = lines_left(read_until(drawn, None))
        assert process.wait(20) == 0
    assert server.requests[-1].start == 1 << 20
    assert_whole(cache)
    assert re.fullmatch(r"Toy\.Plugin: done, 3\.15 MB in \d+ s", first)
    assert others == [str(cache.lookup(PIN).library_path)]


def lines_left(drawn: str) -> list[str]:
    """The lines that are left on the terminal after the last erased line."""
    return drawn.rpartition("\x1b[2K")[2].splitlines()


WATCH = """
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
    with lease(pin, cache, env=os.environ) as entry:
        assert entry.library_path.exists()
assert seen == [], seen
"""


def test_a_warm_hit_makes_no_call_and_no_write(server, cache):
    server.file(FILE, WHEEL)
    printed(server, cache, WATCH)
    assert len(server.asked(FILE)) == 1


CACHED = """
with lease(pin, cache, env={}) as entry:
    print(entry.root)
for name in ("http", "httpx", "urllib.request", "pjrt_hub.finding.store.transfer.transport"):
    assert name not in sys.modules, name
"""


def test_what_is_in_the_cache_is_had_without_the_modules_of_the_network(server, cache, slept):
    server.file(FILE, WHEEL)
    entry = get(server, cache, slept)
    assert printed(server, cache, CACHED).strip() == str(entry.root)


MEMORY = """
def peak():
    # Of this program alone; what getrusage tells begins with that of whoever started it.
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak()
obtain(pin, cache, env=os.environ)
print(peak() - before)
"""


def test_the_peak_of_memory_does_not_follow_the_file(server, cache):
    members = {wheels.LIBRARY: bytes(96 << 20), wheels.SIBLING: b"helper"}
    body = wheels.build(members, stored=True)
    server.file(FILE, body)
    kib = int(printed(server, cache, MEMORY, wheels.pin(body, members)))
    assert 0 < kib < 64 << 10
