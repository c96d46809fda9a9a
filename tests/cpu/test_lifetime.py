"""Lifetimes: closing in any order, threads, forks, all ways to end a process, and no leaks.

Code that could crash runs in a child, which must exit by itself with no output on stderr.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import weakref
from functools import partial
from itertools import permutations

import leaks
import numpy as np
import pytest
from children import ADD, PLATFORM, SLOW, in_child, in_threads, ones, start

import pjrt_hub
from pjrt_hub.errors import ClosedError

LIBC = ctypes.CDLL(None)
ABORT = ctypes.cast(LIBC.abort, ctypes.c_void_p)
ENDS = ("client", "executable", "buffer", "result", "event", "array")


@in_child
@pytest.mark.slow
def test_closing_in_every_order(client):
    """Close or drop a client and its objects in 720 orders."""
    plugin = client.plugin
    close = {"client": "close", "executable": "close", "buffer": "delete", "result": "delete"}
    saved = client.compile(ADD).serialize()
    for number, order in enumerate(permutations(ENDS)):
        c = plugin.client()
        exe = c.compile(ADD) if number % 10 == 0 else c.load(saved)
        b = c.buffer_from_host(np.ones(8, np.float32))
        r = exe(b, b)
        values = (c, exe, b, r, r.ready, r.to_numpy())
        alive = dict(zip(ENDS, values, strict=True))
        del c, exe, b, r, values
        for name in order:
            given_up = alive.pop(name)
            if name in close and number % 2:
                getattr(given_up, close[name])()
            del given_up
            if "array" in alive:
                assert alive["array"].tolist() == [2.0] * 8


@pytest.mark.cpu("shares memory with the host")
def test_children_keep_their_parents(plugin, program, wait_until):
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
    wait_until(lambda: gc.collect() >= 0 and gone() is None)


@in_child
def test_work_in_flight_when_everything_is_closed(client):
    for order in range(6):
        c = client.plugin.client()
        slow = c.compile(SLOW)
        identity = c.buffer_from_host(np.eye(256, dtype=np.float32))
        result = slow(identity, c.buffer_from_host(np.int32(300)))
        event = result.ready
        event.add_done_callback(lambda e: None)
        if order == 0:
            c.close()
        if order == 1:
            slow.close()
            identity.delete()
            result.delete()
            c.close()
        if order == 2:
            del result, identity, slow
            c.close()
        if order == 3:
            result.delete()
            event.wait()
            c.close()
        if order == 4:
            del c, slow, identity, event
        if order == 5:
            c.close()
            del result, event


@in_child
def test_closing_while_another_thread_waits(client):
    result = start(client, 2000)
    said = []

    def wait():
        try:
            said.append(float(result.to_numpy()[0, 0]))
        except ClosedError:
            said.append("closed")

    def close():
        time.sleep(0.05)
        client.close()

    in_threads(wait, wait, wait, wait, close)
    assert len(said) == 4
    assert set(said) <= {1.0, "closed"}


@pytest.mark.slow
@in_child
def test_questions_while_it_closes(client):
    """Some threads query and serialize an executable while another one closes it."""

    def ask(executable):
        with contextlib.suppress(ClosedError):
            while True:
                executable.serialize()
                executable.cost_analysis()
                executable.optimized_program()

    def close(executable, seconds):
        time.sleep(seconds)
        executable.close()

    for turn in range(60):
        executable = client.compile(ADD)
        in_threads(*[partial(ask, executable)] * 4, partial(close, executable, 0.002 * (turn % 5)))


class Forked:
    """The objects of a process that forks; in the child, only arrays of values stay usable."""

    def __init__(self, client):
        executable, buffer = client.compile(ADD), ones(client)
        device, memory, event = client.devices[0], buffer.memory, buffer.ready
        self.pending = start(client, 500)
        self.late = late = self.pending.ready
        self.client, self.executable, self.buffer = client, executable, buffer
        self.array = buffer.to_numpy()
        self.all = (client, executable, buffer, event, device, memory, client.plugin)
        self.uses = [  # fake/test_lifetimes has the others
            *(lambda: executable(buffer, buffer), buffer.to_numpy, buffer.delete, late.wait),
            *(late.is_ready, lambda: client.buffer_from_host([1]), lambda: device.memories),
            *(lambda: memory.kind, lambda: pjrt_hub.client(PLATFORM, offline=True)),
        ]

    def check(self):
        for use in self.uses:
            with pytest.raises(ClosedError, match=r"(?s)fork.*spawn"):
                use()
        assert self.array.tolist() == [1.0] * 8
        assert self.client.closed
        assert self.executable.closed
        assert self.buffer.is_deleted
        for each in self.all:
            repr(each)

    def close(self):
        del self.buffer, self.array
        self.client.close()
        sys.exit(0)


ENDINGS = {"at once": lambda _: os._exit(0), "exit": lambda _: sys.exit(0), "close": Forked.close}
#: Variables that silence the warning of Python 3.12 and newer about a fork beside threads.
FORKS = {"PYTHONWARNINGS": "ignore::DeprecationWarning"}


@pytest.mark.parametrize("end", ENDINGS)
@in_child(**FORKS)
def test_a_forked_child_refuses_everything(client, end):
    forked = Forked(client)
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        forked.check()
        ENDINGS[end](forked)
    assert os.waitpid(pid, 0)[1] == 0
    assert forked.executable(forked.buffer, forked.buffer).tolist() == [2.0] * 8
    forked.late.wait()
    return forked


@in_child(**FORKS)
def test_destructors_do_not_run_in_a_forked_child(client):
    LIBC.__cxa_atexit(ABORT, None, None)
    pid = os.fork()
    if pid == 0:
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    os._exit(0)


@in_child(**FORKS)
def test_a_fork_inside_a_thread_and_multiprocessing(client):
    forked = Forked(client)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=forked.check) for _ in range(3)]
    in_threads(lambda: [process.start() for process in processes])
    for process in processes:
        process.join(60)
        assert process.exitcode == 0, process.exitcode
    return forked


def closed(client, executable, buffer):
    start(client, 10).ready.wait()
    client.close()


def callback(client, executable, buffer):
    result = start(client, 500)
    result.ready.add_done_callback(lambda e: executable(buffer, buffer))
    return result


STATES = {
    "idle": lambda *_: None,
    "running": lambda client, *_: start(client, 500),
    "closed": closed,
    "callback": callback,
}


EXITS = {"exit": sys.exit, "at once": os._exit}


@pytest.mark.parametrize("end", EXITS)
@pytest.mark.parametrize("state", STATES)
@in_child(status=7)
def test_every_way_to_end(client, state, end):
    global alive
    executable, buffer = client.compile(ADD), ones(client)
    alive = [client, executable, buffer, executable(buffer, buffer), buffer.to_numpy()]
    alive += [buffer.ready, STATES[state](client, executable, buffer)]
    EXITS[end](7)


def added(executable, buffer):
    return executable(buffer, buffer).tolist()


def add_later(executable, buffer):
    time.sleep(0.1)
    added(executable, buffer)


OTHER_ENDS = {
    "": lambda *_: None,
    "a word": lambda *_: sys.exit("on purpose"),
    "a signal": lambda *_: os.kill(os.getpid(), 15),
    "use at exit": lambda *given: atexit.register(lambda: print(added(*given))),
    "no modules": lambda *_: sys.modules.clear(),
    "a thread": lambda *given: threading.Thread(target=add_later, args=given).start(),
}


@pytest.mark.parametrize(
    ("end", "status", "stdout", "stderr"),
    [
        ("", 0, "", ""),
        ("a word", 1, "", "on purpose\n"),
        ("a signal", -15, "", ""),
        ("use at exit", 0, f"{[2.0] * 8}\n", ""),
        ("no modules", 0, "", ""),
        ("a thread", 0, "", ""),
    ],
)
def test_other_ways_to_end(child, end, status, stdout, stderr):
    assert child(use_and_end, end, status=status, stderr=stderr) == stdout


def use_and_end(client, end):
    global alive
    alive = client, client.compile(ADD), ones(client)
    added(*alive[1:])
    OTHER_ENDS[end](*alive[1:])


@pytest.mark.cpu("shares memory with the host")
@in_child(status=7)
def test_destructors_registered_while_python_ends_do_not_run(client):
    """A plugin that still works when Python ends registers destructors with its first kernel."""
    global alive
    register = LIBC.__cxa_atexit

    class Last:
        def __del__(self):
            register(ABORT, None, None)

    alive = Last(), ones(client).to_numpy()
    sys.exit(7)


@pytest.mark.slow
@in_child
def test_two_hundred_clients(client):
    """Closed clients leave no open file and no thread behind."""

    def counts():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    options = {"cpu_device_count": 2} if PLATFORM == "cpu" else {}

    def once():
        with client.plugin.client(options) as c:
            b = ones(c)
            c.compile(ADD)(b, b).ready.wait()

    for _ in range(20):
        once()
    files, threads = counts()
    for _ in range(180):
        once()
    deadline = time.monotonic() + 10
    while counts() > (files, threads) and time.monotonic() < deadline:
        time.sleep(0.02)  # an ending thread is counted for a moment
    files_after, threads_after = counts()
    assert files_after <= files + 2
    assert threads_after <= threads + 2


#: Kinds of use that take milliseconds -> the number of uses that is enough here.
SLOW_USES = {"compile": 20, "load": 100, "pickled_executable": 100, "one_client": 50}
SLOW_USES |= {"failed_compile": 200}
#: Uses that programs repeat for days -> the number of uses here.
LONG_LOOPS = dict.fromkeys(("donation_loop", "donated_array", "bound", "arrays"), 100_000)


@pytest.mark.slow
def test_nothing_grows(script):
    """Thousands of uses of each kind, after a warm-up, add under 1 MB and no native object."""
    counts = dict.fromkeys(leaks.KINDS, 2_000) | SLOW_USES | LONG_LOOPS
    done = script("leaks", *(f"{kind}={count}" for kind, count in counts.items()))
    assert (done.returncode, done.stderr) == (0, "")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [kind for kind, *_ in told] == list(leaks.KINDS)
    assert {kind: nbytes for kind, _, nbytes, *_ in told if nbytes > 1 << 20} == {}
    assert {kind: left for kind, *_, left in told if left} == {}


@pytest.mark.slow
@pytest.mark.devices(2)
def test_two_thousand_steps(script):
    """Random use of two devices beside a model: values are right, and misuse is refused."""
    done = script("usage", "2000")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert int(done.stdout) >= 2000
