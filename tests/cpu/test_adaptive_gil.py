"""Launches keep the GIL only on request, if they are brief and no work waits for Python."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest
from children import ADD, SLOW, in_child, ones, promise
from texts import custom_call

import pjrt_hub
from pjrt_hub.errors import ClosedError

pytestmark = pytest.mark.cpu("launches keep Python's lock")

NUMBERS = np.arange(8, dtype=np.float32)


@in_child
def test_off_by_default(client):
    """It runs in a child, because other tests register custom calls in this process."""
    add = client.compile(ADD)
    assert add.gil == "release"
    add.gil = "adaptive"
    bound = add.bind(NUMBERS, NUMBERS)
    values = [tuple(call().tolist()) for call in [bound, lambda: add(NUMBERS, NUMBERS)] * 200]
    assert (add.gil, set(values)) == ("adaptive", {tuple((2 * NUMBERS).tolist())})
    add.gil = "release"
    assert add.gil == "release"
    with pytest.raises(ValueError, match='gil is \'hold\', neither "release" nor "adaptive"'):
        add.gil = "hold"
    add.gil = "adaptive"
    add.close()
    with pytest.raises(ValueError, match="gil is 'hold', neither"):
        add.gil = "hold"
    with pytest.raises(ClosedError, match="the executable is closed"):
        add.gil = "adaptive"


def test_where_launches_take_turns(pair, program):
    with pytest.raises(ValueError, match=r"cannot keep Python's lock: .* several devices"):
        pair.compile(program("add")).gil = "adaptive"


class Busy:
    """Makes calls while another thread waits for Python's lock."""

    def __init__(self, executable, mode, *arguments):
        self.run = lambda: executable(*arguments)
        executable.gil = mode
        for _ in range(100):
            self.run()

    def let_go(self, calls):
        """Whether one of `calls` calls releases the lock, which nothing else would do."""
        sys.setswitchinterval(100)
        barrier, got = threading.Lock(), []
        barrier.acquire()
        thread = threading.Thread(target=lambda: (barrier.acquire(), got.append(True)))
        thread.start()
        barrier.release()
        waits = time.monotonic() + 0.02  # the thread has time to start waiting for the lock
        while time.monotonic() < waits:
            pass
        for _ in range(calls):
            self.run()
            if got:
                break
        let_go = bool(got)
        sys.setswitchinterval(0.005)
        thread.join()
        return let_go


@in_child
def test_brief_launches_keep_it(client):
    """It must hold in one of twenty rounds, because a launch may take long by chance."""
    busy = Busy(client.compile(ADD), "adaptive", ones(client), ones(client))
    assert not all(busy.let_go(1000) for _ in range(20))


@in_child
def test_the_default_lets_go(client):
    busy = Busy(client.compile(ADD), "release", ones(client), ones(client))
    assert busy.let_go(10_000_000)


@in_child
def test_long_launches_let_go(client):
    """The program runs 2 ms in the background, and a launch beyond 32 waits for one to end."""
    eye = client.buffer_from_host(np.eye(256, dtype=np.float32))
    busy = Busy(client.compile(SLOW), "adaptive", eye, client.buffer_from_host(np.int32(10)))
    assert busy.let_go(10_000)


def adaptive(client):
    add = client.compile(ADD)
    add.gil = "adaptive"
    for _ in range(100):
        add(ones(client), ones(client))
    return add


@in_child
def test_a_promise_that_another_thread_keeps(client):
    """So many launches need the promise that the last must wait for the others to end."""
    add, one = adaptive(client), ones(client)
    alias = pjrt_hub.Alias(client, (8,))
    timer = threading.Timer(0.2, lambda: alias.fulfill(ones(client)))
    timer.start()
    results = [add(alias.buffer, one) for _ in range(100)]
    assert {result.tolist()[0] for result in results} == {2.0}
    timer.join()
    assert add.gil == "adaptive"


@in_child
def test_a_custom_call_in_python(client):
    """The custom call needs the lock on another thread while launches wait for the call."""
    add, one = adaptive(client), ones(client)

    def slowly(a, out):
        time.sleep(0.05)
        out[...] = a + 1

    client.plugin.ffi.register("slowly", slowly)
    text = custom_call("slowly").replace(") ->", ", %b: tensor<256x256xf32>) ->", 1)
    calling = client.compile(text)
    pending, keep = promise(client)
    result = calling(one, pending)
    assert not result.ready.is_ready()
    keep()
    results = [add(result, one) for _ in range(100)]
    assert {each.tolist()[0] for each in results} == {3.0}
    with pytest.raises(ValueError, match="a custom call, host callback or key-value store may nee"):
        calling.gil = "adaptive"
