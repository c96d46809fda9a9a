"""What threads share is open and whole in a child that is forked while they use it."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

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
    go = threading.Event()
    with ThreadPoolExecutor(1) as pool:

        def start(work):
            inside = threading.Event()
            pool.submit(work, inside, go)
            assert inside.wait(10)

        yield start
        go.set()


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

    def leave_and_take():
        lock.__exit__()
        return take()

    with lock:
        assert in_child(leave_and_take) == 3
    assert take() == 3


def test_a_cached_property_that_another_thread_computes_is_computed_by_the_child(busy):
    busy(lambda inside, go: Slow(inside, go).value)
    assert in_child(lambda: 3 if Slow().value else 0) == 3


def test_a_cached_property_is_the_same_for_all_threads():
    slow, together = Slow(), threading.Barrier(4)
    slow.inside, slow.go = threading.Event(), threading.Event()

    def look():
        together.wait(10)
        return slow.value

    with ThreadPoolExecutor(4) as pool:
        looks = [pool.submit(look) for _ in range(4)]
        time.sleep(0.05)
        slow.go.set()
    seen = [each.result() for each in looks]
    assert seen == [slow.value] * 4
    assert Slow.value.__doc__ == "Something."
