"""kill -9 at any point of a fetch: the next one finds the old entry or the new one, and heals."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from forks import COMMIT, Forks
from toy import Toy

from pjrt_hub.store.cache import Cache

#: With this rest after each 64 KiB a download takes about as long as the rest of a fetch.
PACE_SECONDS = 0.001


def test_random_points(
    forks: Forks,
    toy: Toy,
    cache: Cache,
    given: dict,
    tally: Callable[[str], None],
    rounds: Callable[[int, int], int],
) -> None:
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
        fork = forks.fork("fetch", **given).go()
        time.sleep(draw.uniform(0, whole))
        fork.kill()
        if fork.ended().signal != signal.SIGKILL:
            assert toy.audit(cache) == []
            continue  # it had ended before
        points += 1
        came = [path.stat().st_size for path in cache.root.glob("v1/partial/*/archive")]
        cuts += bool(came) and came[0] < len(toy.wheel)
        wrong += toy.audit(cache) + toy.heal(cache)
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
    wrong, killed = [], 0
    for name, n in points:
        cache.clear()
        fork = forks.fork("fetch", **given)
        fork.trace("-e", f"trace={name}", "-e", f"inject={name}:signal=KILL:when={n}")
        killed += fork.go().ended().signal == signal.SIGKILL
        wrong += [f"{name} {n}: {each}" for each in toy.audit(cache) + toy.heal(cache)]
    tally(
        f"kill -9 at every commit system call: {killed} of {len(points)} killed, "
        f"{len(wrong)} wrong ({len(calls)} kinds of call)"
    )
    assert wrong == []
    assert killed >= len(points) * 0.9
    assert {"rename", "fsync", "mkdir", "flock", "write"} <= set(calls)
