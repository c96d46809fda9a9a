"""What ends a wait, a process or a thread: Ctrl-C, fork, and the eight ways to leave Python."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

CLIENT = """
import atexit, threading, time

client = Plugin(load(path)).client()
a = client.buffer_from_host(ONE_TO_FOUR)
exe = client.compile(func("add"))
out = exe(a, a)
never = client.compile(func("identity never"))(a)
"""

INTERRUPTED = """
from contextlib import contextmanager


@contextmanager
def interrupted():
    print("waiting", flush=True)
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    else:
        print("not interrupted", flush=True)
"""


@pytest.mark.parametrize(
    ("macros", "wait"),
    [
        ([], "never.ready.wait()"),
        ([], "never.ready.wait(1000)"),
        ([], "never.to_numpy()"),
        (['PLATFORM="other"'], "never.to_numpy()"),
        ([], 'client.compile(func("identity slow_compile"))'),
        (["ON_CREATE=if (stub_live[CLIENT] == 1) nap(30)"], "client.plugin.client()"),
    ],
    ids=["wait", "wait_limit", "read", "read_copy", "compile", "client"],
)
@pytest.mark.slow
def test_ctrl_c_ends_the_waiting(stub, start, macros, wait: str) -> None:
    child = start(
        stub(*macros),
        CLIENT
        + INTERRUPTED
        + f"with interrupted():\n    {wait}\nassert a.tolist() == [1, 2, 3, 4]\n",
    )
    assert child.stdout.readline() == "waiting\n"
    signal_when_asleep(child)
    stdout, stderr = child.communicate(timeout=25)  # where the stub takes 30 s, or for ever
    assert (stdout, stderr, child.returncode) == ("interrupted\n", "", 0)


def test_ctrl_c_during_a_load(stub, start) -> None:
    child = start(
        stub("ON_INITIALIZE=nap(30)"), INTERRUPTED + "with interrupted():\n    Plugin(load(path))\n"
    )
    assert child.stdout.readline() == "waiting\n"
    signal_when_asleep(child)
    stdout, stderr = child.communicate(timeout=25)
    assert (stdout, stderr, child.returncode) == ("interrupted\n", "", 0)


def test_ctrl_c_during_first_contact_leaves_no_orphan(stub, start, tmp_path) -> None:
    child = start(
        stub("ON_INITIALIZE=pause()"),
        INTERRUPTED + "import pjrt_hub\nwith interrupted():\n    pjrt_hub.load(path)\n",
    )
    assert child.stdout.readline() == "waiting\n"
    loads = tmp_path / "loads"
    wait_until(lambda: loads.exists() and loads.read_text().endswith("\n"))
    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate(timeout=25)
    assert (stdout, stderr, child.returncode) == ("interrupted\n", "", 0)
    (pid,) = loads.read_text().split()
    wait_until(lambda: subprocess.run(["kill", "-0", pid], capture_output=True).returncode != 0)


def test_what_an_interrupted_compile_gives_is_freed(stub, start) -> None:
    child = start(
        stub(),
        CLIENT
        + INTERRUPTED
        + """
del out, never, a, exe
with interrupted():
    client.compile(func("identity short_compile"))
client.close()
for _ in range(500):
    if live() == {}:
        break
    time.sleep(0.01)
assert live() == {}, live()
""",
    )
    assert child.stdout.readline() == "waiting\n"
    signal_when_asleep(child)
    stdout, stderr = child.communicate(timeout=25)
    assert (stdout, stderr, child.returncode) == ("interrupted\n", "", 0)


def test_fork_while_a_thread_waits(stub, check) -> None:
    check(
        stub(),
        CLIENT
        + """
waiter = threading.Thread(target=lambda: never.to_numpy(), daemon=True)
waiter.start()
late = client.compile(func("identity later"))(a).ready
late.add_done_callback(lambda event: None)
time.sleep(0.1)
pid = os.fork()
if pid == 0:
    raises(errors.ClosedError, exe, a, a)
    client.close()
    sys.exit(0)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
""",
    )


def test_fork_while_a_thread_loads(stub, check) -> None:
    check(
        stub(),
        """
        import threading, time
        slow = sys.argv[2]
        threading.Thread(target=load, args=[slow], daemon=True).start()
        time.sleep(0.3)
        pid = os.fork()
        if pid == 0:
            assert Plugin(load(path)).client().platform_name == "cpu"
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
        os._exit(0)
        """,
        str(stub("ON_INITIALIZE=nap(1.5)")),
    )


def test_a_child_can_load_what_its_parent_did_not(stub, check) -> None:
    check(
        stub(),
        CLIENT
        + """
pid = os.fork()
if pid == 0:
    import asyncio
    with Plugin(load(sys.argv[2])).client() as own:
        b = own.buffer_from_host(ONE_TO_FOUR)
        event = own.compile(func("identity later"))(b).ready

        async def main():
            await event

        asyncio.run(main())
        assert b.tolist() == [1, 2, 3, 4]
    sys.exit(0)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
""",
        str(stub("MINOR=81")),
    )


LEAVING = {
    "the end": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("sys.excepthook = lambda *_: None\nraise ValueError", 1),
    "os._exit": ("os._exit(4)", 4),
    "a daemon thread waits": (
        "threading.Thread(target=never.ready.wait, daemon=True).start()\n"
        "threading.Thread(target=never.to_numpy, daemon=True).start()\n"
        "time.sleep(0.1)",
        0,
    ),
    "a cycle holds the client": (
        "class Node: pass\nnode = Node()\nnode.self, node.all = node, (client, a, exe, out)\n"
        "client.mine, exe.mine = node, node\ndel node",
        0,
    ),
    "a hook uses the client": (
        "def hook():\n"
        "    assert exe(a, a).tolist() == [2, 4, 6, 8]\n"
        "    client.compile(func('add'))(a, a)\n"
        "    Plugin(load(path)).client()\n"
        "atexit.register(hook)",
        0,
    ),
    "close in __del__": (
        "class Owner:\n"
        "    def __init__(self): self.parts = (client, a, exe, never.ready)\n"
        "    def __del__(self): self.parts[1].delete(); self.parts[2].close(); client_close()\n"
        "client_close = client.close\n"
        "sys.modules['held'] = owner = Owner()",
        0,
    ),
    "arrays are alive": ("sys.modules['held'] = [out.to_numpy(), a.to_numpy()]", 0),
    "events fire while leaving": (
        "class Slow:\n    def __call__(self, event): time.sleep(0.01)\n"
        "later = client.compile(func('identity later'))\n"
        "for _ in range(20): later(a).ready.add_done_callback(Slow())\n"
        "time.sleep(0.19)",
        0,
    ),
    "a compile goes on": (
        "go = lambda: client.compile(func('identity slow_compile'))\n"
        "threading.Thread(target=go, daemon=True).start()\n"
        "time.sleep(0.1)",
        0,
    ),
}


@pytest.mark.parametrize("platform", ["cpu", "other"])
@pytest.mark.parametrize("style", LEAVING)
@pytest.mark.slow
def test_leaving_python(stub, run, style: str, platform: str) -> None:
    script, returncode = LEAVING[style]
    ended = run(stub(f'PLATFORM="{platform}"'), CLIENT + script + "\n", seconds=20)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", returncode)


THREADS = """
import random, threading

plugin = Plugin(load(path))
crashes = []
threading.excepthook = lambda report: crashes.append(report.exc_value)
ALLOWED = (errors.ClosedError, TimeoutError, errors.PluginInternalError)
"""


@pytest.mark.parametrize("platform", ["cpu", "other"])
@pytest.mark.slow
def test_threads_close_what_others_use(stub, check, platform: str) -> None:
    """A destroy while a call is inside with the object, or after its client's, aborts the stub."""
    check(
        stub(f'PLATFORM="{platform}"', "ON_CALL=usleep(20)"),
        THREADS
        + """
sys.setswitchinterval(1e-5)


def work(shared, seed):
    choose = random.Random(seed)
    client, a, exe, later = shared
    mine = []

    def use():
        match choose.randrange(12):
            case 0 | 1 | 2: mine.append(exe(a, a))
            case 3: mine.append(client.buffer_from_host(ONE_TO_FOUR))
            case 4: mine and mine[-1].to_numpy()
            case 5: mine and mine.pop(choose.randrange(len(mine)))
            case 6: mine and mine[0].delete()
            case 7: assert exe.name == "stub_program"
            case 8: later(a).ready.add_done_callback(lambda event: None)
            case 9: a.ready.wait(1)
            case 10: repr(a), repr(exe), a.is_deleted
            case 11: client.compile(func("add")).close()

    for _ in range(60):
        try:
            use()
        except ALLOWED:
            pass
    if choose.random() < 0.5:
        (exe if choose.random() < 0.5 else client).close()


for turn in range(8):
    client = plugin.client()
    shared = (client, client.buffer_from_host(ONE_TO_FOUR), client.compile(func("add")),
              client.compile(func("identity later")))
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
""",
    )


def test_close_waits_for_the_last_call(stub, check) -> None:
    check(
        stub(),
        THREADS
        + """
client = plugin.client()
a = client.buffer_from_host(ONE_TO_FOUR)
slow = client.compile(func("identity slow_execute"))
came = []
thread = threading.Thread(target=lambda: came.append(slow(a)))
thread.start()
soon(lambda: (ctypes.c_char * 512).in_dll(ctypes.CDLL(path), "stub_executed").value)
before = destroys()
slow.close()
client.close()
assert destroys() == before and live()["client"] == 1, live()
raises(errors.ClosedError, slow, a)
thread.join()
assert live() == {}, live()
raises(errors.ClosedError, came[0].to_numpy)
assert not crashes, crashes
""",
    )


def signal_when_asleep(child: subprocess.Popen[str]) -> None:
    """Sends Ctrl-C once the main thread sleeps in its wait."""
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)


def wait_until(condition) -> None:
    for _ in range(500):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it never came")
