"""kill -9 at any point of a fetch: the next one finds the old entry or the new one, and heals."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from forks import COMMIT, Forks
from loopback import Answer
from toy import Toy

from pjrt_hub.finding.store.cache.cache import Cache

#: With this rest after each 64 KiB a download takes about as long as the rest of a fetch.
PACE_SECONDS = 0.001
#: With this one it lasts until it is cut.
SLOW_SECONDS = 0.1


def test_random_points(
    forks: Forks,
    toy: Toy,
    cache: Cache,
    given: dict,
    tally: Callable[[str], None],
    rounds: Callable[[int, int], int],
) -> None:
    """At any moment of a fetch, and every second time in its download."""
    toy.server.pace_seconds = PACE_SECONDS
    begun = time.monotonic()
    assert forks.run("fetch", **given).signal == 0
    whole = time.monotonic() - begun
    draw, wanted, points, cuts, wrong = random.Random(3), rounds(60, 200), 0, 0, []
    toy.server.sent = 0
    fetches = 0
    while points < wanted:
        cache.clear()
        fetches += 1
        in_download = points % 2 == 1
        toy.server.pace_seconds = SLOW_SECONDS if in_download else PACE_SECONDS
        fork = forks.fork("fetch", **given).go()
        if in_download:
            until_bytes_come(cache)
        time.sleep(draw.uniform(0, 0.5 if in_download else whole))
        fork.kill()
        ended = fork.ended()
        toy.server.pace_seconds = 0  # not before: it would send on to the end
        if ended.signal != signal.SIGKILL:
            assert toy.audit(cache) == []
            continue  # it had ended before
        points += 1
        kept, asked = nbytes_kept(cache), len(toy.server.requests)
        wrong += toy.audit(cache) + toy.heal(cache)
        if 0 < kept < len(toy.wheel):
            cuts += 1
            assert kept in [request.start for request in toy.server.requests[asked:]]
    ratio = toy.server.sent / (fetches * len(toy.wheel))
    tally(
        f"kill -9 at random points: {points - len(wrong)} of {points} healed, {len(wrong)} wrong, "
        f"0 clean-ups by hand, {cuts} in a download, {ratio:.3f}x bytes"
    )
    assert wrong == []
    assert cuts > points // 5
    assert ratio <= 1.05


def test_every_commit_call(
    strace: str,
    forks: Forks,
    toy: Toy,
    cache: Cache,
    given: dict,
    tmp_path: Path,
    tally: Callable[[str], None],
    rounds: Callable[[int, int], int],
) -> None:
    calls = forks.calls(tmp_path / "log", "fetch", COMMIT, **given)
    points = [(name, n) for name, count in calls.items() for n in range(1, count + 1)]
    points = random.Random(19).sample(points, rounds(min(60, len(points)), len(points)))
    wrong, killed = [], 0
    for name, n in points:
        cache.clear()
        fork = forks.fork("fetch", **given).inject("signal=KILL", name, n)
        killed += fork.go().ended().signal == signal.SIGKILL
        wrong += [f"{name} {n}: {each}" for each in toy.audit(cache) + toy.heal(cache)]
    tally(
        f"kill -9 at commit system calls: {killed} of {len(points)} killed, "
        f"{len(wrong)} wrong ({len(calls)} kinds of call)"
    )
    assert wrong == []
    assert killed >= len(points) * 0.9
    assert {"rename", "fsync", "mkdir", "flock", "write"} <= set(calls)


def test_a_dead_owner_whose_parent_has_not_waited(cache: Cache, toy: Toy) -> None:
    pid = os.fork()
    if pid == 0:
        with cache.workspace(toy.pin) as folder:
            (folder / "archive").write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    while Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        time.sleep(0.005)
    try:
        with cache.workspace(toy.pin) as folder:
            assert (folder / "archive").read_bytes() == b"half"
    finally:
        os.waitpid(pid, 0)


def test_ctrl_c_in_a_download(
    forks: Forks, toy: Toy, cache: Cache, given: dict, tally: Callable[[str], None]
) -> None:
    """At twenty moments of a download; every other server has fallen silent by then."""
    draw, longest, wrong = random.Random(17), 0.0, []
    half = len(toy.wheel) // 2
    silent = Answer(
        toy.wheel[:half],
        headers={"Content-Length": str(len(toy.wheel)), "ETag": '"one"'},
        stall_seconds=60,
    )
    honest = toy.server.routes[toy.path]
    for number in range(20):
        cache.clear()
        toy.server.pace_seconds = SLOW_SECONDS if number % 2 else 0
        toy.server.routes[toy.path] = honest if number % 2 else lambda request: silent
        fork = forks.fork("fetch", **given).go()
        until_bytes_come(cache)
        time.sleep(draw.uniform(0, 0.6))
        begun = time.monotonic()
        fork.kill(signal.SIGINT)
        ended = fork.ended()
        longest = max(longest, time.monotonic() - begun)
        toy.server.routes[toy.path] = honest
        kept = nbytes_kept(cache)
        locked = [path.name for path in cache.root.glob("v1/locks/**/*") if is_locked(path)]
        if (ended.error, bool(kept), locked) != ("KeyboardInterrupt", True, []):
            wrong.append(f"{ended}: {kept} bytes kept, locked: {locked}")
        toy.server.pace_seconds = 0
        wrong += toy.heal(cache)
    tally(f"Ctrl-C in a download: 20 of 20, {len(wrong)} wrong, after {longest:.2f} s at most")
    assert wrong == []
    assert longest < 2  # the bar is 0.5, on a machine that does nothing else


def is_locked(path: Path) -> bool:
    """Whether somebody holds a lock file."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def nbytes_kept(cache: Cache) -> int:
    """How many bytes of a download are there."""
    return sum(path.stat().st_size for path in cache.root.glob("v1/partial/*/archive"))


def until_bytes_come(cache: Cache) -> None:
    """Wait for the first bytes of a download that lasts."""
    deadline = time.monotonic() + 30
    while not nbytes_kept(cache):
        assert time.monotonic() < deadline
        time.sleep(0.005)
