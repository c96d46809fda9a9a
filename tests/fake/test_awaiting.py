"""Awaiting events in tasks of asyncio, trio, and anyio on both."""

from __future__ import annotations

import pytest

SETUP = """
import asyncio, threading, time
import anyio, trio

client = Plugin(load(path)).client()
a = client.buffer_from_host(ONE_TO_FOUR)


def run(words):
    return client.compile(func(words))(a).ready


async def awaited(event):
    return await event


def registered():
    return ctypes.c_long.in_dll(ctypes.CDLL(path), "stub_callbacks").value


def on_asyncio(main): return asyncio.run(main())
def on_trio(main): return trio.run(main)
def on_anyio(main): return anyio.run(main, backend="asyncio")
def on_anyio_on_trio(main): return anyio.run(main, backend="trio")
"""

LIBRARIES = ["on_asyncio", "on_trio", "on_anyio", "on_anyio_on_trio"]


@pytest.fixture(params=LIBRARIES)
def check_on(request, stub, check):
    """Runs a script whose `start(main)` runs a coroutine function."""
    prepared = SETUP + f"start = {request.param}\n"
    return lambda script, **kwargs: check(stub(), prepared + script, **kwargs)


def test_what_is_ready_and_what_comes(check_on) -> None:
    check_on("""
async def main():
    assert await a.ready is None
    later = run("identity later")
    assert not later.is_ready()
    assert await later is None
    assert later.is_ready()
    return "done"

assert start(main) == "done"
""")


def test_errors_are_raised_in_the_task(check_on) -> None:
    check_on("""
async def main():
    for words in ("identity fails", "identity fails later"):
        try:
            await run(words)
        except errors.PluginInternalError as exc:
            assert exc.message == "the stub failed later", exc
        else:
            raise AssertionError("it did not fail")

start(main)
assert "error" not in live(), live()
""")


@pytest.mark.slow
def test_a_client_that_is_closed_meanwhile(check_on) -> None:
    check_on("""
async def main():
    event = run("identity later")
    threading.Timer(0.05, client.close).start()
    try:
        await event
    except errors.ClosedError:
        return True

assert start(main)
""")


def test_others_run_meanwhile(check_on) -> None:
    check_on("""
async def main():
    ticks = 0
    async with anyio.create_task_group() as group:
        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await anyio.sleep(0.005)
        group.start_soon(tick)
        await run("identity later")
        group.cancel_scope.cancel()
    return ticks

assert start(main) > 3
""")


@pytest.mark.slow
def test_many_events_and_many_tasks(check_on) -> None:
    check_on("""
async def main():
    came = []
    async def wait(event, number):
        await event
        came.append(number)
    events = [run("identity later") for _ in range(300)]
    async with anyio.create_task_group() as group:
        for number in range(3000):
            group.start_soon(wait, events[number % len(events)], number)
    assert sorted(came) == list(range(3000)), len(came)

start(main)
""")


@pytest.mark.slow
def test_a_cancelled_wait_leaves_nothing(check_on) -> None:
    """One callback stays with the plugin for the event, however many waits are given up."""
    check_on("""
async def main():
    never = run("identity never")
    before = registered()
    for _ in range(2000):
        with anyio.move_on_after(0.0001) as scope:
            await never
        assert scope.cancelled_caught
    assert registered() == before + 1, (before, registered())
    assert len(never._waiters) == 0, len(never._waiters)
    try:
        with anyio.fail_after(0.01):
            await never
    except TimeoutError:
        return True

assert start(main)
""")


def test_a_cancelled_task_among_others(check_on) -> None:
    check_on("""
async def main():
    later, scopes, came = run("identity later"), [], []
    async def wait():
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await later
            came.append(True)
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(wait)
        await anyio.sleep(0.02)
        assert len(later._waiters) == 20, len(later._waiters)
        for scope in scopes[::2]:
            scope.cancel()
    assert len(came) == 10, came
    assert len(later._waiters) == 0

start(main)
""")


def test_a_loop_that_ends_first(check_on) -> None:
    check_on("""
async def nothing():
    pass

start(nothing)  # a first loop imports for longer than the program takes
later = run("identity later")

async def main():
    async with anyio.create_task_group() as group:
        group.start_soon(awaited, later)
        await anyio.sleep(0.02)
        group.cancel_scope.cancel()

start(main)
assert not later.is_ready()
later.wait(30)
start(main)
assert len(later._waiters) == 0
""")


def test_an_event_of_one_loop_awaited_in_another(check_on) -> None:
    check_on("""
later, ends = run("identity later"), []

def elsewhere(start):
    start(lambda: awaited(later))
    ends.append(True)

threads = [threading.Thread(target=elsewhere, args=[each]) for each in (on_asyncio, on_trio, start)]
for each in threads: each.start()
for each in threads: each.join(30)
assert ends == [True] * 3, ends
""")


def test_timeouts_of_asyncio(stub, check) -> None:
    check(
        stub(),
        SETUP
        + """
async def main():
    never = run("identity never")
    for _ in range(3):
        try:
            await asyncio.wait_for(awaited(never), 0.01)
        except TimeoutError:
            continue
        raise AssertionError("it never comes")
    task = asyncio.create_task(awaited(never))
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    assert registered() == 1
    assert len(never._waiters) == 0

asyncio.run(main())
""",
    )


def test_a_loop_of_asyncio_that_is_closed_under_its_tasks(stub, check) -> None:
    """Nobody cancels them: they are destroyed while they sleep."""
    check(
        stub(),
        SETUP
        + """
later, complaints = run("identity later"), []
loop = asyncio.new_event_loop()
loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
task = loop.create_task(awaited(later))
loop.run_until_complete(asyncio.sleep(0))
loop.close()
later.wait(30)
soon(lambda: not len(later._waiters))
del task
gc.collect()
assert complaints == ["Task was destroyed but it is pending!"], complaints
""",
    )


def test_trio_hears_of_cancellation_even_where_nothing_is_awaited(stub, check) -> None:
    check(
        stub(),
        SETUP
        + """
async def main():
    with trio.CancelScope() as scope:
        scope.cancel()
        await a.ready
        raise AssertionError("an await of trio is a checkpoint")
    assert scope.cancelled_caught

trio.run(main)
""",
    )


def test_trio_as_a_guest_of_asyncio(stub, check) -> None:
    check(
        stub(),
        SETUP
        + """
async def host():
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    async def guest():
        await run("identity later")
        return "guest"
    def ended(outcome):
        ends.append(outcome.unwrap())
        done.set()
    trio.lowlevel.start_guest_run(
        guest, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=ended)
    await run("identity later")
    ends.append("host")
    await done.wait()

ends = []
asyncio.run(host())
assert sorted(ends) == ["guest", "host"], ends
""",
    )


def test_outside_of_every_loop(stub, check) -> None:
    check(
        stub(),
        SETUP
        + """
steps = run("identity never").__await__()
raises(RuntimeError, next, steps)
assert next(a.ready.__await__(), "nothing to wait for") == "nothing to wait for"
""",
    )


def test_neither_is_imported_for_the_other(stub, check) -> None:
    check(
        stub(),
        """
client = Plugin(load(path)).client()
assert not {"asyncio", "trio"} & set(sys.modules)
import asyncio

async def main():
    await client.compile(func("identity later"))(client.buffer_from_host(ONE_TO_FOUR)).ready

asyncio.run(main())
assert "trio" not in sys.modules
""",
    )
