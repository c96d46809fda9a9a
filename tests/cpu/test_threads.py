"""One client in many threads at once, with and without a GIL: values are right, nothing is lost.

Every thread begins each round at the same moment. A test must pass in any order of events.
"""

import gc
import threading
from collections import Counter

import numpy as np
import pytest
from children import ADD, PROGRAMS, in_child, in_threads, ones, start

from pjrt_hub.errors import ClosedError

THREADS, ROUNDS = 8, 60
ONES = np.ones(8, np.float32)


def at_once(work, rounds=ROUNDS):
    """The results of `work(thread, round)` in all threads and rounds; raises the first error."""
    barrier, results, errors = threading.Barrier(THREADS), [], []

    def run(thread):
        try:
            for each in range(rounds):
                barrier.wait()
                results.append(work(thread, each))
        except threading.BrokenBarrierError:
            pass
        except BaseException as exc:
            errors.append(exc)
            barrier.abort()

    in_threads(*(lambda thread=thread: run(thread) for thread in range(THREADS)))
    if errors:
        raise errors[0]
    return results


def unless_closed(call):
    """The result of a call, or the word `closed` if it raises ClosedError."""
    try:
        return call()
    except ClosedError:
        return "closed"


def assert_nothing_is_left(client, but=0):
    gc.collect()
    assert (client._num_children, client._num_calls) == (but, 0)


@pytest.mark.cpu("launches keep Python's lock")
@in_child
@pytest.mark.parametrize("gil", ["release", "adaptive"])
def test_calls(client, gil):
    """All threads use one executable and one bound call."""
    add, shared = client.compile(ADD), ones(client)
    add.gil = gil
    bound = add.bind(shared, shared)

    def work(thread, turn):
        array = np.full(8, 10 * thread + turn, np.float32)
        mine = client.buffer_from_host(array)
        for _ in range(500):
            results = [add(mine, shared), add(array, shared), *add.execute([[mine, shared]])[0]]
            doubled = bound()
        assert [set(each.tolist()) for each in results] == [{array[0] + 1}] * 3
        assert doubled.tolist() == [2.0] * 8

    at_once(work, rounds=5)
    assert_nothing_is_left(client, but=2)


@in_child
def test_puts_and_gets(client):
    """The arrays are small, or large enough to be staged in pjrt-hub's own memory."""

    def work(thread, turn):
        for size in (3, 5000, 1 << 19):
            array = np.full((size, 1), 100 * thread + turn, np.float32)
            buffer = client.buffer_from_host(array)
            view, copy = np.asarray(buffer), buffer.to_numpy()
            del buffer
            assert (view == array).all()
            assert (copy == array).all()

    at_once(work, rounds=10)
    assert_nothing_is_left(client)


@in_child
@pytest.mark.cpu("shares memory with the host")
def test_one_buffer(client):
    """All threads read one buffer, ask for its properties for the first time, and copy it."""
    for _ in range(ROUNDS):
        buffer, views = client.buffer_from_host(np.arange(6.0).reshape(2, 3).T), []

        def work(thread, turn, buffer=buffer, views=views):
            views.extend([np.asarray(buffer), memoryview(buffer)])
            copy = buffer.copy_to_device(client.devices[0])
            return buffer.layout, buffer.ready.wait(), tuple(copy.to_numpy().ravel())

        assert len(set(map(str, at_once(work, rounds=1)))) == 1
        assert {str(np.asarray(view).tolist()) for view in views} == {
            "[[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]"
        }
        assert buffer._is_lent
        views.clear()
        gc.collect()
        assert not buffer._is_lent


@in_child
def test_deleted_by_all(client):
    """Every call returns the right value or reports that the buffer was deleted."""
    add, shared = client.compile(ADD), [ones(client) for _ in range(ROUNDS)]

    def work(thread, turn):
        buffer = shared[turn]
        result = unless_closed(lambda: add(buffer, buffer).tolist())
        if thread % 2:
            buffer.delete()
        return str(result)

    assert set(at_once(work)) <= {"closed", str([2.0] * 8)}
    assert all(each.is_deleted for each in shared)


@in_child
def test_donated_by_all(client):
    """One call gets the buffer, and the others raise."""
    donate, other = client.compile(PROGRAMS / "donate.mlir"), ones(client)
    shared = [client.buffer_from_host(turn * ONES) for turn in range(ROUNDS)]

    def work(thread, turn):
        return turn, str(unless_closed(lambda: donate(shared[turn], other).tolist()))

    expected = {(turn, str([turn + 1.0] * 8)): 1 for turn in range(ROUNDS)}
    expected |= {(turn, "closed"): THREADS - 1 for turn in range(ROUNDS)}
    assert Counter(at_once(work)) == expected


@in_child
def test_events_and_callbacks(client):
    """All threads wait for one event, and every callback runs once."""
    called, done = Counter(), threading.Semaphore(0)

    def come(name):
        called[name] += 1  # all callbacks run in one thread
        done.release()

    events = [start(client, 5).ready for _ in range(10)]

    def work(thread, turn):
        event = events[turn]
        for number in range(3):
            event.add_done_callback(lambda _, name=(thread, turn, number): come(name))
        event.wait()
        return event.is_ready()

    assert set(at_once(work, rounds=len(events))) == {True}
    expected = {(t, e, n): 1 for t in range(THREADS) for e in range(len(events)) for n in range(3)}
    for _ in expected:
        assert done.acquire(timeout=60)
    assert called == expected


@in_child
def test_clients(client):
    """Each thread opens and closes some clients, and all together close another one."""
    plugin, saved = client.plugin, client.compile(ADD).serialize()
    shared = [plugin.client() for _ in range(5)]

    def work(thread, turn):
        with plugin.client() as own:
            buffer = ones(own)
            assert own.load(saved)(buffer, buffer).tolist() == [2.0] * 8
        result = unless_closed(lambda: ones(shared[turn]).tolist())
        shared[turn].close()
        return str(result)

    assert set(at_once(work, rounds=len(shared))) <= {"closed", str([1.0] * 8)}
    assert all(each.closed for each in shared)


@in_child
def test_first_uses(client):
    """All threads ask for the same properties of one executable for the first time."""
    for _ in range(10):
        add = client.compile(ADD)

        def work(thread, turn, add=add):
            return str((add.name, add.signature, add.parameters, add.fingerprint))

        assert len(set(at_once(work, rounds=1))) == 1
