"""How a process ends while the plugin works: at once after Ctrl-C, otherwise in order."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

#: Code that starts a minute of work. The exit waits for that work, except after Ctrl-C.
SETUP = """
import asyncio, atexit, contextlib, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import pjrt_hub

sys.path.insert(0, {folder!r})
from children import PLATFORM, SLOW
from texts import products

client = pjrt_hub.client(PLATFORM, offline=True)
slow = client.compile(SLOW)
identity = client.buffer_from_host(np.eye(256, dtype=np.float32))
rounds = client.buffer_from_host(np.int32({rounds}))

def start(): return slow(identity, rounds)

def ready(): print("ready", flush=True)

async def awaited(buffer): await buffer.ready

def launch_for_ever():
    while True: last = slow(identity, rounds)

def wait_in_thread(wait, **how):
    thread = threading.Thread(target=wait, **how)
    thread.start()
    time.sleep(0.2)
    return thread
"""
#: A name -> what the main thread does when the signal arrives.
STATES = {
    "waits for an event": "result = start(); ready(); result.ready.wait()",
    "waits with a timeout": "result = start(); ready(); result.ready.wait(60)",
    "reads": "result = start(); ready(); result.to_numpy()",
    "asks numpy": "result = start(); ready(); np.asarray(result)",
    "shows": "result = start(); ready(); str(result)",
    "waits for an execution": (
        "done = slow.execute([[identity, rounds]], return_events=True)[1]; ready(); done[0].wait()"
    ),
    "awaits": "result = start(); ready(); asyncio.run(awaited(result))",
    "awaits on trio": "import trio; result = start(); ready(); trio.run(awaited, result)",
    "awaits an execution": (
        "done = slow.execute([[identity, rounds]], return_events=True)[1][0]\n"
        "async def ended(): await done\nready(); asyncio.run(ended())"
    ),
    "compiles": "program = products(); ready(); client.compile(program)",
    "launches the 33rd": "ready(); launch_for_ever()",
    "launches bound calls": "call = slow.bind(identity, rounds); ready()\nwhile 1: last = call()",
    "closes the client": "result = start(); ready(); client.close()",
    "leaves a with statement": "ready()\nwith client: start()",
    "closes the executable": "result = start(); ready(); slow.close(); result.tolist()",
    "deletes a buffer": "result = start(); ready(); result.delete(); identity.delete(); start()",
    "ends": "result = start(); ready()",
    "ends by sys.exit": "result = start(); ready(); sys.exit(3)",
    "ends, a daemon thread waits": (
        "result = start(); wait_in_thread(result.ready.wait, daemon=True); ready()"
    ),
    "sleeps while a program runs": "result = start(); ready(); time.sleep(60)",
    "waits for a daemon thread that reads": (
        "thread = wait_in_thread(start().tolist, daemon=True); ready(); thread.join()"
    ),
    "handles it and ends": (
        "result = start(); ready()\ntry: result.tolist()\nexcept KeyboardInterrupt: sys.exit(3)"
    ),
    "drops the client": "result = start(); ready(); del result, identity, rounds, slow, client",
    "puts while a pool waits": (
        "pool = ThreadPoolExecutor(2); wait_in_thread(start().tolist, daemon=True); ready()\n"
        "while True: pool.submit(client.buffer_from_host, np.ones(8)).result()"
    ),
}


@pytest.fixture(scope="module")
def begin(clean_env):
    """Start a process, and return it once it reports that it is ready."""

    def begin(code, rounds=400_000):
        setup = SETUP.format(folder=str(Path(__file__).parent), rounds=rounds)
        process = subprocess.Popen(
            [sys.executable, "-c", setup + textwrap.dedent(code)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_env,
        )
        assert process.stdout.readline() == "ready\n", process.communicate()
        return process

    return begin


@pytest.mark.parametrize("state", STATES)
@pytest.mark.slow
def test_ctrl_c_ends_a_process_within_a_second(begin, state):
    def interrupted():
        process = begin(STATES[state])
        return ended_by_ctrl_c(process, 3 if "handles" in state else -signal.SIGINT)

    assert soonest(interrupted) < 1


@pytest.mark.parametrize("again", ["result.tolist()", "client.close()", "launch_for_ever()"])
@pytest.mark.slow
def test_a_second_ctrl_c_ends_what_goes_on_after_the_first(begin, again):
    def interrupted():
        process = begin(
            "result = start(); ready()\ntry: result.tolist()\n"
            f"except KeyboardInterrupt:\n    ready(); {again}"
        )
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "ready\n"
        return ended_by_ctrl_c(process, -signal.SIGINT)

    assert soonest(interrupted) < 1


def ended_by_ctrl_c(process, status):
    """The seconds from Ctrl-C to the end of a process."""
    time.sleep(0.5)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == status, err
    return time.monotonic() - begin


def soonest(attempt):
    """The shortest time of up to eight attempts, since a busy machine can slow some of them."""
    took = 60.0
    for _ in range(8):
        took = min(took, attempt())
        if took < 1:
            break
    return took


#: A name -> what daemon threads do when the main thread ends.
DAEMONS = {
    "wait": "result = start(); begin(lambda: result.ready.wait())",
    "launch": "begin(launch_for_ever); begin(launch_for_ever)",
    "read": "begin(lambda: [start().tolist() for _ in range(1000)])",
    "wait, launch and read": (
        "result = start(); begin(lambda: result.ready.wait()); begin(launch_for_ever)\n"
        "begin(lambda: [np.asarray(start()) for _ in range(1000)])"
    ),
    "wait for what never comes": (
        "promise = pjrt_hub.Alias(client, (8,)); begin(promise.buffer.ready.wait)"
    ),
    "make clients": (
        "def work():\n"
        "    while True: pjrt_hub.client('cpu', offline=True).compile(SLOW)\n"
        "begin(work)"
    ),
}


@pytest.mark.parametrize("work", DAEMONS)
@pytest.mark.parametrize("end", ["return", "exit"])
@pytest.mark.slow
def test_a_process_ends_in_order_beside_daemon_threads(begin, work, end):
    code = f"""
def begin(work): threading.Thread(target=work, daemon=True).start()
{DAEMONS[work]}
time.sleep(0.05)
ready()
"""
    for _ in range(int(os.environ.get("PJRT_HUB_TEST_EXITS", "2"))):
        process = begin(code + ("sys.exit(3)" if end == "exit" else ""), rounds=50)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (3 if end == "exit" else 0, "")
