"""Eviction, upgrade and damage while others load: no SIGBUS, no error, never a wrong byte."""

from __future__ import annotations

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

from pjrt_hub.store.cache import Cache

#: The full numbers take minutes.
pytestmark = pytest.mark.timeout(1800)

Tally = Callable[[str], None]
Rounds = Callable[[int, int], int]
LOADERS = 6


def test_loads_while_entries_are_evicted(
    forks: Forks, toy: Toy, toys: tuple[Toy, Toy], cache: Cache, tally: Tally, rounds: Rounds
) -> None:
    count, errors, signals, done = rounds(120, 1000), [], [], threading.Event()
    evictions = kept = 0

    def load(number: int) -> None:
        each = toys[number % 2]
        ended = forks.run("load", row=str(each.row), root=str(cache.root), env=each.sources)
        if ended.signal:
            signals.append(signal.Signals(ended.signal).name)
        elif ended.error:
            errors.append(ended.told)

    def evict() -> None:
        nonlocal evictions, kept
        while not done.is_set():
            ended = forks.run("clear", root=str(cache.root))
            errors.extend([ended.told] if ended.error else [])
            evictions += bool(ended.value)
            kept += any(cache.entries())
            done.wait(0.02)

    evictor = threading.Thread(target=evict)
    evictor.start()
    try:
        with ThreadPoolExecutor(LOADERS) as pool:
            list(pool.map(load, range(count)))
    finally:
        done.set()
        evictor.join()
    tally(
        f"{count} loads by {LOADERS} processes at once during {evictions} evictions of two "
        f"releases: {signals.count('SIGBUS')} SIGBUS, {len(signals)} signals, {len(errors)} errors"
    )
    assert signals == []
    assert errors == []
    assert evictions > count // 20


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
