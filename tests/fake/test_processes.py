"""What ends a wait, a process or a thread: Ctrl-C, fork, and the eight ways to leave Python."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import gc
import os
import random
import signal
import subprocess
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
    func,
    live,
    path,
    raises,
    release,
    soon,
    stay,
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
    stdout, stderr = child.communicate(timeout=25)  # where the stub takes 30 s, or for ever
    assert (stdout, stderr, child.returncode) == ("interrupted\n", "", 0)


WAITS = {
    "wait": ([], lambda it: it.never.ready.wait()),
    "wait_limit": ([], lambda it: it.never.ready.wait(1000)),
    "read": ([], lambda it: it.never.to_numpy()),
    "read_copy": (['PLATFORM="other"'], lambda it: it.never.to_numpy()),
    "compile": ([], lambda it: it.client.compile(func("identity slow_compile"))),
    "client": (
        ["ON_CREATE=if (stub_live[CLIENT] == 1) nap(30)"],
        lambda it: it.client.plugin.client(),
    ),
}


def wait_for(name):
    it = busy()
    interrupted(lambda: WAITS[name][1](it))
    assert it.a.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.slow
def test_ctrl_c_ends_the_waiting(stub, start, wait: str) -> None:
    end_by_ctrl_c(start(stub(*WAITS[wait][0]), wait_for, wait))


def wait_for_a_library():
    interrupted(lambda: Plugin(load(path)))


def test_ctrl_c_during_a_load(stub, start) -> None:
    end_by_ctrl_c(start(stub("ON_INITIALIZE=nap(30)"), wait_for_a_library))


def wait_for_first_contact():
    interrupted(lambda: pjrt_hub.load(path))


def test_ctrl_c_during_first_contact_leaves_no_orphan(stub, start, tmp_path) -> None:
    child = start(stub("ON_INITIALIZE=pause()"), wait_for_first_contact)
    loads = tmp_path / "loads"
    soon(lambda: loads.exists() and loads.read_text().endswith("\n"))
    end_by_ctrl_c(child)
    (pid,) = loads.read_text().split()
    soon(lambda: subprocess.run(["kill", "-0", pid], capture_output=True).returncode != 0)


@with_stub("ON_COMPILE=kill(getpid(), SIGINT); hold()")
def test_what_an_interrupted_compile_gives_is_freed(client):
    raises(KeyboardInterrupt, client.compile, func("identity"))
    client.close()
    release()
    soon(lambda: not live())


def end_well(pid):
    """Wait for a child of this process."""
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status


@with_stub()
def test_fork_while_a_thread_waits():
    it = busy()
    threading.Thread(target=it.never.to_numpy, daemon=True).start()
    late = it.client.compile(func("identity later"))(it.a).ready
    late.add_done_callback(lambda event: None)
    time.sleep(0.1)
    pid = os.fork()
    if pid == 0:
        raises(errors.ClosedError, it.exe, it.a, it.a)
        it.client.close()
        sys.exit(0)
    end_well(pid)


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


def raise_silently(it):
    sys.excepthook = lambda *_: None
    raise ValueError


def wait_in_threads(it):
    for wait in (it.never.ready.wait, it.never.to_numpy):
        threading.Thread(target=wait, daemon=True).start()
    time.sleep(0.1)


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


def hold_arrays(it):
    sys.modules["held"] = [it.out.to_numpy(), it.a.to_numpy()]


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
    "the end": (lambda it: None, 0),
    "sys.exit": (lambda it: sys.exit(3), 3),
    "an exception": (raise_silently, 1),
    "os._exit": (lambda it: os._exit(4), 4),
    "a daemon thread waits": (wait_in_threads, 0),
    "a cycle holds the client": (tie_a_cycle, 0),
    "a hook uses the client": (register_a_hook, 0),
    "close in __del__": (close_in_a_finalizer, 0),
    "arrays are alive": (hold_arrays, 0),
    "events fire while leaving": (hear_of_events, 0),
    "a compile goes on": (compile_in_a_thread, 0),
}


def leave(style):
    it = busy()
    stay(it)
    LEAVING[style][0](it)


@pytest.mark.parametrize("platform", ["cpu", "other"])
@pytest.mark.parametrize("style", LEAVING)
@pytest.mark.slow
def test_leaving_python(stub, run, style: str, platform: str) -> None:
    ended = run(stub(f'PLATFORM="{platform}"'), leave, style, seconds=20)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", LEAVING[style][1])


@pytest.mark.parametrize("platform", ["cpu", "other"])
@pytest.mark.slow
@with_stub('PLATFORM="{platform}"', "ON_CALL=usleep(20)")
def test_threads_close_what_others_use(platform):
    """A destroy while a call is inside with the object, or after its client's, aborts the stub."""
    sys.setswitchinterval(1e-5)
    plugin, crashes = Plugin(load(path)), []
    threading.excepthook = lambda report: crashes.append(report.exc_value)
    allowed = (errors.ClosedError, TimeoutError, errors.PluginInternalError)

    def work(shared, seed):
        choose = random.Random(seed)
        client, a, exe, later = shared
        mine = []

        def use():
            match choose.randrange(12):
                case 0 | 1 | 2:
                    mine.append(exe(a, a))
                case 3:
                    mine.append(client.buffer_from_host(ONE_TO_FOUR))
                case 4:
                    mine and mine[-1].to_numpy()
                case 5:
                    mine and mine.pop(choose.randrange(len(mine)))
                case 6:
                    mine and mine[0].delete()
                case 7:
                    assert exe.name == "stub_program"
                case 8:
                    later(a).ready.add_done_callback(lambda event: None)
                case 9:
                    a.ready.wait(1)
                case 10:
                    repr(a), repr(exe), a.is_deleted
                case 11:
                    client.compile(func("add")).close()

        for _ in range(60):
            with suppress(*allowed):
                use()
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
    soon(lambda: (ctypes.c_char * 512).in_dll(ctypes.CDLL(path), "stub_executed").value)
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
