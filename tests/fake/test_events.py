"""Events: waiting with a limit, callbacks, failures that come later."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from pathlib import Path

import pytest
from children import in_threads
from stubbed import ONE_TO_FOUR, live, number, raises, release, run, soon, with_stub

from pjrt_hub.errors import PluginInternalError as Broken


@with_stub()
def test_callbacks(a):
    came = []
    late = run(a, "identity held").ready
    for index in range(5):
        late.add_done_callback(lambda event, index=index: came.append((event, index)))
    assert came == []
    release()
    soon(lambda: len(came) == 5)
    assert sorted(index for _, index in came) == [0, 1, 2, 3, 4]
    assert all(event is late for event, _ in came)
    failed = run(a, "identity fails later").ready
    failed.add_done_callback(lambda event: came.append(raises(Broken, event.wait)))
    soon(lambda: len(came) == 6)
    orphan = run(a, "identity later").ready
    orphan.add_done_callback(lambda event: came.append("orphan"))
    del orphan
    soon(lambda: len(came) == 7)


def fail(event):
    raise KeyError("mine")


def interrupt(event):
    raise KeyboardInterrupt


def leave(event):
    raise SystemExit(7)


@with_stub()
def test_a_callback_that_raises_goes_to_the_hook(a):
    caught = []
    sys.unraisablehook = lambda report: caught.append((report.exc_type, str(report.exc_value)))
    for _ in range(3):
        run(a, "identity later").ready.add_done_callback(fail)
    soon(lambda: len(caught) == 3)
    assert caught == [(KeyError, "'mine'")] * 3, caught
    a.ready.add_done_callback(leave)
    soon(lambda: len(caught) == 4)
    came = []
    a.ready.add_done_callback(came.append)
    soon(lambda: came)  # the thread of the callbacks lives on


@with_stub()
def test_an_interrupt_that_a_callback_raises_is_the_main_threads(a):
    caught = []
    sys.unraisablehook = caught.append

    def wait():
        a.ready.add_done_callback(interrupt)
        soon(lambda: False)

    raises(KeyboardInterrupt, wait)
    assert not caught


def test_the_default_hook_prints_it(stub, run) -> None:
    ended = run(stub(), fail_in_a_callback)
    assert ended.returncode == 0
    assert "Exception ignored in" in ended.stderr
    assert "KeyError: 'mine'" in ended.stderr


def fail_in_a_callback(a):
    came = []
    a.ready.add_done_callback(fail)
    a.ready.add_done_callback(came.append)
    soon(lambda: came)


class Thing:
    """A callback that a weak reference can watch."""

    def __call__(self, event):
        pass


@with_stub()
def test_nothing_is_held_after_a_callback_ran(client):
    a, thing = client.buffer_from_host(ONE_TO_FOUR), Thing()
    gone = weakref.ref(thing)
    a.ready.add_done_callback(thing)
    del thing
    soon(lambda: gone() is None)
    del a
    soon(lambda: gc.collect() >= 0 and live() == {"client": 1})


@pytest.mark.slow
@with_stub(seconds=200)
def test_waits_that_time_out_leave_nothing(a):
    """The stub aborts at more than a thousand callbacks of one event; memory stays flat, too."""
    never = run(a, "identity never").ready

    def time_out(count):
        """The resident memory in bytes after so many waits."""
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
def test_waits_of_many_threads_share_and_all_end(a):
    def wait():
        try:
            ends.append(event.wait(30))
        except Broken as exc:
            ends.append((exc.code, exc.message))

    for words, end in (("later", None), ("fails later", (13, "the stub failed later"))):
        event, ends = run(a, f"identity {words}").ready, []
        in_threads(*[wait] * 40)
        assert ends == [end] * 40, ends


@with_stub()
def test_polling_leaves_one_callback(a):
    """However often a buffer is asked for its event, it gives the same one, which ends with it."""
    out = run(a, "identity never")
    for _ in range(10_000):
        raises(TimeoutError, out.ready.wait, 1e-9)
    assert number("stub_callbacks") == 1
    before = live()["event"]
    seen = weakref.ref(out.ready)
    del out
    assert seen() is None
    assert live().get("event", 0) == before - 1
