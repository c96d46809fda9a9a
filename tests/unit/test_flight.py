"""Many threads and tasks ask at once: one works, all get its answer, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import wheels
from fetching import FILE, PIN, WHEEL, Slept, assert_whole, get
from loopback import Answer, Loopback

from pjrt_hub.errors import DownloadError
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.transfer import flight

pytestmark = pytest.mark.filterwarnings("ignore:This process .*fork:DeprecationWarning")


def test_64_threads_make_one_download(server: Loopback, cache: Cache, slept: Slept) -> None:
    server.file(FILE, WHEEL)
    gate = threading.Barrier(64)

    def ask() -> object:
        gate.wait(60)
        return get(server, cache, slept)

    with ThreadPoolExecutor(64) as pool:
        found = [pool.submit(ask) for _ in range(64)]
    assert {each.result().root for each in found} == {cache.entry_root(PIN)}
    assert len(server.asked(FILE)) == 1
    assert_whole(cache)


def test_tasks_of_asyncio_make_one_download(server: Loopback, cache: Cache, slept: Slept) -> None:
    server.file(FILE, WHEEL)

    async def ask() -> list[object]:
        return await asyncio.gather(
            *(asyncio.to_thread(get, server, cache, slept) for _ in range(32))
        )

    assert {each.library_path for each in asyncio.run(ask())} == {
        cache.entry_root(PIN) / wheels.LIBRARY
    }
    assert len(server.asked(FILE)) == 1


def test_a_failure_is_everybodys(server: Loopback, cache: Cache, slept: Slept) -> None:
    server.routes[FILE] = lambda request: Answer(b"", status=404)
    gate = threading.Barrier(8)

    def ask() -> BaseException | None:
        gate.wait(60)
        try:
            get(server, cache, slept)
        except DownloadError as exc:
            return exc
        return None

    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(ask) for _ in range(8)]
    assert all(isinstance(each.result(), DownloadError) for each in found)


def join(key: str, work: object, told: list[object], seconds: float = 60) -> threading.Thread:
    def ask() -> None:
        try:
            told.append(flight.share(key, work, patience_seconds=seconds))
        except BaseException as exc:
            told.append(exc)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def test_after_ctrl_c_the_next_thread_starts_over() -> None:
    begun, go, told, works = threading.Event(), threading.Event(), [], []

    def interrupted() -> int:
        begun.set()
        assert go.wait(60)
        raise KeyboardInterrupt

    first = join("a", interrupted, told)
    assert begun.wait(60)
    others = [join("a", lambda: works.append(1) or 7, told) for _ in range(4)]
    go.set()
    for thread in (first, *others):
        thread.join(60)
    assert sorted(map(repr, told)) == ["7", "7", "7", "7", "KeyboardInterrupt()"]
    assert works


def hang(begun: threading.Event, go: threading.Event) -> int:
    begun.set()
    assert go.wait(60)
    return 1


def test_a_thread_that_hangs_is_waited_for_to_the_deadline() -> None:
    begun, go, told = threading.Event(), threading.Event(), []
    thread = join("b", partial(hang, begun, go), told)
    assert begun.wait(60)
    assert flight.share("b", lambda: 2, patience_seconds=0.1) == 2
    go.set()
    thread.join(60)
    assert told == [1]
    assert flight.share("b", lambda: 3, patience_seconds=0) == 3


def test_a_fork_does_not_wait_for_threads_that_it_does_not_have() -> None:
    begun, go, told = threading.Event(), threading.Event(), []
    thread = join("c", partial(hang, begun, go), told)
    assert begun.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(flight.share("c", lambda: 5, patience_seconds=60))
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    finally:
        go.set()
        thread.join(60)
    assert told == [1]


def test_a_fork_in_a_download_publishes_nothing_for_its_parent(
    server: Loopback, cache: Cache, slept: Slept
) -> None:
    server.file(FILE, WHEEL)
    children: list[int] = []

    class Forking:
        def start(self, total: int, already: int) -> None:
            pass

        def advance(self, n: int) -> None:
            if not children:
                children.append(os.fork())
                if children == [0]:
                    raise SystemExit  # unwinds through the workspace and the lock

        def finish(self) -> None:
            pass

    try:
        entry = get(server, cache, slept, progress=Forking())
    except SystemExit:
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 3
    assert entry.library_path.exists()
    assert_whole(cache)
    assert list(cache.root.glob("v1/partial/*")) == []


@pytest.mark.parametrize("how", ["value", "error"])
def test_a_key_is_free_after_its_flight(how: str) -> None:
    def fail() -> int:
        raise DownloadError("no", url="")

    if how == "error":
        with pytest.raises(DownloadError):
            flight.share("d", fail, patience_seconds=1)
    else:
        assert flight.share("d", lambda: 1, patience_seconds=1) == 1
    assert flight.share("d", lambda: 2, patience_seconds=1) == 2
