"""Awaiting events in tasks of asyncio, trio, and anyio on both."""

from __future__ import annotations

import asyncio
import gc
import threading
from functools import partial

import anyio
import pytest
import trio
from children import in_threads
from stubbed import live, number, raises, release, run, soon, with_stub

from pjrt_hub import errors

LIBRARIES = {
    "asyncio": lambda main: asyncio.run(main()),
    "trio": trio.run,
    "anyio": partial(anyio.run, backend="asyncio"),
    "anyio_on_trio": partial(anyio.run, backend="trio"),
}
on_each = pytest.mark.parametrize("library", LIBRARIES)


async def awaited(event):
    return await event


@on_each
@with_stub()
def test_what_is_ready_what_comes_and_what_fails(a, library):
    async def main():
        assert await a.ready is None
        later = run(a, "identity held").ready
        assert not later.is_ready()
        threading.Timer(0.05, release).start()
        assert await later is None
        assert later.is_ready()
        for words in ("identity fails", "identity fails later"):
            with pytest.raises(errors.PluginInternalError) as caught:
                await run(a, words).ready
            assert caught.value.message == "the stub failed later"
        del caught
        return "done"

    assert LIBRARIES[library](main) == "done"
    assert "error" not in live(), live()


@pytest.mark.slow
@on_each
@with_stub()
def test_a_client_that_is_closed_meanwhile(client, a, library):
    async def main():
        event = run(a, "identity later").ready
        threading.Timer(0.05, client.close).start()
        with pytest.raises(errors.ClosedError):
            await event

    LIBRARIES[library](main)


@pytest.mark.slow
@on_each
@with_stub()
def test_many_events_and_many_tasks(a, library):
    async def main():
        came = []

        async def wait(event, number):
            await event
            came.append(number)

        events = [run(a, "identity later").ready for _ in range(300)]
        async with anyio.create_task_group() as group:
            for number in range(3000):
                group.start_soon(wait, events[number % len(events)], number)
        assert sorted(came) == list(range(3000)), len(came)

    LIBRARIES[library](main)


@pytest.mark.slow
@on_each
@with_stub()
def test_a_cancelled_wait_leaves_nothing(a, library):
    """One callback stays with the plugin for the event, however many waits are given up."""

    async def main():
        never = run(a, "identity never").ready
        before = number("stub_callbacks")
        for _ in range(2000):
            with anyio.move_on_after(0.0001) as scope:
                await never
            assert scope.cancelled_caught
        assert number("stub_callbacks") == before + 1, (before, number("stub_callbacks"))
        assert len(never._waiters) == 0, len(never._waiters)
        with pytest.raises(TimeoutError), anyio.fail_after(0.01):
            await never

    LIBRARIES[library](main)


@on_each
@with_stub()
def test_a_cancelled_task_among_others(a, library):
    async def main():
        later, scopes, came = run(a, "identity held").ready, [], []

        async def wait():
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                await later
                came.append(True)

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert len(later._waiters) == 20, len(later._waiters)
            for scope in scopes[::2]:
                scope.cancel()
            release()
        assert len(came) == 10, came
        assert len(later._waiters) == 0

    LIBRARIES[library](main)


@on_each
@with_stub()
def test_a_loop_that_ends_first(a, library):
    later = run(a, "identity held").ready

    async def main():
        async with anyio.create_task_group() as group:
            group.start_soon(awaited, later)
            await anyio.sleep(0.02)
            group.cancel_scope.cancel()

    LIBRARIES[library](main)
    assert not later.is_ready()
    release()
    later.wait(30)
    LIBRARIES[library](main)
    assert len(later._waiters) == 0


@on_each
@with_stub()
def test_an_event_of_one_loop_awaited_in_another(a, library):
    later, ends = run(a, "identity later").ready, []

    def elsewhere(run_main):
        run_main(lambda: awaited(later))
        ends.append(True)

    names = ("asyncio", "trio", library)
    in_threads(*(partial(elsewhere, LIBRARIES[name]) for name in names))
    assert ends == [True] * 3, ends


@with_stub()
def test_a_loop_of_asyncio_that_is_closed_under_its_tasks(a):
    """Nobody cancels them: they are destroyed while they sleep."""
    later, complaints = run(a, "identity held").ready, []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
    task = loop.create_task(awaited(later))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    release()
    later.wait(30)
    soon(lambda: not len(later._waiters))
    del task
    gc.collect()
    assert complaints == ["Task was destroyed but it is pending!"], complaints


@with_stub()
def test_trio_hears_of_cancellation_even_where_nothing_is_awaited(a):
    async def main():
        with trio.CancelScope() as scope:
            scope.cancel()
            await a.ready
            raise AssertionError("an await of trio is a checkpoint")
        assert scope.cancelled_caught

    trio.run(main)


@with_stub()
def test_trio_as_a_guest_of_asyncio(a):
    async def host():
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        async def guest():
            await run(a, "identity later").ready
            return "guest"

        def ended(outcome):
            ends.append(outcome.unwrap())
            done.set()

        trio.lowlevel.start_guest_run(
            guest, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=ended
        )
        await run(a, "identity later").ready
        ends.append("host")
        await done.wait()

    ends = []
    asyncio.run(host())
    assert sorted(ends) == ["guest", "host"], ends


@with_stub()
def test_outside_of_every_loop(a):
    steps = run(a, "identity never").ready.__await__()
    raises(RuntimeError, next, steps)
    assert next(a.ready.__await__(), "nothing to wait for") == "nothing to wait for"
