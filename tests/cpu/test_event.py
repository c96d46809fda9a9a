"""Events: waiting, awaiting and callbacks, of work that is done, pending, and gone."""

import threading

import numpy as np
import pytest
from children import promise

from pjrt_hub import Event
from pjrt_hub.errors import ClosedError

IDENTITY = np.eye(256, dtype=np.float32)


@pytest.mark.cpu("is there at once")
def test_what_is_ready(vector):
    event = vector().ready
    assert event.is_ready()
    assert event.wait() is None
    assert event.wait(0) is None
    assert event.wait(timeout=1.5) is None
    assert repr(event) == "<Event ready>"


@pytest.mark.parametrize("wait", [Event.wait, Event.result])
@pytest.mark.parametrize("timeout", [0, 0.001, 0.02, -1, float("nan")])
def test_waiting_for_a_value(client, wait, timeout):
    result, keep = promise(client)
    event = result.ready
    assert (event.is_ready(), event.done(), repr(event)) == (False, False, "<Event pending>")
    with pytest.raises(TimeoutError, match="the work goes on"):
        wait(event, timeout)
    with pytest.raises(TypeError):
        wait(event, "soon")
    keep()
    assert wait(event, 60) is wait(event) is None
    assert event.is_ready()
    assert event.done()
    assert np.array_equal(result.to_numpy(), IDENTITY)


def test_a_very_long_timeout_is_for_ever(slowly):
    slowly().ready.wait(float("inf"))
    slowly().ready.wait(1e300)


def test_an_event_outlives_its_buffer(slowly):
    result = slowly()
    event = result.ready
    result.delete()
    del result
    event.wait()
    assert event.is_ready()


def test_callbacks(slowly, vector):
    for start in (slowly, vector):
        event, called, threads = start().ready, threading.Event(), []

        def callback(given, called=called, threads=threads):
            threads.append((given, threading.current_thread().name))
            called.set()

        event.add_done_callback(callback)
        assert called.wait(30)
        assert threads == [(event, "pjrt-hub events")]


def test_a_callback_may_use_everything(executables, vector, slowly):
    done, results = threading.Event(), []

    def callback(_):
        results.append(executables("add")(vector(), vector()).tolist())
        done.set()

    slowly().ready.add_done_callback(callback)
    assert done.wait(30)
    assert results == [[2.0 * n for n in range(8)]]


def test_callbacks_of_a_closed_client_still_run(plugin):
    client = plugin.client()
    done = threading.Event()
    event = client.buffer_from_host(np.ones(8)).ready
    event.add_done_callback(lambda _: done.set())
    client.close()
    assert done.wait(30)
    for use in (event.done, event.result):
        with pytest.raises(ClosedError, match="the client is closed"):
            use()
