"""Lifetimes: closing in any order, threads, forks, every way for a process to end, and no leaks.

What could crash runs in a child, which has to end by itself, with its status and a silent stderr.
"""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import leaks
import numpy as np
import pytest

from pjrt_hub.errors import ClosedError

ENDS = ("client", "executable", "buffer", "result", "event", "array")


def test_closing_in_every_order(child):
    """720 orders of giving up a client and what belongs to it, by closing and by forgetting."""
    child(
        f"""
        from itertools import permutations
        plugin = client.plugin
        close = {{"client": lambda o: o.close(), "executable": lambda o: o.close(),
                  "buffer": lambda o: o.delete(), "result": lambda o: o.delete()}}
        saved = client.compile(ADD).serialize()
        for number, order in enumerate(permutations({ENDS!r})):
            c = plugin.client()
            exe = c.compile(ADD) if number % 10 == 0 else c.load(saved)
            b = c.buffer_from_host(np.ones(8, np.float32))
            r = exe(b, b)
            alive = dict(client=c, executable=exe, buffer=b, result=r, event=r.ready,
                         array=r.to_numpy())
            del c, exe, b, r
            for name in order:
                given_up = alive.pop(name)
                if name in close and number % 2:
                    close[name](given_up)
                del given_up
                if "array" in alive:
                    assert alive["array"].tolist() == [2.0] * 8
        """
    )


def test_children_keep_their_parents(plugin, program):
    client = plugin.client()
    gone = weakref.ref(client)
    executable = client.compile(program("add"))
    ones = client.buffer_from_host(np.ones(8, np.float32))
    del client
    gc.collect()
    result = executable(ones, ones)
    del executable, ones
    assert result.tolist() == [2.0] * 8
    array = result.to_numpy()
    del result
    gc.collect()
    assert array.tolist() == [2.0] * 8
    assert gone() is not None
    del array
    gc.collect()
    assert gone() is None


def test_a_cycle_through_a_callback_ends(plugin, wait_until):
    class Holder:
        """Holds an event, and itself."""

    holder, called = Holder(), []
    holder.event = plugin.client().buffer_from_host([1]).ready
    holder.event.add_done_callback(lambda _, holder=holder: called.append(1))
    holder.self = holder
    wait_until(lambda: called)
    gone = weakref.ref(holder)
    del holder
    wait_until(lambda: gc.collect() >= 0 and gone() is None)


def test_work_in_flight_when_everything_is_closed(child):
    child(
        """
        slow = client.compile(SLOW)
        identity = client.buffer_from_host(np.eye(256, dtype=np.float32))
        for order in range(6):
            c = client.plugin.client()
            slow = c.compile(SLOW)
            identity = c.buffer_from_host(np.eye(256, dtype=np.float32))
            result = slow(identity, c.buffer_from_host(np.int32(300)))
            event = result.ready
            event.add_done_callback(lambda e: None)
            if order == 0: c.close()
            if order == 1: slow.close(); identity.delete(); result.delete(); c.close()
            if order == 2: del result, identity, slow; c.close()
            if order == 3: result.delete(); event.wait(); c.close()
            if order == 4: del c, slow, identity, event
            if order == 5: c.close(); del result, event
        """
    )


def test_closing_while_another_thread_waits(plugin, child):
    out = child(
        """
        slow = client.compile(SLOW)
        identity = client.buffer_from_host(np.eye(256, dtype=np.float32))
        result = slow(identity, client.buffer_from_host(np.int32(2000)))
        said = []
        def wait():
            try:
                said.append(float(result.to_numpy()[0, 0]))
            except ClosedError:
                said.append("closed")
        threads = [threading.Thread(target=wait) for _ in range(4)]
        for thread in threads: thread.start()
        time.sleep(0.05)
        client.close()
        for thread in threads: thread.join()
        print(set(map(str, said)) <= {"1.0", "closed"}, len(said))
        """
    )
    assert out == "True 4\n"


@pytest.mark.slow
def test_sixteen_threads(child):
    """Everything in all threads at once: values are right, and only what was closed refuses."""
    out = child(
        """
        import random
        plugin, wrong = client.plugin, []
        def work(seed, client, executable, shared, rounds):
            chance = random.Random(seed)
            for _ in range(rounds):
                try:
                    mine = client.buffer_from_host(np.full(8, seed, np.float32))
                    result = executable(mine, chance.choice(shared))
                    what = chance.randrange(8)
                    if what == 0: mine.delete()
                    if what == 1: result.ready.wait()
                    if what == 2: executable.cost_analysis()
                    if what == 3: repr(result); result.layout
                    if what == 4: result.ready.add_done_callback(lambda e: None)
                    if what == 5 and chance.random() < 0.05: client.compile(ADD)
                    if what == 6 and chance.random() < 0.05: gc.collect()
                    if result.tolist() != [seed + 1.0] * 8: wrong.append(seed)
                except ClosedError:
                    if not (client.closed or executable.closed): wrong.append("closed")
                    return
        for round in range(12):
            c = plugin.client()
            exe = c.compile(ADD)
            shared = [c.buffer_from_host(np.ones(8, np.float32)) for _ in range(4)]
            args = [(n, c, exe, shared, 400) for n in range(16)]
            threads = [threading.Thread(target=work, args=each) for each in args]
            for thread in threads: thread.start()
            if round % 3 == 0: time.sleep(0.2); c.close()
            if round % 3 == 1: time.sleep(0.2); exe.close()
            for thread in threads: thread.join()
            c.close()
        print(wrong)
        """
    )
    assert out == "[]\n"


@pytest.mark.slow
def test_questions_while_it_closes(child):
    """An executable is asked and saved in some threads while another closes it."""
    child(
        """
        plugin = client.plugin
        def ask(executable):
            try:
                while True:
                    executable.serialize()
                    executable.cost_analysis()
                    executable.optimized_program()
            except ClosedError:
                pass
        for round in range(60):
            executable = client.compile(ADD)
            threads = [threading.Thread(target=ask, args=(executable,)) for _ in range(4)]
            for thread in threads: thread.start()
            time.sleep(0.002 * (round % 5))
            executable.close()
            for thread in threads: thread.join()
        """
    )


FORK = """
import signal
executable = client.compile(ADD)
buffer = ones()
array = buffer.to_numpy()
event, device, memory = buffer.ready, client.devices[0], buffer.memory
slow, identity = client.compile(SLOW), client.buffer_from_host(np.eye(256, dtype=np.float32))
# Once before the fork: a plugin that is cut off while it makes its first kernel dies at its exit.
slow(identity, client.buffer_from_host(np.int32(1))).ready.wait()
pending = slow(identity, client.buffer_from_host(np.int32(500)))
late = pending.ready
uses = [
    lambda: executable(buffer, buffer), lambda: executable.execute([[buffer, buffer]]),
    executable.serialize, executable.cost_analysis, lambda: executable.name,
    buffer.to_numpy, lambda: np.asarray(buffer), lambda: buffer.ready, lambda: buffer.memory,
    lambda: buffer.copy_to_device(device), buffer.delete, lambda: buffer.on_device_nbytes,
    event.wait, event.is_ready, lambda: event.add_done_callback(print), late.wait, late.is_ready,
    lambda: client.buffer_from_host([1]), lambda: client.compile(ADD), lambda: client.load(b""),
    lambda: client.platform_version, lambda: device.memories, lambda: memory.kind,
    client.plugin.client, lambda: pjrt_hub.client("cpu", offline=True),
]
def check():
    for use in uses:
        try:
            use()
        except ClosedError as exc:
            assert "fork" in str(exc) and "spawn" in str(exc), exc
        else:
            raise AssertionError("it did not refuse")
    assert array.tolist() == [1.0] * 8
    assert client.closed and executable.closed and buffer.is_deleted
    for each in (client, executable, buffer, event, device, memory, client.plugin):
        repr(each)
"""


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)", "del buffer, array; client.close()"])
def test_a_forked_child_refuses_everything(child, end):
    indented = "\n    ".join(end.split("; "))
    code = FORK + (
        f"pid = os.fork()\n"
        f"if pid == 0:\n"
        f"    signal.alarm(30)\n"
        f"    check()\n"
        f"    {indented}\n"
        f"    sys.exit(0)\n"
        f"assert os.waitpid(pid, 0)[1] == 0\n"
        f"assert executable(buffer, buffer).tolist() == [2.0] * 8\n"
        f"late.wait()\n"
    )
    child(code, PYTHONWARNINGS="ignore::DeprecationWarning")


def test_a_fork_inside_a_thread_and_multiprocessing(child):
    child(
        FORK
        + """
import multiprocessing
context = multiprocessing.get_context("fork")
processes = [context.Process(target=check) for _ in range(3)]
thread = threading.Thread(target=lambda: [process.start() for process in processes])
thread.start(); thread.join()
for process in processes:
    process.join(60)
    assert process.exitcode == 0, process.exitcode
""",
        PYTHONWARNINGS="ignore::DeprecationWarning",
    )


@pytest.mark.parametrize("end", ["sys.exit(7)", "os._exit(7)", "raise SystemExit(7)"])
@pytest.mark.parametrize("state", ["idle", "running", "closed", "daemon", "callback"])
def test_every_way_to_end(child, state, end):
    states = {
        "idle": "",
        "running": "result = start(500)",
        "closed": "result = start(10); result.ready.wait(); client.close()",
        "daemon": """
def forever():
    while True: executable(buffer, buffer).to_numpy()
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.05)""",
        "callback": """
result = start(500)
result.ready.add_done_callback(lambda e: executable(buffer, buffer))""",
    }
    child(
        f"""
executable, buffer = client.compile(ADD), ones()
kept = executable(buffer, buffer), buffer.to_numpy(), buffer.ready
def start(rounds):
    return client.compile(SLOW)(
        client.buffer_from_host(np.eye(256, dtype=np.float32)),
        client.buffer_from_host(np.int32(rounds)))
{states[state]}
{end}
""",
        status=7,
    )


@pytest.mark.parametrize(
    ("end", "status", "stderr"),
    [
        ("", 0, ""),
        ("raise SystemExit('on purpose')", 1, "on purpose\n"),
        ("os.kill(os.getpid(), 15)", -15, ""),
        ("atexit.register(lambda: print(exe(b, b).tolist()))", 0, ""),
        ("sys.modules.clear()", 0, ""),
        ("threading.Thread(target=lambda: (time.sleep(0.1), exe(b, b).tolist())).start()", 0, ""),
    ],
)
def test_other_ways_to_end(child, end, status, stderr):
    setup = "import atexit\nexe, b = client.compile(ADD), ones()\nexe(b, b)\n"
    child(setup + end, status=status, stderr=stderr)


@pytest.mark.slow
def test_two_hundred_clients(child):
    """No file and no thread is left behind by clients that are gone."""
    out = child(
        """
        def counts():
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        def once():
            with client.plugin.client({"cpu_device_count": 2}) as c:
                b = c.buffer_from_host(np.ones(8, np.float32))
                c.compile(ADD)(b, b).ready.wait()
        for _ in range(20): once()
        before = counts()
        for _ in range(180): once()
        deadline = time.monotonic() + 10
        while counts() > before and time.monotonic() < deadline:
            time.sleep(0.02)  # a thread that ends is still there for a moment
        print(*before, *counts())
        """
    )
    files, threads, files_after, threads_after = map(int, out.split())
    assert files_after <= files + 2
    assert threads_after <= threads + 2


#: Kinds of use that take milliseconds, with how many of them are enough here.
SLOW_USES = {"compile": 20, "load": 100, "pickled_executable": 100, "one_client": 50}
SLOW_USES |= {"failed_compile": 200}
#: Loops that run for days.
LONG_LOOPS = dict.fromkeys(("donation_loop", "donated_array", "bound", "arrays"), 100_000)


def test_nothing_grows(clean_env):
    """Each kind of use, thousands of times after as many: under 1 MB, and no native object."""
    counts = dict.fromkeys(leaks.KINDS, 2_000) | SLOW_USES | LONG_LOOPS
    done = subprocess.run(
        [sys.executable, "-m", "leaks", *(f"{kind}={count}" for kind, count in counts.items())],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=200,
        env=clean_env,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [kind for kind, *_ in told] == list(leaks.KINDS)
    assert {kind: nbytes for kind, _, nbytes, *_ in told if nbytes > 1 << 20} == {}
    assert {kind: left for kind, *_, left in told if left} == {}


def test_random_use_of_two_clients(child):
    """Ten thousand random steps: whatever is still alive answers rightly, the rest refuses."""
    child(
        """
        import random
        plugin, chance, state = client.plugin, random.Random(11), []
        def fresh():
            c = plugin.client()
            return dict(client=c, exe=c.load(saved), buffers=[], arrays=[])
        saved = client.compile(ADD).serialize()
        state = [fresh(), fresh()]
        for step in range(10_000):
            s = chance.choice(state)
            what = chance.randrange(12)
            try:
                if what < 3:
                    n = float(chance.randrange(9))
                    b = s["client"].buffer_from_host(np.full(8, n, np.float32))
                    s["buffers"].append((b, n))
                elif what < 7 and s["buffers"]:
                    (a, m), (b, n) = chance.choice(s["buffers"]), chance.choice(s["buffers"])
                    gone = a.is_deleted or b.is_deleted
                    s["buffers"].append((s["exe"](a, b), m + n))
                    assert not gone
                elif what == 7 and s["buffers"]:
                    a, n = chance.choice(s["buffers"])
                    s["arrays"].append((a.to_numpy(), n))
                elif what == 8 and s["buffers"]:
                    chance.choice(s["buffers"])[0].delete()
                elif what == 9 and s["buffers"]:
                    s["buffers"].pop(chance.randrange(len(s["buffers"])))
                elif what == 10 and s["buffers"]:
                    chance.choice(s["buffers"])[0].ready.wait()
                elif what == 11 and chance.random() < 0.1:
                    chance.choice([s["client"].close, s["exe"].close])()
            except ClosedError:
                pass
            for values, n in s["arrays"][-3:]:
                assert values.tolist() == [n] * 8
            if s["exe"].closed or len(s["buffers"]) > 100:
                state[state.index(s)] = fresh()
        """
    )


def test_deleting_in_one_thread_while_another_runs(plugin, program):
    """Either the run comes first, or it is refused: the value is never wrong."""
    with plugin.client() as client:
        executable, values = client.compile(program("add")), []
        for _ in range(200):
            buffer = client.buffer_from_host(np.ones(8, np.float32))
            thread = threading.Thread(target=buffer.delete)
            thread.start()
            with contextlib.suppress(ClosedError):
                values.append(executable(buffer, buffer).tolist())
            thread.join()
        assert all(value == [2.0] * 8 for value in values)
