"""Events: waiting, awaiting and callbacks, of work that is done, pending, and gone."""

from __future__ import annotations

import asyncio
import sys
import threading

import numpy as np
import pytest
from children import ones, promise

from pjrt_hub.errors import ClosedError

IDENTITY = np.eye(256, dtype=np.float32)


async def awaited(event):
    await event


@pytest.mark.cpu("is there at once")
def test_what_is_ready(vector):
    event = vector().ready
    assert event.is_ready()
    assert event.wait() is None
    assert event.wait(0) is None
    assert event.wait(timeout=1.5) is None
    assert repr(event) == "<Event ready>"


def test_waiting_for_a_value(client):
    result, keep = promise(client)
    event = result.ready
    assert not event.is_ready()
    assert repr(event) == "<Event pending>"
    keep()
    event.wait()
    assert event.is_ready()
    assert np.array_equal(result.to_numpy(), IDENTITY)


def test_reading_waits(slowly):
    assert np.array_equal(slowly().to_numpy(), IDENTITY)


@pytest.mark.parametrize("timeout", [0, 0.001, 0.02, -1, float("nan")])
def test_a_timeout(client, timeout):
    result, keep = promise(client)
    event = result.ready
    with pytest.raises(TimeoutError, match="the work goes on"):
        event.wait(timeout)
    keep()
    event.wait(60)
    assert event.is_ready()


@pytest.mark.parametrize("timeout", ["1", [], object()])
def test_no_timeout(vector, timeout):
    with pytest.raises(TypeError):
        vector().ready.wait(timeout)


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


def test_awaiting(slowly, vector):
    async def main():
        result = slowly()
        await result.ready
        assert result.ready.is_ready()
        await vector().ready
        return result.to_numpy()

    assert np.array_equal(asyncio.run(main()), IDENTITY)


def test_awaiting_several_while_the_loop_lives(slowly):
    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        results = [slowly(200 * (n + 1)) for n in range(4)]
        events = [result.ready for result in results]
        await asyncio.gather(*events, *events)
        ticking.cancel()
        return ticks, results

    ticks, results = asyncio.run(main())
    assert ticks > 1
    assert all(np.array_equal(result.to_numpy(), IDENTITY) for result in results)


def test_giving_up_awaiting(client):
    async def main():
        result, keep = promise(client)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(awaited(result.ready), 0.01)
        keep()
        return result

    result = asyncio.run(main())
    assert np.array_equal(result.to_numpy(), IDENTITY)


def test_a_loop_that_ends_before_the_work(slowly):
    result = slowly(1000)

    async def main():
        task = asyncio.ensure_future(awaited(result.ready))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(main())
    assert np.array_equal(result.to_numpy(), IDENTITY)


def test_callbacks(slowly, vector):
    for start in (slowly, vector):
        event, called, threads = start().ready, threading.Event(), []

        def callback(given, called=called, threads=threads):
            threads.append((given, threading.current_thread().name))
            called.set()

        event.add_done_callback(callback)
        assert called.wait(30)
        assert threads == [(event, "pjrt-hub events")]


def test_many_callbacks_each_run_once(slowly):
    event, count, calls = slowly().ready, 500, []
    done = threading.Event()

    def callback(number):
        calls.append(number)
        if len(calls) == count:
            done.set()

    for number in range(count):
        event.add_done_callback(lambda _, number=number: callback(number))
    assert done.wait(30)
    assert sorted(calls) == list(range(count))


def test_a_callback_may_use_everything(executables, vector, slowly):
    done, results = threading.Event(), []

    def callback(_):
        results.append(executables("add")(vector(), vector()).tolist())
        done.set()

    slowly().ready.add_done_callback(callback)
    assert done.wait(30)
    assert results == [[2.0 * n for n in range(8)]]


def test_a_callback_that_raises_is_reported(monkeypatch, vector, wait_until):
    reports = []
    monkeypatch.setattr(sys, "unraisablehook", reports.append)

    def callback(_):
        raise ValueError("on purpose")

    vector().ready.add_done_callback(callback)
    wait_until(lambda: reports)
    assert reports[0].exc_type is ValueError
    assert str(reports[0].exc_value) == "on purpose"
    assert reports[0].object is not None
    again = threading.Event()
    vector().ready.add_done_callback(lambda _: again.set())
    assert again.wait(30)


def test_a_callback_that_raises_prints_with_pythons_own_hook(child):
    out = child(raise_in_a_callback)
    assert "Exception ignored" in out
    assert "ValueError: on purpose" in out


def raise_in_a_callback(client):
    words, said = "on purpose", threading.Event()

    def callback(_):
        raise ValueError(words)  # which the traceback shows, before the words themselves

    class Told:
        """Passes on what is written, and tells when the error is."""

        def write(self, text):
            sys.stdout.write(text)
            if words in text:
                said.set()

        def flush(self):
            sys.stdout.flush()

    sys.stderr = Told()
    ones(client).ready.add_done_callback(callback)
    assert said.wait(30)


def test_callbacks_of_a_closed_client_still_run(plugin):
    client = plugin.client()
    done = threading.Event()
    event = client.buffer_from_host(np.ones(8)).ready
    event.add_done_callback(lambda _: done.set())
    client.close()
    assert done.wait(30)
    for use in (
        event.wait,
        event.is_ready,
        event.done,
        event.result,
        lambda: event.add_done_callback(print),
    ):
        with pytest.raises(ClosedError, match="the client is closed"):
            use()
    with pytest.raises(ClosedError):
        asyncio.run(awaited(event))


def test_waiting_in_many_threads(slowly):
    event, waited = slowly(1000).ready, []

    def wait():
        event.wait()
        waited.append(event.is_ready())

    threads = [threading.Thread(target=wait) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert waited == [True] * 16
