"""Events: waiting with a limit, awaiting, callbacks, failures that come later."""

from __future__ import annotations

import pytest

PENDING = """
import asyncio, threading, time, weakref

client = Plugin(load(path)).client()
a = client.buffer_from_host(ONE_TO_FOUR)


def run(words):
    return client.compile(func(words))(a)
"""


def test_a_wait_has_a_limit(stub, check) -> None:
    check(
        stub(),
        PENDING
        + """
never = run("identity never").ready
error = raises(TimeoutError, never.wait, 0.05)
assert str(error) == "not ready after 0.05 s; the work goes on", error
raises(TimeoutError, never.wait, 0)
raises(TimeoutError, never.wait, float("nan"))
raises(TypeError, never.wait, "soon")
assert not never.is_ready()
later = run("identity later").ready
assert later.wait(30) is None
assert later.wait() is None and later.wait(0) is None and later.is_ready()
out = run("identity never")
assert repr(out) == "<Buffer pending [cpu:0 f32[4]]>", repr(out)
client.close()
assert live() == {}, live()
""",
    )


def test_a_failure_from_another_thread_arrives(stub, check) -> None:
    check(
        stub(),
        PENDING
        + """
out = run("identity fails later")
event = out.ready
assert not event.is_ready()
for _ in range(2):
    error = raises(errors.PluginInternalError, event.wait)
    assert (error.code, error.message) == (13, "the stub failed later"), error
raises(errors.PluginInternalError, out.to_numpy)
assert "error" not in live(), live()
""",
    )


def test_await(stub, check) -> None:
    check(
        stub(),
        PENDING
        + """
async def main():
    ready = a.ready
    assert await ready is None
    assert await run("identity later").ready is None
    both = await asyncio.gather(
        *(run("identity later").ready for _ in range(5)),
        run("identity fails later").ready,
        run("identity fails").ready,
        return_exceptions=True,
    )
    assert both[:5] == [None] * 5, both
    assert [type(each) for each in both[5:]] == [errors.PluginInternalError] * 2, both
    try:
        await asyncio.wait_for(_of(run("identity never").ready), 0.05)
    except TimeoutError:
        pass
    else:
        raise AssertionError("never came")


async def _of(event):
    return await event


asyncio.run(main())
late = run("identity later").ready


async def leave():
    waiting = asyncio.ensure_future(_of(late))
    await asyncio.sleep(0)


asyncio.run(leave())  # the loop is closed before the event fires
late.wait()
asyncio.run(main())
assert "error" not in live(), live()
""",
    )


def test_callbacks(stub, check) -> None:
    check(
        stub(),
        PENDING
        + """
came = []
late = run("identity later").ready
for number in range(5):
    late.add_done_callback(lambda event, number=number: came.append((event, number)))
assert came == []
soon(lambda: len(came) == 5)
assert sorted(number for _, number in came) == [0, 1, 2, 3, 4]
assert all(event is late for event, _ in came)
late.add_done_callback(lambda event: came.append(threading.current_thread().name))
soon(lambda: len(came) == 6)
assert came[-1] == "pjrt-hub events", came[-1]
failed = run("identity fails later").ready
failed.add_done_callback(lambda event: came.append(raises(errors.PluginInternalError, event.wait)))
soon(lambda: len(came) == 7)
orphan = run("identity later").ready
orphan.add_done_callback(lambda event: came.append("orphan"))
del orphan
soon(lambda: len(came) == 8)
""",
    )


def test_a_callback_that_raises_goes_to_the_hook(stub, check) -> None:
    check(
        stub(),
        PENDING
        + """
caught = []
sys.unraisablehook = lambda report: caught.append((report.exc_type, str(report.exc_value)))


def fail(event):
    raise KeyError("mine")


def leave(event):
    raise SystemExit(7)


def broken_hook(report):
    caught.append(report.exc_type)
    raise RuntimeError("the hook is broken")


for _ in range(3):
    run("identity later").ready.add_done_callback(fail)
soon(lambda: len(caught) == 3)
assert caught == [(KeyError, "'mine'")] * 3, caught
a.ready.add_done_callback(leave)
soon(lambda: len(caught) == 4)
came = []
a.ready.add_done_callback(came.append)
soon(lambda: came)  # the thread of the callbacks lives on
""",
    )


def test_the_default_hook_prints_it(stub, run) -> None:
    ended = run(
        stub(),
        PENDING
        + """
def fail(event):
    raise KeyError("mine")

came = []
a.ready.add_done_callback(fail)
a.ready.add_done_callback(came.append)
soon(lambda: came)
""",
    )
    assert ended.returncode == 0
    assert "Exception ignored in" in ended.stderr
    assert "KeyError: 'mine'" in ended.stderr


def test_nothing_is_held_after_a_callback_ran(stub, check) -> None:
    check(
        stub(),
        PENDING
        + """
class Thing:
    def __call__(self, event):
        pass


thing = Thing()
gone = weakref.ref(thing)
a.ready.add_done_callback(thing)
del thing
soon(lambda: gone() is None)
del a
soon(lambda: gc.collect() >= 0 and live() == {"client": 1})
""",
    )


def test_host_memory_is_held_until_its_event(stub, check) -> None:
    check(
        stub(),
        PENDING
        + """
from pjrt_hub.running.buffer.buffer import HostBufferSemantics

class Array(np.ndarray):
    pass


array = ONE_TO_FOUR.view(Array)
gone = weakref.ref(array)
b = client.buffer_from_host(array, semantics=HostBufferSemantics.IMMUTABLE_UNTIL_TRANSFER_COMPLETES)
del array
soon(lambda: gone() is None)  # the stub's event is ready at once
assert b.tolist() == [1, 2, 3, 4]
assert live() == {"client": 1, "buffer": 2}, live()
""",
    )


@pytest.mark.slow
def test_waits_that_time_out_leave_nothing(stub, check) -> None:
    """The stub ends the process at a thousand callbacks of one event, and memory stays flat."""
    check(
        stub(),
        PENDING
        + """
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def time_out(count):
    for _ in range(count):
        try:
            never.wait(1e-9)
        except TimeoutError:
            continue
        raise AssertionError("it never comes")


never = run("identity never").ready
time_out(5_000)
before = resident()
time_out(100_000)
assert resident() - before < 1 << 20, resident() - before
waiters = ctypes.c_long.in_dll(ctypes.CDLL(path), "stub_callbacks")
assert waiters.value == 1, waiters
""",
        seconds=200,
    )


def test_waits_of_many_threads_share_and_all_end(stub, check) -> None:
    check(
        stub(),
        PENDING
        + """
for words, error in (("identity later", None), ("identity fails later", "the stub failed later")):
    event, ends = run(words).ready, []

    def wait():
        try:
            event.wait(30)
            ends.append(None)
        except errors.PluginInternalError as exc:
            ends.append(exc.message)

    threads = [threading.Thread(target=wait) for _ in range(40)]
    for each in threads: each.start()
    for each in threads: each.join()
    assert ends == [error] * 40, ends
""",
    )


def test_polling_leaves_one_callback(stub, check) -> None:
    """However often a buffer is asked for its event: it is the same one, and goes with it."""
    check(
        stub(),
        PENDING
        + """
import ctypes

waiters = ctypes.c_long.in_dll(ctypes.CDLL(path), "stub_callbacks")
out = run("identity never")
for _ in range(10_000):
    raises(TimeoutError, out.ready.wait, 1e-9)
assert waiters.value == 1, waiters
before = live()["event"]
seen = weakref.ref(out.ready)
del out
assert seen() is None
assert live().get("event", 0) == before - 1
""",
    )
