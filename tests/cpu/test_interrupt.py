"""Ctrl-C in long work raises at once, and the process goes on or ends in order.

test_exit.py has every kind of work that it ends.
"""

import atexit
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from children import ADD, in_child, ones, promise, start
from texts import products

SLOWEST = 50_000  # rounds that take ten seconds


def begin(client, rounds=SLOWEST):
    """Start work and keep its result until the process ends."""
    global result
    result = start(client, rounds)
    return result


def close(client, end, rounds=SLOWEST):
    begin(client, rounds)
    end()


def compile_much(client):
    client.compile(products())


def interrupt(work, client):
    """Do work that must end at once when Ctrl-C comes half a second later."""
    sent = []

    def send():
        time.sleep(0.5)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        threading.Thread(target=send).start(), work(client)
    assert time.monotonic() - sent[0] < 5  # the work takes ten seconds or more


@in_child(status=7)
def test_the_client_is_as_good_as_before(client):
    interrupt(compile_much, client)
    assert client.compile(ADD)(ones(client), ones(client)).tolist() == [2.0] * 8
    os._exit(7)


@in_child(status=3)
def test_a_process_ends_in_order_after_an_interrupted_compile(client):
    interrupt(compile_much, client)
    sys.exit(3)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["wait", "close"])
@in_child
def test_a_process_ends_in_order_after_an_interrupted(client, what):
    """It does not wait again, and runs no destructor in which an interrupted plugin would crash."""
    if what == "wait":
        interrupt(lambda client: begin(client, 10_000).ready.wait(), client)
    else:
        interrupt(lambda client: close(client, client.close, 10_000), client)
    return client


STOPPED = "sleep 0.5; kill -STOP {0}; sleep 0.1; kill -INT {0}; kill -CONT {0}"


@in_child(status=7)
def test_an_interrupt_of_a_stopped_process_is_heard(client):
    """After a stop, any thread may get the signal, which then does not wake the main thread."""
    with pytest.raises(KeyboardInterrupt):
        subprocess.Popen(["sh", "-c", STOPPED.format(os.getpid())]), compile_much(client)
    os._exit(7)


@in_child
def test_other_threads_run_while_one_waits(client):
    (result, keep), seen = promise(client), []

    def work():
        while len(seen) < 100:
            seen.append(result.ready.is_ready())
        keep()

    thread = threading.Thread(target=work)
    thread.start()
    result.ready.wait()
    thread.join()
    assert seen == [False] * 100


@in_child
def test_a_signal_handler_that_returns_does_not_end_a_wait(client):
    (result, keep), seen = promise(client), []

    def handle(*_):
        seen.append(result.ready.is_ready())
        if len(seen) == 3:
            keep()

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    result.ready.wait()
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert seen[:3] == [False] * 3
    assert result.ready.is_ready()


@in_child(stdout="started", status=-2)
def test_an_interrupt_while_python_exits_ends_it_quietly(client):
    ends = threading.Event()

    def send():
        ends.wait()
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    begin(client)
    print("started", end="")
    atexit.register(ends.set)  # atexit runs the latest function first
    threading.Thread(target=send, daemon=True).start()
    sys.exit()
