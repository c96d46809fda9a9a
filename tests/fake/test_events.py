"""Events: waiting with a limit, awaiting, callbacks, failures that come later."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from stubbed import ONE_TO_FOUR, begin, func, live, number, raises, release, soon, with_stub

from pjrt_hub import errors
from pjrt_hub.running.buffer.buffer import HostBufferSemantics


class Begun:
    """A client and a buffer of it."""

    def __init__(self):
        self.client = begin()
        self.a = self.client.buffer_from_host(ONE_TO_FOUR)

    def run(self, words):
        """What a program of these words gives."""
        return self.client.compile(func(words))(self.a)


async def awaited(event):
    return await event


@with_stub()
def test_a_wait_has_a_limit():
    begun = Begun()
    never = begun.run("identity never").ready
    error = raises(TimeoutError, never.wait, 0.05)
    assert str(error) == "not ready after 0.05 s; the work goes on", error
    raises(TimeoutError, never.wait, 0)
    raises(TimeoutError, never.wait, float("nan"))
    raises(TypeError, never.wait, "soon")
    assert not never.is_ready()
    later = begun.run("identity later").ready
    assert later.wait(30) is None
    assert later.wait() is None
    assert later.wait(0) is None
    assert later.is_ready()
    out = begun.run("identity never")
    assert repr(out) == "<Buffer pending, f32[4] on cpu:0>", repr(out)
    begun.client.close()
    assert live() == {}, live()


@with_stub()
def test_a_failure_from_another_thread_arrives():
    out = Begun().run("identity fails held")
    event = out.ready
    assert not event.is_ready()
    threading.Timer(0.05, release).start()
    for _ in range(2):
        error = raises(errors.PluginInternalError, event.wait)
        assert (error.code, error.message) == (13, "the stub failed later"), error
    raises(errors.PluginInternalError, out.to_numpy)
    assert "error" not in live(), live()


@with_stub()
def test_await():
    begun = Begun()

    async def main():
        ready = begun.a.ready
        assert await ready is None
        assert await begun.run("identity later").ready is None
        both = await asyncio.gather(
            *(begun.run("identity later").ready for _ in range(5)),
            begun.run("identity fails later").ready,
            begun.run("identity fails").ready,
            return_exceptions=True,
        )
        assert both[:5] == [None] * 5, both
        assert [type(each) for each in both[5:]] == [errors.PluginInternalError] * 2, both
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(awaited(begun.run("identity never").ready), 0.05)

    async def leave():
        waiting = asyncio.ensure_future(awaited(late))
        await asyncio.sleep(0)
        return waiting

    asyncio.run(main())
    late = begun.run("identity later").ready
    asyncio.run(leave())  # the loop is closed before the event fires
    late.wait()
    asyncio.run(main())
    assert "error" not in live(), live()


@with_stub()
def test_callbacks():
    begun, came = Begun(), []
    late = begun.run("identity held").ready
    for index in range(5):
        late.add_done_callback(lambda event, index=index: came.append((event, index)))
    assert came == []
    release()
    soon(lambda: len(came) == 5)
    assert sorted(index for _, index in came) == [0, 1, 2, 3, 4]
    assert all(event is late for event, _ in came)
    late.add_done_callback(lambda event: came.append(threading.current_thread().name))
    soon(lambda: len(came) == 6)
    assert came[-1] == "pjrt-hub events", came[-1]
    failed = begun.run("identity fails later").ready
    failed.add_done_callback(
        lambda event: came.append(raises(errors.PluginInternalError, event.wait))
    )
    soon(lambda: len(came) == 7)
    orphan = begun.run("identity later").ready
    orphan.add_done_callback(lambda event: came.append("orphan"))
    del orphan
    soon(lambda: len(came) == 8)


def fail(event):
    raise KeyError("mine")


def leave(event):
    raise SystemExit(7)


@with_stub()
def test_a_callback_that_raises_goes_to_the_hook():
    begun, caught = Begun(), []
    sys.unraisablehook = lambda report: caught.append((report.exc_type, str(report.exc_value)))
    for _ in range(3):
        begun.run("identity later").ready.add_done_callback(fail)
    soon(lambda: len(caught) == 3)
    assert caught == [(KeyError, "'mine'")] * 3, caught
    begun.a.ready.add_done_callback(leave)
    soon(lambda: len(caught) == 4)
    came = []
    begun.a.ready.add_done_callback(came.append)
    soon(lambda: came)  # the thread of the callbacks lives on


@with_stub()
def test_an_interrupt_that_a_callback_raises_is_the_main_threads():
    def interrupt(event):
        raise KeyboardInterrupt

    begun, caught = Begun(), []
    sys.unraisablehook = caught.append

    def wait():
        begun.a.ready.add_done_callback(interrupt)
        soon(lambda: False)

    raises(KeyboardInterrupt, wait)
    assert not caught


def test_the_default_hook_prints_it(stub, run) -> None:
    ended = run(stub(), fail_in_a_callback)
    assert ended.returncode == 0
    assert "Exception ignored in" in ended.stderr
    assert "KeyError: 'mine'" in ended.stderr


def fail_in_a_callback():
    begun, came = Begun(), []
    begun.a.ready.add_done_callback(fail)
    begun.a.ready.add_done_callback(came.append)
    soon(lambda: came)


class Thing:
    """A callback of which can be told whether it is gone."""

    def __call__(self, event):
        pass


@with_stub()
def test_nothing_is_held_after_a_callback_ran():
    begun, thing = Begun(), Thing()
    gone = weakref.ref(thing)
    begun.a.ready.add_done_callback(thing)
    del thing
    soon(lambda: gone() is None)
    del begun.a
    soon(lambda: gc.collect() >= 0 and live() == {"client": 1})


class Array(np.ndarray):
    """An array of which can be told whether it is gone."""


@with_stub()
def test_host_memory_is_held_until_its_event():
    begun, array = Begun(), ONE_TO_FOUR.view(Array)
    gone = weakref.ref(array)
    b = begun.client.buffer_from_host(
        array, semantics=HostBufferSemantics.IMMUTABLE_UNTIL_TRANSFER_COMPLETES
    )
    del array
    soon(lambda: gone() is None)  # the stub's event is ready at once
    assert b.tolist() == [1, 2, 3, 4]
    assert live() == {"client": 1, "buffer": 2}, live()


@pytest.mark.slow
@with_stub(seconds=200)
def test_waits_that_time_out_leave_nothing():
    """The stub ends the process at a thousand callbacks of one event, and memory stays flat."""
    never = Begun().run("identity never").ready

    def time_out(count):
        """What is resident after so many."""
        for _ in range(count):
            try:
                never.wait(1e-9)
            except TimeoutError:
                continue
            raise AssertionError("it never comes")
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    before = time_out(5_000)
    assert time_out(100_000) - before < 1 << 20
    assert number("stub_callbacks") == 1


@with_stub()
def test_waits_of_many_threads_share_and_all_end():
    begun = Begun()
    for words, error in (
        ("identity later", None),
        ("identity fails later", "the stub failed later"),
    ):
        event, ends = begun.run(words).ready, []

        def wait(event=event, ends=ends):
            try:
                event.wait(30)
                ends.append(None)
            except errors.PluginInternalError as exc:
                ends.append(exc.message)

        threads = [threading.Thread(target=wait) for _ in range(40)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert ends == [error] * 40, ends


@with_stub()
def test_polling_leaves_one_callback():
    """However often a buffer is asked for its event: it is the same one, and goes with it."""
    out = Begun().run("identity never")
    for _ in range(10_000):
        raises(TimeoutError, out.ready.wait, 1e-9)
    assert number("stub_callbacks") == 1
    before = live()["event"]
    seen = weakref.ref(out.ready)
    del out
    assert seen() is None
    assert live().get("event", 0) == before - 1
