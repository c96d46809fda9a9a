"""Launches that keep the GIL: only where asked for, brief, and where nothing waits for Python."""

from __future__ import annotations

import numpy as np
import pytest

NUMBERS = np.arange(8, dtype=np.float32)


def test_off_by_default(child):
    """In a process of its own: in this one other tests register custom calls."""
    printed = child("""
        add = client.compile(ADD)
        print(add.gil)
        add.gil = "adaptive"
        numbers = np.arange(8, dtype=np.float32)
        bound = add.bind(numbers, numbers)
        values = [tuple(call().tolist()) for call in [bound, lambda: add(numbers, numbers)] * 200]
        print(add.gil, set(values))
        add.gil = "release"
        print(add.gil)
        for end in (lambda: None, add.close):
            end()
            for mode in ("hold", "adaptive"):
                try:
                    add.gil = mode
                except (ValueError, ClosedError) as exc:
                    print(str(exc).splitlines()[0])
    """)
    assert printed.splitlines() == [
        "release",
        f"adaptive {{{tuple((2 * NUMBERS).tolist())}}}",
        "release",
        'gil is \'hold\', neither "release" nor "adaptive"',
        'gil is \'hold\', neither "release" nor "adaptive"',
        "the executable is closed",
    ]


def test_where_launches_take_turns(pair, program):
    with pytest.raises(ValueError, match=r"cannot keep Python's lock: .* several devices"):
        pair.compile(program("add")).gil = "adaptive"


#: Counts, beside calls, what a thread in Python gets done. With a switch interval of half a second
#: it keeps the lock for so long once it has it, and whoever lets go of it often loses it.
BUSY = """
def fast(program, mode):
    executable = client.compile(program)
    executable.gil = mode
    for _ in range(100): executable(*arguments)
    return executable
count, stop = 0, False
def busy():
    global count
    while not stop: count += 1
def kept(executable, calls):
    "Whether the thread got nothing done during the calls."
    global stop
    stop = False
    thread = threading.Thread(target=busy)
    thread.start()
    for _ in range(200): executable(*arguments)
    sys.setswitchinterval(0.5)
    before = count
    for _ in range(calls):
        executable(*arguments)
        if count != before: break
    after = count
    sys.setswitchinterval(0.005)
    stop = True
    thread.join()
    return after == before
"""


def test_brief_launches_keep_it(child):
    """In one round of five at least: a launch may take long by chance."""
    printed = child(
        BUSY
        + """
arguments = [ones(), ones()]
executable = fast(ADD, "adaptive")
print(any(kept(executable, 1000) for _ in range(5)))
"""
    )
    assert printed == "True\n"


def test_the_default_lets_go(child):
    printed = child(
        BUSY
        + """
arguments = [ones(), ones()]
executable = fast(ADD, "release")
print(any(kept(executable, 100_000) for _ in range(3)))
"""
    )
    assert printed == "False\n"


def test_long_launches_let_go(child):
    """The program runs 2 ms in the background; beyond 32 launches wait for a place."""
    printed = child(
        BUSY
        + """
arguments = [client.buffer_from_host(np.eye(256, dtype=np.float32))]
arguments.append(client.buffer_from_host(np.int32(10)))
executable = fast(SLOW, "adaptive")
print(kept(executable, 200))
"""
    )
    assert printed == "False\n"


def test_a_promise_that_another_thread_keeps(child):
    """More launches wait for it than may be under way, so that one waits for them."""
    printed = child("""
        add = client.compile(ADD)
        add.gil = "adaptive"
        one = ones()
        for _ in range(100): add(one, one)
        alias = client.create_alias_buffer((8,))
        timer = threading.Timer(0.2, lambda: alias.fulfill(ones()))
        timer.start()
        results = [add(alias.buffer, one) for _ in range(100)]
        print({result.tolist()[0] for result in results})
        timer.join()
        assert add.gil == "adaptive"
    """)
    assert printed == "{2.0}\n"


def test_a_custom_call_in_python(child):
    """It needs the lock on another thread while launches wait for it."""
    printed = child("""
        CALL = '''func.func @main(%a: tensor<8xf32>, %b: tensor<256x256xf32>) -> tensor<8xf32> {
          %0 = stablehlo.custom_call @slowly(%a) {api_version = 4 : i32, backend_config = {}}
            : (tensor<8xf32>) -> tensor<8xf32>
          return %0 : tensor<8xf32>
        }'''
        add = client.compile(ADD)
        add.gil = "adaptive"
        one = ones()
        for _ in range(100): add(one, one)
        def slowly(a, out):
            time.sleep(0.05)
            out[...] = a + 1
        client.plugin.ffi.register("slowly", slowly)
        calling = client.compile(CALL)
        slow = client.compile(SLOW)
        eye = client.buffer_from_host(np.eye(256, dtype=np.float32))
        pending = slow(eye, client.buffer_from_host(np.int32(500)))
        result = calling(one, pending)
        assert not result.ready.is_ready()
        results = [add(result, one) for _ in range(100)]
        print({each.tolist()[0] for each in results})
        try:
            calling.gil = "adaptive"
        except ValueError as exc:
            print(exc)
    """)
    assert printed.splitlines()[0] == "{3.0}"
    assert "a custom call, host callback or key-value store may need it" in printed
