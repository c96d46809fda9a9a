"""What threads share is open and whole in a child that is forked while they use it."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from pjrt_hub.base import fork


def in_child(work):
    """Run `work` in a forked child; its exit status, or the signal that ended it as a negative."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def busy():
    """Has another thread inside of `work`, which is told when to go on."""
    threads, go = [], threading.Event()

    def start(work):
        inside = threading.Event()

        def run():
            work(inside, go)

        threads.append(threading.Thread(target=run))
        threads[0].start()
        inside.wait(10)

    yield start
    go.set()
    for thread in threads:
        thread.join()


class Slow:
    def __init__(self, inside=None, go=None):
        self.inside, self.go = inside, go

    @fork.cached_property
    def value(self):
        """Something."""
        if self.go:
            self.inside.set()
            self.go.wait(20)
        return object()


def test_a_lock_that_another_thread_holds_is_open_in_the_child(busy):
    lock = fork.Lock()

    def hold(inside, go):
        with lock:
            inside.set()
            go.wait(20)

    def take():
        with lock, lock:
            return 3

    busy(hold)
    assert in_child(take) == 3


def test_whoever_forks_may_hold_it():
    lock = fork.Lock()

    def take():
        with lock:
            return 3

    with lock:
        pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        os._exit(take())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert take() == 3


def test_a_cached_property_that_another_thread_computes_is_computed_by_the_child(busy):
    busy(lambda inside, go: Slow(inside, go).value)
    assert in_child(lambda: 3 if Slow().value else 0) == 3


def test_a_cached_property_is_the_same_for_all_threads():
    slow, seen, together = Slow(), [], threading.Barrier(4)
    slow.inside, slow.go = threading.Event(), threading.Event()

    def look():
        together.wait(10)
        seen.append(slow.value)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    slow.go.set()
    for thread in threads:
        thread.join()
    assert seen == [slow.value] * 4
    assert Slow.value.__doc__ == "Something."
