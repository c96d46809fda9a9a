"""Many at once for one plugin: one download, and right bytes even where locks do nothing."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from forks import Forks
from loopback import Answer, Request
from test_kills import SLOW_SECONDS, until_bytes_come
from toy import Toy

from pjrt_hub.finding.store.cache.cache import Cache

Tally = Callable[[str], None]
#: Slow enough that everybody asks while the first one downloads.
PACE_SECONDS = 0.01


def at_once(forks: Forks, count: int, walk: str, **given: object) -> list[str]:
    """Start that many processes together; give their errors."""
    ready = [forks.fork(walk, **given) for _ in range(count)]
    for fork in ready:
        fork.go()
    everybody = [fork.ended() for fork in ready]
    return [ended.told or f"signal {ended.signal}" for ended in everybody if not ended.value]


def test_32_processes(forks: Forks, toy: Toy, cache: Cache, given: dict, tally: Tally) -> None:
    toy.server.pace_seconds = PACE_SECONDS
    errors = at_once(forks, 32, "fetch", **given)
    asked = len(toy.server.asked(toy.path))
    tally(f"32 processes at once: {asked} download, {len(errors)} errors")
    assert errors == []
    assert asked == 1
    assert toy.audit(cache) == []


def test_64_threads(forks: Forks, toy: Toy, cache: Cache, given: dict, tally: Tally) -> None:
    toy.server.pace_seconds = PACE_SECONDS
    ended = forks.run("fetch_in_threads", count=64, **given)
    asked = len(toy.server.asked(toy.path))
    tally(f"64 threads at once: {asked} download, {len(ended.error)} errors")
    assert ended.value == [str(cache.entry_root(toy.pin) / toy.pin.library)], ended.told
    assert asked == 1
    assert toy.audit(cache) == []


def test_32_processes_without_locks(
    forks: Forks,
    toy: Toy,
    cache: Cache,
    given: dict,
    tally: Tally,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = toy.server.routes[toy.path]

    def answer(request: Request) -> Answer:
        """Let the first one wait, for less than its patience, until there is a second."""
        deadline = time.monotonic() + 10
        while len(toy.server.requests) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        return honest(request)

    monkeypatch.setitem(toy.server.routes, toy.path, answer)
    for kind in ("silent", "ENOLCK", "ENOSYS"):
        cache.clear()
        toy.server.requests.clear()
        errors = at_once(forks, 32, "fetch_without_locks", kind=kind, **given)
        asked = len(toy.server.asked(toy.path))
        wrong = toy.audit(cache)
        tally(
            f"32 processes at once, locks that do nothing ({kind}): {asked} downloads, "
            f"{len(wrong)} corrupt, {len(errors)} errors"
        )
        assert errors == []
        assert wrong == []
        assert asked > 1
        assert len(cache.entries()) == 1


def test_a_stopped_holder_delays_and_does_not_block(
    forks: Forks, toy: Toy, cache: Cache, given: dict, tally: Tally
) -> None:
    toy.server.pace_seconds = SLOW_SECONDS
    holder = forks.fork("fetch", **given).go()
    until_bytes_come(cache)
    holder.kill(signal.SIGSTOP)
    toy.server.pace_seconds = 0
    ended = forks.run("fetch", lock_seconds=0.5, **given)
    assert not ended.error, ended.told
    assert toy.audit(cache) == []
    holder.kill(signal.SIGCONT)
    assert holder.ended().value == ended.value
    assert toy.audit(cache) == []
    tally("a holder of the lock that is stopped: 1 of 1 passed by, 0 corrupt")


def test_a_killed_holder_frees_the_lock(
    forks: Forks, toy: Toy, cache: Cache, given: dict, tally: Tally
) -> None:
    toy.server.pace_seconds = SLOW_SECONDS
    holder = forks.fork("fetch", **given).go()
    until_bytes_come(cache)
    waiting = forks.fork("fetch", **given).go()
    time.sleep(0.2)
    holder.kill()
    assert holder.ended().signal == signal.SIGKILL
    toy.server.pace_seconds = 0
    ended = waiting.ended()
    assert not ended.error, ended.told
    assert [request.start > 0 for request in toy.server.asked(toy.path)] == [False, True]
    assert toy.audit(cache) == []
    tally("a holder of the lock that is killed: 1 of 1 continued by the next")


@pytest.mark.parametrize("goes_on", [False, True], ids=["that leaves", "that goes on"])
def test_a_fork_in_a_download_touches_nothing(
    forks: Forks,
    toy: Toy,
    cache: Cache,
    given: dict,
    tally: Tally,
    rounds: Callable,
    goes_on: bool,
) -> None:
    draw, states, wrong = random.Random(11), rounds(5, 25), []
    for _ in range(states):
        cache.clear()
        nbytes = draw.randrange(len(toy.wheel))
        ended = forks.run("fetch_and_fork", nbytes=nbytes, goes_on=goes_on, **given)
        wrong += [ended.told] if ended.error else []
        wrong += toy.audit(cache) + toy.heal(cache)
    asked = len(toy.server.asked(toy.path))
    how = "that goes on" if goes_on else "that leaves"
    tally(f"a fork {how} in the middle of a download: {states} of {states}, {len(wrong)} wrong")
    assert wrong == []
    assert asked == states


def test_many_ask_for_what_many_load_and_kill(
    forks: Forks, toys: tuple[Toy, Toy], cache: Cache, tally: Tally, rounds: Callable
) -> None:
    """Fetch of two releases, evictions and kills, all at random and at once."""
    draw, wrong, count = random.Random(13), [], rounds(120, 1000)

    def one(number: int) -> list[str]:
        toy = toys[number % 2]
        walk = draw.choice(["fetch", "fetch", "fetch", "clear"])
        given = toy.given(cache.root)
        fork = forks.fork(walk, **given).go()
        if draw.random() < 0.4:
            time.sleep(draw.uniform(0, 0.2))
            fork.kill()
        ended = fork.ended()
        return [ended.told] if ended.error else []

    with ThreadPoolExecutor(6) as pool:
        for told in pool.map(one, range(count)):
            wrong += told
    for toy in toys:
        wrong += toy.audit(cache)
        toy.obtain(cache)
    for toy in toys:  # there is an entry now: a fetch leaves alone what other releases left
        wrong += toy.heal(cache)
    tally(f"random fetches, evictions and kills, 6 at once: {count} with {len(wrong)} wrong")
    assert wrong == []
