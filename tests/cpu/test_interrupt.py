"""Ctrl-C in whatever takes long: the exception comes at once, and the process ends in order."""

from __future__ import annotations

import pytest

#: Each would take ten seconds or more; the interrupt comes after half a second.
LONG = {
    "compile": "client.compile(huge)",
    "wait": "start().ready.wait()",
    "wait with a timeout": "start().ready.wait(60)",
    "to_numpy": "start().to_numpy()",
    "asarray": "np.asarray(start())",
    "str": "str(start())",
    "await": "asyncio.run(awaited(start()))",
    "await on trio": "import trio; trio.run(awaited, start())",
    "wait for an execution": "execute().wait()",
    "close": "start(); client.close()",
    "leave a block": "start(); client.__exit__(None, None, None)",
    "await an execution": "asyncio.run(awaited(Ready(execute())))",
}

CODE = """
import asyncio, signal

def square(count):
    # So many products that compiling them takes minutes.
    kind = "tensor<64x64xf32>"
    product = "  %{} = stablehlo.dot_general %{}, %a, contracting_dims = [1] x [0] : ({}, {}) -> {}"
    lines = [product.format(n + 1, n, kind, kind, kind) for n in range(count)]
    head = f"func.func @main(%a: {kind}) -> {kind} {{"
    lines = [head, f"  %0 = stablehlo.add %a, %a : {kind}", *lines, f"  return %{count} : {kind}"]
    return "\\n".join([*lines, "}"])

huge = square(20_000)
slow = client.compile(SLOW)

def start():
    global result
    identity = client.buffer_from_host(np.eye(256, dtype=np.float32))
    result = slow(identity, client.buffer_from_host(np.int32(50_000)))
    return result

def execute():
    identity = client.buffer_from_host(np.eye(256, dtype=np.float32))
    row = [identity, client.buffer_from_host(np.int32(50_000))]
    return slow.execute([row], return_events=True)[1][0]

class Ready:
    def __init__(self, event): self.ready = event

async def awaited(buffer):
    await buffer.ready

def interrupt():
    global sent
    time.sleep(0.5)
    sent = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    WHAT
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - sent)
sys.stdout.flush()
os._exit(0)  # an orderly end would wait for the work
"""


@pytest.mark.parametrize("name", LONG)
def test_an_interrupt_is_heard(child, name):
    out = child(CODE.replace("WHAT", LONG[name])).split()
    assert out[0] == "interrupted"
    assert float(out[1]) < 5  # the work takes ten, more on a busy machine


def test_the_client_is_as_good_as_before(child):
    check = "print(client.compile(ADD)(ones(), ones()).tolist())\n"
    code = CODE.replace("WHAT", LONG["compile"]).replace(
        "sys.stdout.flush", check + "sys.stdout.flush"
    )
    assert child(code).splitlines()[1] == str([2.0] * 8)


def test_a_process_ends_in_order_after_an_interrupted_compile(child):
    end = CODE.replace("WHAT", LONG["compile"]).replace("os._exit(0)", "sys.exit(3)")
    assert child(end, status=3).startswith("interrupted")


@pytest.mark.slow
def test_a_process_ends_in_order_after_an_interrupted_wait(child):
    """It waits no second time, and no destructor runs in which a plugin that is cut off dies."""
    end = CODE.replace("WHAT", LONG["wait"]).replace("50_000", "10_000").replace("os._exit(0)", "")
    assert child(end).startswith("interrupted")


@pytest.mark.slow
def test_a_process_ends_in_order_after_an_interrupted_close(child):
    end = CODE.replace("WHAT", LONG["close"]).replace("50_000", "10_000").replace("os._exit(0)", "")
    assert child(end).startswith("interrupted")


def test_other_threads_run_while_one_waits(child):
    out = child(
        """
        identity = client.buffer_from_host(np.eye(256, dtype=np.float32))
        result = client.compile(SLOW)(identity, client.buffer_from_host(np.int32(2000)))
        count = 0
        def work():
            global count
            while not result.ready.is_ready():
                count += 1
        thread = threading.Thread(target=work)
        thread.start()
        result.ready.wait()
        thread.join()
        print(count > 100)
        """
    )
    assert out == "True\n"


def test_a_signal_handler_that_returns_does_not_end_a_wait(child):
    out = child(
        """
        import signal
        seen = []
        signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        identity = client.buffer_from_host(np.eye(256, dtype=np.float32))
        result = client.compile(SLOW)(identity, client.buffer_from_host(np.int32(2000)))
        result.ready.wait()
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(len(seen) > 0, result.ready.is_ready())
        """
    )
    assert out == "True True\n"


def test_an_interrupt_while_python_exits_ends_it_quietly(child):
    code = CODE.replace("WHAT", "start(); print('started', end=''); sys.exit()")
    code = code.replace("except KeyboardInterrupt", "except ZeroDivisionError")
    code = code.replace("Thread(target=interrupt)", "Thread(target=interrupt, daemon=True)")
    assert child(code, status=-2) == "started"
