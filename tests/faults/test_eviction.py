"""Eviction, upgrade and damage while others load: no SIGBUS, no error, never a wrong byte."""

from __future__ import annotations

import json
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import wheels
from forks import Forks
from toy import Toy

from pjrt_hub.finding.store.cache.cache import Cache

Tally = Callable[[str], None]
Rounds = Callable[[int, int], int]
LOADERS = 6


def test_loads_while_entries_are_evicted(
    forks: Forks, toys: tuple[Toy, Toy], cache: Cache, tally: Tally, rounds: Rounds
) -> None:
    """Upgrades are evictions of an older release while the newer one comes."""
    given = [toy.given(cache.root) for toy in toys]
    loads_during_evictions(forks, given, rounds(120, 1000), 0.02, "the toy plugin", tally)


def test_loads_of_the_real_plugin(
    forks: Forks,
    toys: tuple[Toy, Toy],
    tmp_path: Path,
    tally: Tally,
    rounds: Rounds,
    request: pytest.FixtureRequest,
) -> None:
    """The XLA CPU plugin, some 200 MB, where everything runs."""
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
    assert evictions  # an entry that somebody uses at that moment stays


@pytest.mark.parametrize("change", ["flip", "zero", "cut"])
def test_damage_of_a_published_file(
    forks: Forks,
    toy: Toy,
    cache: Cache,
    given: dict,
    tally: Tally,
    rounds: Rounds,
    change: str,
) -> None:
    offsets, wrong, signals = rounds(12, 64), [], []
    draw = random.Random(change)
    library = cache.entry_root(toy.pin) / wheels.LIBRARY
    size = len(toy.members[wheels.LIBRARY])
    toy.obtain(cache)
    for at in [0, 1, 63, size // 2, size - 1, *(draw.randrange(size) for _ in range(offsets - 5))]:
        damage(library, change, at)
        toy.server.requests.clear()
        ended = forks.run("load", **given)
        signals += [at] if ended.signal else []
        if ended.error or len(toy.server.asked(toy.path)) != 1:
            wrong.append(f"{change} at {at}: {ended.told or 'it was not fetched again'}")
        wrong += toy.audit(cache)
    tally(
        f"damage of a published file ({change}): {offsets - len(wrong) - len(signals)} of "
        f"{offsets} refused and fetched again, {len(signals)} signals"
    )
    assert signals == []
    assert wrong == []


@pytest.mark.parametrize("change", ["rename", "write"])
@pytest.mark.parametrize("moment", ["checked", "opened"])
def test_a_library_that_changes_between_look_and_load(
    forks: Forks, toy: Toy, cache: Cache, given: dict, tally: Tally, change: str, moment: str
) -> None:
    """Refused before any function of it is called; its constructors ran if the loader was first.

    The loader knows libraries by their paths, so this process never gets the right one after that.
    """
    toy.obtain(cache)
    ended = forks.run("load_changed", change=change, moment=moment, **given)
    assert not ended.error, ended.told
    first, second = ended.value
    assert first.startswith("PluginLoadError: ")
    assert "was changed or removed while it was to be loaded" in first
    if moment == "opened":
        assert "start this program again" in second
    assert forks.run("load", **given).value == "stub_name stub_version"
    assert toy.heal(cache) == []
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
            # A block of zeros, or of ones where zeros are right.
            zeros = bytes(len(found)) if any(found) else b"\xff" * len(found)
            file.write(zeros if change == "zero" else bytes([found[0] ^ 0xFF]))
