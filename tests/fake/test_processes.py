"""What ends a wait, a process or a thread: Ctrl-C, fork, and ways to leave Python."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import pytest
from stubbed import (
    ONE_TO_FOUR,
    begin,
    destroys,
    ends,
    func,
    live,
    path,
    raises,
    release,
    soon,
    stay,
    text_of,
    traces,
    with_stub,
)

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin


def busy():
    """A client, a buffer, a program, its result, and a result that never comes."""
    client = begin()
    a = client.buffer_from_host(ONE_TO_FOUR)
    exe = client.compile(func("add"))
    never = client.compile(func("identity never"))(a)
    return SimpleNamespace(client=client, a=a, exe=exe, out=exe(a, a), never=never)


def interrupted(wait):
    try:
        print("waiting", flush=True)
        wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    else:
        print("not interrupted", flush=True)


def end_by_ctrl_c(child):
    """Send Ctrl-C once the main thread sleeps in its wait."""
    assert child.stdout.readline() == "waiting\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate(timeout=25)  # the stub takes 30 s, or for ever
    assert (stdout, stderr, child.returncode) == ("interrupted\n", "", 0)


def wait_for_a_client():
    it = busy()
    interrupted(it.client.plugin.client)
    assert it.a.tolist() == [1, 2, 3, 4]


@pytest.mark.slow
def test_ctrl_c_while_a_client_is_made(stub, start) -> None:
    end_by_ctrl_c(start(stub("ON_CREATE=if (stub_live[CLIENT] == 1) nap(30)"), wait_for_a_client))


def wait_for_a_library():
    interrupted(lambda: Plugin(load(path)))


def test_ctrl_c_during_a_load(stub, start) -> None:
    end_by_ctrl_c(start(stub("ON_INITIALIZE=nap(30)"), wait_for_a_library))


def wait_for_first_contact():
    interrupted(lambda: pjrt_hub.load(path))


def test_ctrl_c_during_first_contact_leaves_no_orphan(stub, start, tmp_path) -> None:
    child = start(stub("ON_INITIALIZE=pause()"), wait_for_first_contact)
    soon(lambda: traces(tmp_path))
    end_by_ctrl_c(child)
    (pid,) = traces(tmp_path)
    assert ends(pid)


@with_stub("ON_LOAD=usleep(300000)")
def test_the_main_thread_has_other_work_while_a_library_loads():
    steps = []
    api = load(path, steps.append, meanwhile=lambda: steps.append("meanwhile"))
    assert steps[:3] == ["dlopen", "meanwhile", "GetPjrtApi"], steps
    assert load(path, steps.append) is api
    assert len(steps) == 5, steps


@pytest.mark.slow
@with_stub("ON_LOAD=usleep(4000000)")
def test_an_interrupt_ends_the_waiting_and_the_library_is_still_looked_at():
    looked = threading.Event()

    def tell(step):
        if step == "dlopen":
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        if step == "GetPjrtApi":
            looked.set()
            raise errors.PluginLoadError("it was changed", path=path)

    begun = time.monotonic()
    raises(KeyboardInterrupt, load, path, tell)
    assert time.monotonic() - begun < 3.5
    assert not looked.is_set()
    assert looked.wait(30)
    assert load(path).version.minor == 117


@with_stub("ON_LOAD=kill(getpid(), SIGINT); usleep(700000)")
def test_an_interrupted_process_ends_in_order_while_a_library_loads():
    raises(KeyboardInterrupt, load, path)


@with_stub("ON_COMPILE=kill(getpid(), SIGINT); hold()")
def test_what_an_interrupted_compile_gives_is_freed(client):
    raises(KeyboardInterrupt, client.compile, func("identity"))
    client.close()
    release()
    soon(lambda: not live())


def end_well(pid):
    """Wait for a child of this process, which must succeed."""
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status


@with_stub(other="ON_INITIALIZE=nap(1.5)")
def test_fork_while_a_thread_loads(other):
    threading.Thread(target=load, args=[other], daemon=True).start()
    time.sleep(0.3)
    pid = os.fork()
    if pid == 0:
        assert begin().platform_name == "cpu"
        os._exit(0)
    end_well(pid)
    os._exit(0)


@with_stub(other="MINOR=81")
def test_a_child_can_load_what_its_parent_did_not(other):
    stay(busy())
    pid = os.fork()
    if pid == 0:
        with Plugin(load(other)).client() as own:
            b = own.buffer_from_host(ONE_TO_FOUR)
            event = own.compile(func("identity later"))(b).ready

            async def main():
                await event

            asyncio.run(main())
            assert b.tolist() == [1, 2, 3, 4]
        sys.exit(0)
    end_well(pid)


def tie_a_cycle(it):
    node = SimpleNamespace(all=it)
    node.self = it.client.mine = it.exe.mine = node


def register_a_hook(it):
    @atexit.register
    def hook():
        assert it.exe(it.a, it.a).tolist() == [2, 4, 6, 8]
        it.client.compile(func("add"))(it.a, it.a)
        begin()


def close_in_a_finalizer(it):
    class Owner:
        def __init__(self):
            self.parts = (it.client.close, it.a, it.exe, it.never.ready)

        def __del__(self):
            self.parts[1].delete()
            self.parts[2].close()
            self.parts[0]()

    sys.modules["held"] = Owner()


def hear_of_events(it):
    class Slow:
        def __call__(self, event):
            time.sleep(0.01)

    later = it.client.compile(func("identity later"))
    for _ in range(20):
        later(it.a).ready.add_done_callback(Slow())
    time.sleep(0.19)


def compile_in_a_thread(it):
    slow = partial(it.client.compile, func("identity slow_compile"))
    threading.Thread(target=slow, daemon=True).start()
    time.sleep(0.1)


LEAVING = {
    "a cycle holds the client": tie_a_cycle,
    "a hook uses the client": register_a_hook,
    "close in __del__": close_in_a_finalizer,
    "events fire while leaving": hear_of_events,
    "a compile goes on": compile_in_a_thread,
}


@pytest.mark.parametrize("platform", ["cpu", "other"])
@pytest.mark.parametrize("style", LEAVING)
@pytest.mark.slow
@with_stub('PLATFORM="{platform}"', seconds=20)
def test_leaving_python(platform, style):
    it = busy()
    stay(it)
    LEAVING[style](it)


@pytest.mark.parametrize("platform", ["cpu", "other"])
@pytest.mark.slow
@with_stub('PLATFORM="{platform}"', "ON_CALL=usleep(20)")
def test_threads_close_what_others_use(platform):
    """The stub aborts if an object is destroyed while a call uses it, or after its client."""
    sys.setswitchinterval(1e-5)
    plugin, crashes = Plugin(load(path)), []
    threading.excepthook = lambda report: crashes.append(report.exc_value)
    allowed = (errors.ClosedError, TimeoutError, errors.PluginInternalError)

    def work(shared, seed):
        choose = random.Random(seed)
        client, a, exe, later = shared
        mine = []

        uses = [
            *[lambda: mine.append(exe(a, a))] * 3,
            lambda: mine.append(client.buffer_from_host(ONE_TO_FOUR)),
            lambda: mine and mine[-1].to_numpy(),
            lambda: mine and mine.pop(choose.randrange(len(mine))),
            lambda: mine and mine[0].delete(),
            lambda: exe.name,
            lambda: later(a).ready.add_done_callback(lambda event: None),
            lambda: a.ready.wait(1),
            lambda: (repr(a), repr(exe), a.is_deleted),
            lambda: client.compile(func("add")).close(),
        ]
        for _ in range(60):
            with suppress(*allowed):
                choose.choice(uses)()
        if choose.random() < 0.5:
            (exe if choose.random() < 0.5 else client).close()

    for turn in range(8):
        client = plugin.client()
        shared = (
            client,
            client.buffer_from_host(ONE_TO_FOUR),
            client.compile(func("add")),
            client.compile(func("identity later")),
        )
        threads = [threading.Thread(target=work, args=[shared, 8 * turn + i]) for i in range(8)]
        for thread in threads:
            thread.start()
        del shared
        if turn % 2:
            client.close()
        for thread in threads:
            thread.join()
        client.close()
        assert not crashes, crashes
        del client, threads
        gc.collect()
        assert live() == {}, (turn, live())


@with_stub()
def test_close_waits_for_the_last_call(client, a):
    crashes = []
    threading.excepthook = lambda report: crashes.append(report.exc_value)
    slow = client.compile(func("identity stuck"))
    came = []
    thread = threading.Thread(target=lambda: came.append(slow(a)))
    thread.start()
    soon(lambda: text_of("stub_executed"))
    before = destroys()
    slow.close()
    client.close()
    assert (destroys(), live()["client"]) == (before, 1), live()
    raises(errors.ClosedError, slow, a)
    release()
    thread.join()
    assert live() == {}, live()
    raises(errors.ClosedError, came[0].to_numpy)
    assert not crashes, crashes
