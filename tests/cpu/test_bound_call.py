"""Bound calls give right values every time and refuse deleted, donated or closed objects."""

import os
import threading
import time

import numpy as np
import pytest
from children import ADD, in_child, in_threads, ones

from pjrt_hub import CompileOptions
from pjrt_hub.errors import ClosedError
from pjrt_hub.running.executable.loaded_executable import BoundCall

NUMBERS = np.arange(8, dtype=np.float32)
SUM = [2 * n + 1 for n in range(8)]


def test_values(executables, vector):
    a, b = vector(), vector(1)
    call = executables("add").bind(a, b)
    assert isinstance(call, BoundCall)
    assert repr(call).startswith("<BoundCall of <LoadedExecutable main (f32[8], f32[8])")
    assert call.executable is executables("add")
    assert call.arguments == ((a, b),)
    results = [call() for _ in range(3)]
    assert [result.tolist() for result in results] == [SUM] * 3
    assert len({result.address for result in results}) == 3


def test_it_holds_its_arguments(executables, vector):
    call = executables("add").bind(vector(), vector(1))
    others = [vector(9) for _ in range(50)]  # new buffers would reuse freed memory
    assert call().tolist() == SUM
    del others


def test_no_arguments_and_no_results(client, executables, vector):
    assert executables("no_args").bind()().tolist() == list(range(8))
    empty = client.compile("func.func @main(%a: tensor<8xf32>) { return }")
    assert empty.bind(vector())() == ()


def test_simplify(executables, vector):
    add = executables("add")
    assert [each.tolist() for each in add.bind(vector(), vector(1), simplify=False)()] == [SUM]
    [row] = add.bind_rows([[vector(), vector(1)]])()
    assert [each.tolist() for each in row] == [SUM]


def test_it_takes_no_arguments(executables, vector):
    call = executables("add").bind(vector(), vector(1))
    for use in (lambda: call(vector()), lambda: call(simplify=True), lambda: call(*[vector()] * 2)):
        with pytest.raises(TypeError, match=r"has its arguments already(.|\n)*hint: exe\(a, b\)"):
            use()
    assert call().tolist() == SUM


def test_wrong_arguments(client, executables, vector):
    add = executables("add")
    whole = client.buffer_from_host(np.arange(8))
    for arguments, kind, words in (
        ((vector(),), TypeError, "takes 2 arguments, 1 given"),
        ((vector(), 3), TypeError, r"argument 1 of 2 must be f32\[8\] in a .* array, not int"),
        ((vector(), whole), TypeError, "argument 1 of 2 .* elements of i64"),
        ((client.buffer_from_host(np.ones(4, np.float32)), vector()), ValueError, r"shape \(4,\)"),
    ):
        with pytest.raises(kind, match=words):
            add.bind(*arguments)
        with pytest.raises(kind, match=words):
            add.bind_rows([arguments])


@pytest.mark.parametrize("end", ["deleted", "taken by another program"])
def test_an_argument_that_is_gone(executables, vector, end):
    a, b = vector(), vector(1)
    call = executables("add").bind(a, b)
    b.delete() if end == "deleted" else executables("donate")(b, a)
    for use in (call, call, lambda: executables("add").bind(a, b)()):
        with pytest.raises(ClosedError, match="argument 1 is a buffer that was deleted or donated"):
            use()
    assert a.tolist() == NUMBERS.tolist()


def test_a_program_that_donates(executables, vector):
    a, b = vector(), vector(1)
    with pytest.raises(ValueError, match=r"donates argument 0(.|\n)*hint: .*x = exe\(x, b\)"):
        executables("donate").bind(a, b)
    assert not a.is_deleted


def test_closed(own, program, vector):
    put = own.buffer_from_host
    add, other = own.compile(program("add")), own.compile(program("add"))
    calls = [exe.bind(put(NUMBERS), put(NUMBERS)) for exe in (add, other)]
    add.close()
    with pytest.raises(ClosedError, match="the executable is closed"):
        calls[0]()
    with pytest.raises(ClosedError, match="the executable is closed"):
        add.bind(put(NUMBERS), put(NUMBERS))
    assert calls[1]().tolist() == (2 * NUMBERS).tolist()
    assert repr(calls[0]) == "<BoundCall of <LoadedExecutable closed>>"
    own.close()
    with pytest.raises(ClosedError, match="the client is closed"):
        calls[1]()


@in_child(PYTHONWARNINGS="ignore::DeprecationWarning")
def test_after_a_fork(client):
    call = client.compile(ADD).bind(ones(client), ones(client))
    call()
    pid = os.fork()
    if pid == 0:
        with pytest.raises(ClosedError, match="this client was made before a fork"):
            call()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert call().tolist()[0] == 2.0


@in_child
def test_threads_and_a_client_that_closes(client):
    """Each call returns a value or raises; none crashes."""
    call = client.compile(ADD).bind(ones(client), ones(client))
    started, ends = threading.Barrier(5), []

    def many():
        started.wait()
        try:
            while True:
                call()
        except ClosedError:
            ends.append("closed")

    def close():
        started.wait()
        time.sleep(0.1)
        client.close()

    in_threads(many, many, many, many, close)
    assert ends == ["closed"] * 4


def test_rows_of_two_devices(pair, program):
    add = pair.compile(program("add"), CompileOptions(num_replicas=2))
    rows = [
        [pair.buffer_from_host(NUMBERS + n, device=device)] * 2
        for n, device in enumerate(pair.devices)
    ]
    call = add.bind_rows(rows)
    for _ in range(20):
        results = call()
        assert isinstance(results, list)
        assert [[each.tolist() for each in row] for row in results] == [
            [(2 * (NUMBERS + n)).tolist()] for n in range(2)
        ]
        assert [row[0].device for row in results] == list(pair.devices)
    with pytest.raises(TypeError, match=r"runs on 2 devices(.|\n)*bind_rows"):
        add.bind(*rows[0])
    with pytest.raises(ValueError, match="is on"):
        add.bind_rows(rows[::-1])
    with pytest.raises(TypeError, match="2 devices, arguments for 1"):
        add.bind_rows(rows[:1])
    rows[1][0].delete()
    with pytest.raises(ClosedError, match="argument 0 is a buffer that was deleted"):
        call()


def test_rows_of_which_another_program_took_one(pair, program):
    """It is noticed before any device starts, since that one would wait for the other for ever."""
    add = pair.compile(program("add"), CompileOptions(num_replicas=2))
    donate = pair.compile(program("donate"), CompileOptions(num_replicas=1, device_ids=[[1]]))
    rows = [[pair.buffer_from_host(NUMBERS, device=device)] * 2 for device in pair.devices]
    call = add.bind_rows(rows)
    donate(rows[1][0], pair.buffer_from_host(NUMBERS, device=pair.devices[1]))
    with pytest.raises(ClosedError, match="argument 0 is a buffer that was deleted or donated"):
        call()
    fresh = [[pair.buffer_from_host(NUMBERS, device=device)] * 2 for device in pair.devices]
    assert add.bind_rows(fresh)()[1][0].tolist() == (2 * NUMBERS).tolist()
