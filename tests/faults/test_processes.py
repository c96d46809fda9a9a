"""Many processes want one plugin: one download, and right bytes, whatever others do meanwhile.

Locks that do nothing, eviction, upgrade and damage: no SIGBUS, no error, never a wrong byte.
"""

import json
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import wheels
from forks import Fork, Forks
from loopback import Answer, Request
from test_kills import SLOW_SECONDS, until_bytes_come
from toy import Bench, Rounds, Tally, Toy

from pjrt_hub.finding.store.cache.cache import Cache

#: A pause of the server so long that everybody asks while the first one downloads.
PACE_SECONDS = 0.01


def at_once(bench: Bench, count: int, walk: str = "fetch", **more: object) -> list[str]:
    """Start that many processes together; give their errors."""
    ready = [bench.fork(walk, **more) for _ in range(count)]
    for fork in ready:
        fork.go()
    everybody = [fork.ended() for fork in ready]
    return [ended.told or f"signal {ended.signal}" for ended in everybody if not ended.value]


def test_32_processes(bench: Bench, tally: Tally) -> None:
    bench.server.pace_seconds = PACE_SECONDS
    errors = at_once(bench, 32)
    tally(f"32 processes at once: {bench.asked()} download, {len(errors)} errors")
    assert errors == []
    assert bench.asked() == 1
    assert bench.audit() == []


def test_64_threads(bench: Bench, tally: Tally) -> None:
    bench.server.pace_seconds = PACE_SECONDS
    ended = bench.run("fetch_in_threads", count=64)
    tally(f"64 threads at once: {bench.asked()} download, {len(ended.error)} errors")
    pin = bench.toy.pin
    assert ended.value == [str(bench.cache.layout.entry_root(pin) / pin.library)], ended.told
    assert bench.asked() == 1
    assert bench.audit() == []


@pytest.mark.parametrize("kind", ["silent", "ENOLCK", "ENOSYS"])
def test_32_processes_without_locks(bench: Bench, tally: Tally, monkeypatch, kind: str) -> None:
    server, path = bench.server, bench.toy.path
    honest = server.routes[path]

    def answer(request: Request) -> Answer:
        """Let the first request wait, for less than its patience, until there is a second one."""
        deadline = time.monotonic() + 10
        while len(server.requests) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        return honest(request)

    monkeypatch.setitem(server.routes, path, answer)
    errors, wrong = at_once(bench, 32, "fetch_without_locks", kind=kind), bench.audit()
    tally(
        f"32 processes at once, locks that do nothing ({kind}): {bench.asked()} downloads, "
        f"{len(wrong)} corrupt, {len(errors)} errors"
    )
    assert errors == []
    assert wrong == []
    assert bench.asked() > 1
    assert len(bench.cache.entries()) == 1


@pytest.fixture
def holder(bench: Bench) -> Fork:
    """A fork in the middle of a slow download."""
    bench.server.pace_seconds = SLOW_SECONDS
    fork = bench.fork().go()
    until_bytes_come(bench.cache)
    return fork


def test_a_stopped_holder_delays_and_does_not_block(bench, holder: Fork, tally: Tally) -> None:
    holder.kill(signal.SIGSTOP)
    bench.server.pace_seconds = 0
    ended = bench.run(lock_seconds=0.5)
    assert not ended.error, ended.told
    assert bench.audit() == []
    holder.kill(signal.SIGCONT)
    assert holder.ended().value == ended.value
    assert bench.audit() == []
    tally("a holder of the lock that is stopped: 1 of 1 passed by, 0 corrupt")


def test_a_killed_holder_frees_the_lock(bench: Bench, holder: Fork, tally: Tally) -> None:
    waiting = bench.fork().go()
    time.sleep(0.2)
    holder.kill()
    assert holder.ended().signal == signal.SIGKILL
    bench.server.pace_seconds = 0
    ended = waiting.ended()
    assert not ended.error, ended.told
    starts = [request.start for request in bench.server.asked(bench.toy.path)]
    assert [start > 0 for start in starts] == [False, True]
    assert bench.audit() == []
    tally("a holder of the lock that is killed: 1 of 1 continued by the next")


@pytest.mark.parametrize("how", ["that leaves", "that goes on"])
def test_a_fork_in_a_download_touches_nothing(bench, tally: Tally, rounds: Rounds, how) -> None:
    draw, states, wrong = random.Random(11), rounds(5, 25), []
    for _ in range(states):
        bench.cache.clear()
        nbytes, goes_on = draw.randrange(len(bench.toy.wheel)), how == "that goes on"
        ended = bench.run("fetch_and_fork", nbytes=nbytes, goes_on=goes_on)
        wrong += [ended.told] if ended.error else []
        wrong += bench.audit() + bench.heal()
    tally(f"a fork {how} in the middle of a download: {states} of {states}, {len(wrong)} wrong")
    assert wrong == []
    assert bench.asked() == states


def test_many_ask_for_what_many_load_and_kill(
    forks: Forks, toys: tuple[Toy, Toy], cache: Cache, tally: Tally, rounds: Rounds
) -> None:
    """Fetches of two releases, evictions and kills come all at random and at once."""
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
    for toy in toys:  # both entries exist now, so `heal` allows what other releases left
        wrong += toy.heal(cache)
    tally(f"random fetches, evictions and kills, 6 at once: {count} with {len(wrong)} wrong")
    assert wrong == []


LOADERS = 6


def test_loads_while_entries_are_evicted(
    forks: Forks, toys: tuple[Toy, Toy], cache: Cache, tally: Tally, rounds: Rounds
) -> None:
    """Upgrades are evictions of an older release while the newer one comes."""
    given = [toy.given(cache.root) for toy in toys]
    loads_during_evictions(forks, given, rounds(120, 1000), 0.02, "the toy plugin", tally)


def test_loads_of_the_real_plugin(forks: Forks, toys, tmp_path, tally, rounds, request) -> None:
    """It is the XLA CPU plugin of some 200 MB, and runs only with TESTED_FAULTS=full."""
    count = rounds(0, 1000)
    if not count:
        tally("loads of the CPU plugin: skipped, they take minutes")
        pytest.skip("only with TESTED_FAULTS=full")
    library = request.getfixturevalue("library")
    members = {**wheels.contents(1), wheels.LIBRARY: library.read_bytes()}
    wheel = wheels.build(members, stored=True)
    pin = wheels.pin(wheel, members)
    (tmp_path / pin.file_name).write_bytes(wheel)
    (tmp_path / "row.json").write_text(json.dumps(pin.as_row()))
    sources = {**toys[0].sources, "PJRT_HUB_MIRRORS": str(tmp_path)}
    given = {"row": str(tmp_path / "row.json"), "root": str(tmp_path / "cache"), "env": sources}
    loads_during_evictions(forks, [given], count, 2.0, "the CPU plugin", tally)


def loads_during_evictions(
    forks: Forks, given: list[dict], count: int, pause: float, what: str, tally: Tally
) -> None:
    """Load in processes of their own, a few at once, while another one clears the cache."""
    errors, signals, evictions, done = [], [], [], threading.Event()

    def load(number: int) -> None:
        ended = forks.run("load", **given[number % len(given)])
        if ended.signal:
            signals.append(signal.Signals(ended.signal).name)
        elif ended.error:
            errors.append(ended.told)

    def evict() -> None:
        while not done.wait(pause):
            ended = forks.run("clear", root=given[0]["root"])
            errors.extend([ended.told] if ended.error else [])
            evictions.extend([1] if ended.value else [])

    evictor = threading.Thread(target=evict)
    evictor.start()
    try:
        with ThreadPoolExecutor(LOADERS) as pool:
            list(pool.map(load, range(count)))
    finally:
        done.set()
        evictor.join()
    tally(
        f"{count} loads of {what} by {LOADERS} processes at once during {len(evictions)} "
        f"evictions: {signals.count('SIGBUS')} SIGBUS, {len(signals)} signals, "
        f"{len(errors)} errors"
    )
    assert signals == []
    assert errors == []
    assert evictions  # entries in use stay, but not all of them were


@pytest.mark.parametrize("change", ["flip", "zero", "cut"])
def test_damage_of_a_published_file(bench: Bench, tally: Tally, rounds: Rounds, change) -> None:
    toy, offsets, wrong, signals = bench.toy, rounds(12, 64), [], []
    draw = random.Random(change)
    library = bench.cache.layout.entry_root(toy.pin) / wheels.LIBRARY
    size = len(toy.members[wheels.LIBRARY])
    toy.obtain(bench.cache)
    for at in [0, 1, 63, size // 2, size - 1, *(draw.randrange(size) for _ in range(offsets - 5))]:
        damage(library, change, at)
        bench.server.requests.clear()
        ended = bench.run("load")
        signals += [at] if ended.signal else []
        if ended.error or bench.asked() != 1:
            wrong.append(f"{change} at {at}: {ended.told or 'it was not fetched again'}")
        wrong += bench.audit()
    tally(
        f"damage of a published file ({change}): {offsets - len(wrong) - len(signals)} of "
        f"{offsets} refused and fetched again, {len(signals)} signals"
    )
    assert signals == []
    assert wrong == []


@pytest.mark.parametrize("change", ["rename", "write"])
@pytest.mark.parametrize("moment", ["checked", "opened"])
def test_a_library_that_changes_between_look_and_load(bench, tally, change, moment) -> None:
    """It is refused before any function is called; its constructors ran if it was loaded already.

    The loader knows libraries by their paths, so this process never gets the right one after that.
    """
    bench.toy.obtain(bench.cache)
    ended = bench.run("load_changed", change=change, moment=moment)
    assert not ended.error, ended.told
    first, second = ended.value
    assert first.startswith("PluginLoadError: ")
    assert "was changed or removed while it was to be loaded" in first
    if moment == "opened":
        assert "start this program again" in second
    assert bench.run("load").value == "stub_name stub_version"
    assert bench.heal() == []
    tally(f"a library that changes ({change}) once it is {moment}: refused, then fetched again")


def damage(path: Path, change: str, at: int) -> None:
    """Changes a file in place, as bit rot and careless tools do."""
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(at)
        if change == "cut":
            file.truncate(at)
        else:
            found = file.read(1 if change == "flip" else 4096)
            file.seek(at)
            # The block becomes zeros, or ones if it holds zeros already.
            zeros = bytes(len(found)) if any(found) else b"\xff" * len(found)
            file.write(zeros if change == "zero" else bytes([found[0] ^ 0xFF]))
