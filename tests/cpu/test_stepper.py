"""Steppers carry results into the next call; a fault leaves the state, or says that it is gone."""

import contextlib
import gc
import os
import signal
import threading

import numpy as np
import pytest
from children import in_child, in_threads

from pjrt_hub import CompileOptions
from pjrt_hub.errors import ClosedError, InvalidArgumentError

KIND = "tensor<8xf32>"
#: Adds a fixed %w to the carried %a and %b, and gives their sum with %x as well.
PROGRAM = f"""
func.func public @main(%a: {KIND} {{tf.aliasing_output = 0 : i32}}, %w: {KIND}, %x: {KIND},
                       %b: {KIND}) -> ({KIND}, {KIND}, {KIND}) {{
  %0 = stablehlo.add %a, %w : {KIND}
  %1 = stablehlo.subtract %b, %w : {KIND}
  %2 = stablehlo.add %0, %x : {KIND}
  return %0, %2, %1 : {KIND}, {KIND}, {KIND}
}}
"""
CARRY, W = {0: 0, 2: 3}, np.full(8, 2, np.float32)


def full(value):
    return np.full(8, value, np.float32)


@pytest.fixture
def adding(client):
    return client.compile(PROGRAM)


@pytest.fixture
def step(adding):
    return adding.stepper(CARRY, fixed={1: W}, state={0: full(0), 3: full(100)})


def held(step):
    return {parameter: float(np.asarray(each)[7]) for parameter, each in step.state.items()}


def test_results_become_the_next_arguments(step):
    values = [step(full(10 * n)).tolist()[0] for n in range(5)]
    assert values == [2, 14, 26, 38, 50]
    assert held(step) == {0: 10, 3: 90}
    assert step(full(0)).tolist() == [12] * 8
    assert held(step) == {0: 12, 3: 88}


def test_buffers_are_as_good_as_arrays(client, adding):
    put = client.buffer_from_host
    step = adding.stepper(CARRY, {1: put(W)}, {0: put(full(0)), 3: put(full(0))})
    x = put(full(1))
    assert [step(x).tolist()[0] for _ in range(3)] == [3, 5, 7]


def test_a_snapshot_is_consumed_by_no_step(step):
    step(full(0))
    kept = step.snapshot()
    seen = step.state
    for _ in range(3):
        step(full(0))
    assert seen[0].is_deleted  # Its parameter is donated, that of the other is not.
    assert {each: float(np.asarray(buffer)[0]) for each, buffer in kept.items()} == {0: 2, 3: 98}
    for _ in range(3):
        step.reset(kept)
        assert held(step) == {0: 2, 3: 98}
        assert step(full(0)).tolist() == [4] * 8
    with pytest.raises(ClosedError):
        step.reset({0: seen[0], 3: full(0)})
    assert held(step) == {0: 4, 3: 96}


def test_a_snapshot_is_whole_whatever_other_threads_do(step):
    """The sum stays 100, and no step consumes what is being copied."""
    sums = set()

    def steps():
        for _ in range(500):
            step(full(0))

    def snapshots():
        for _ in range(200):
            sums.add(sum(float(np.asarray(each)[0]) for each in step.snapshot().values()))

    in_threads(steps, steps, snapshots)
    assert sums == {100}


def test_all_results_or_none_may_be_carried(client):
    same = client.compile(f"func.func @main(%a: {KIND}) -> {KIND} {{\n return %a : {KIND} }}")
    step = same.stepper({0: 0}, state={0: full(3)})
    assert step() == ()
    assert held(step) == {0: 3}


def test_many_results_that_are_not_carried(client):
    text = f"func.func @main(%a: {KIND}) -> ({KIND}, {KIND}, {KIND}) {{\n"
    text += f"return %a, %a, %a : {KIND}, {KIND}, {KIND} }}"
    step = client.compile(text).stepper({1: 0}, state={0: full(3)})
    assert [each.tolist() for each in step()] == [[3] * 8, [3] * 8]


@pytest.mark.parametrize(
    ("carry", "fixed", "message"),
    [
        ({}, {}, "no result is carried"),
        ({3: 0}, {}, "result 3 cannot become parameter 0"),
        ({0: 4}, {}, "result 0 cannot become parameter 4"),
        ({0: 0, 1: 0}, {}, "must be different parameters"),
        ({0: 0}, {0: W}, "must be different parameters"),
        ({0: 0}, {9: W}, "must be different parameters"),
        ({2: 3}, {0: W}, "the program donates parameter 0"),
    ],
)
def test_what_cannot_be_carried_or_fixed(adding, carry, fixed, message):
    with pytest.raises(ValueError, match=message):
        adding.stepper(carry, fixed)


def test_another_type_cannot_be_carried(client):
    text = f"func.func @main(%a: {KIND}, %n: tensor<i32>) -> ({KIND}, tensor<i32>) {{\n"
    program = client.compile(f"{text}return %a, %n : {KIND}, tensor<i32> }}")
    with pytest.raises(ValueError, match=r"result 1 is .*, and parameter 0 takes"):
        program.stepper({1: 0})


def test_without_a_state_it_refuses(adding):
    step = adding.stepper(CARRY, fixed={1: W})
    for use in (lambda: step(full(0)), lambda: step.state, step.snapshot):
        with pytest.raises(ValueError, match=r"has no state(.|\n)*hint: step.reset"):
            use()
    with pytest.raises(ValueError, match=r"the carried parameters are \[0, 3\]"):
        step.reset({0: full(0)})
    with pytest.raises(ValueError, match=r"shape"):
        step.reset({0: full(0), 3: np.zeros(9, np.float32)})
    step.reset({0: full(0), 3: full(0)})
    assert step(full(0)).tolist() == [2] * 8


def test_wrong_arguments_leave_the_state(step):
    step(full(0))
    for wrong, error in (
        ((), TypeError),
        ((full(0), full(0)), TypeError),
        ((np.zeros(9, np.float32),), ValueError),
        ((np.zeros(8, np.int32),), TypeError),
        (("text",), TypeError),
    ):
        with pytest.raises(error):
            step(*wrong)
    with pytest.raises(TypeError, match="by position"):
        step(x=full(0))
    assert held(step) == {0: 2, 3: 98}
    assert step(full(0)).tolist() == [4] * 8


def test_a_deleted_weight_or_state_is_refused(client, adding):
    weight = client.buffer_from_host(W)
    step = adding.stepper(CARRY, {1: weight}, {0: full(0), 3: full(0)})
    step(full(0))
    step.state[3].delete()
    with pytest.raises(ClosedError):
        step(full(0))
    step.reset({0: full(0), 3: full(0)})
    weight.delete()
    with pytest.raises(ClosedError):
        step(full(0))


@pytest.mark.cpu("its own words")
def test_a_call_that_the_plugin_refuses_leaves_the_state(step):
    step(full(0))
    with pytest.raises(InvalidArgumentError, match="donated") as caught:
        step(step.state[0])  # The program would read what it donates.
    assert not hasattr(caught.value, "__notes__")
    assert held(step) == {0: 2, 3: 98}
    assert step(full(0)).tolist() == [4] * 8


def test_a_state_that_another_call_consumed_is_gone(adding, step):
    step(full(0))
    adding(step.state[0], W, W, W)
    with pytest.raises(ClosedError, match="argument 0 is a buffer that was deleted") as caught:
        step(full(0))
    [note] = caught.value.__notes__
    assert note == "The state was donated and is gone: step.reset(...) gives a new one."
    with pytest.raises(ValueError, match="has no state"):
        step(full(0))
    step.reset({0: full(0), 3: full(0)})
    assert step(full(0)).tolist() == [2] * 8


def test_threads_take_steps_one_after_the_other(step):
    seen = []
    in_threads(*[lambda: seen.extend(step(full(0)).tolist()[0] for _ in range(50))] * 4)
    assert sorted(seen) == [2 * n for n in range(1, 201)]
    assert held(step) == {0: 400, 3: -300}


@in_child
def test_close_frees_the_state(client):
    step = client.compile(PROGRAM).stepper(CARRY, {1: W}, {0: full(0), 3: full(100)})
    for _ in range(5):
        result = step(full(0))
    assert result.tolist() == [10] * 8
    client.close()
    for use in (lambda: step(full(0)), lambda: step.state, lambda: step.reset({0: W, 3: W})):
        with pytest.raises(ClosedError):
            use()


def test_its_state_is_among_the_clients_buffers(client, step):
    for _ in range(2):  # The state of the first step is Buffers, that of the second is not.
        step(full(0))
        shown = {each.address for each in client.live_buffers()}
        assert {each.address for each in step.state.values()} <= shown


@in_child
def test_nothing_is_left_of_a_stepper(client):
    program = client.compile(PROGRAM)
    gc.collect()
    before = client._num_children
    for _ in range(3):
        step = program.stepper(CARRY, {1: W}, {0: full(0), 3: full(100)})
        for _ in range(5):
            result = step(full(0))
        assert result.tolist() == [10] * 8
    step.state[0].delete()
    del step, result
    gc.collect()
    assert client._num_children == before


@in_child
def test_a_forked_child_is_refused(client):
    step = client.compile(PROGRAM).stepper(CARRY, {1: W}, {0: W, 3: W})
    step(full(0))
    if os.fork() == 0:
        with pytest.raises(ClosedError):
            step(full(0))
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
    assert step(full(0)).tolist() == [6] * 8


@in_child
def test_ctrl_c_leaves_a_state(client):
    step = client.compile(PROGRAM).stepper(CARRY, {1: W}, {0: full(0), 3: full(0)})
    threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,)).start()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            step(full(0))
    state = held(step)
    assert state[0] == -state[3] > 0
    assert step(full(1)).tolist()[0] == state[0] + 3


def test_rows_of_several_devices(pair):
    """Each device has a state of its own."""
    program = pair.compile(PROGRAM, CompileOptions(num_replicas=2))
    state = {0: [full(0), full(1)], 3: [full(100), full(200)]}
    step = program.stepper(CARRY, {1: [W, W * 2]}, state)
    for _ in range(3):
        results = step([[full(0)], [full(10)]])
    assert [each.tolist()[0] for each in results] == [6, 23]
    rows = {each: [float(np.asarray(b)[0]) for b in row] for each, row in step.state.items()}
    assert rows == {0: [6, 13], 3: [94, 188]}
    kept = step.snapshot()
    step([[full(0)], [full(0)]])
    step.reset(kept)
    assert [each.tolist()[0] for each in step([[full(0)], [full(0)]])] == [8, 17]
    with pytest.raises(TypeError, match="needs a row of 2"):
        step.reset({0: [full(0)], 3: [full(0), full(0)]})
    with pytest.raises(ValueError, match="has no state"):
        program.stepper(CARRY, {1: [W, W]})([[full(0)], [full(0)]])


@pytest.fixture
def rows(pair):
    program = pair.compile(PROGRAM, CompileOptions(num_replicas=2))
    return program.stepper(CARRY, {1: [W, W]}, {0: [full(0)] * 2, 3: [full(100)] * 2})


def test_a_row_that_does_not_fit_leaves_the_state(rows, pair):
    here, there = (pair.buffer_from_host(full(1), device=each) for each in pair.devices)
    short = pair.buffer_from_host(full(1)[:3])
    gone = pair.buffer_from_host(full(1))
    gone.delete()
    good = [full(1), full(1)]
    for row, error in (
        ([there, here], ValueError),
        ([short, there], ValueError),
        ([pair.buffer_from_host(W.astype("i4")), there], TypeError),
        ([gone, there], ClosedError),
        (full(1)[0], TypeError),
    ):
        for state in ({0: row, 3: good}, {0: good, 3: row}):
            with pytest.raises(error):
                rows.reset(state)
        with pytest.raises(error):
            rows.executable.stepper(CARRY, {1: row})
    assert [each.tolist()[0] for each in rows([[full(0)], [full(0)]])] == [2, 2]


def test_rows_are_as_many_as_devices_and_arguments(rows):
    with pytest.raises(TypeError, match="a step takes 2 rows, one a device; 3 given"):
        rows([[full(0)]] * 3)
    with pytest.raises(TypeError, match="a step takes 1 argument, 2 given"):
        rows([[full(0)], [full(0)] * 2])
    rows.executable.close()
    with pytest.raises(ClosedError):
        rows.reset({0: [full(0)] * 2, 3: [full(0)] * 2})


class Within:
    """An argument that uses the stepper while it is put."""

    def __init__(self, use):
        self.use = use

    def __dlpack_device__(self):
        return full(0).__dlpack_device__()

    def __dlpack__(self, **how):
        self.use()
        return full(0).__dlpack__(**how)


def test_a_step_within_a_step_is_refused(step, rows):
    with pytest.raises(RuntimeError, match="inside a step"):
        step(Within(lambda: step(full(0))))
    inner = Within(lambda: rows([[full(0)], [full(0)]]))
    with pytest.raises(RuntimeError, match="inside a step"):
        rows([[inner], [full(0)]])
    assert step(full(0)).tolist() == [2] * 8
    assert rows([[full(0)], [full(0)]])[0].tolist() == [2] * 8


@in_child
def test_ctrl_c_ends_the_wait_for_another_threads_step(client):
    step = client.compile(PROGRAM).stepper(CARRY, {1: W}, {0: full(0), 3: full(0)})
    entered, enough = threading.Event(), threading.Event()

    def wait():
        entered.set()
        enough.wait(60)

    other = threading.Thread(target=step, args=(Within(wait),))
    other.start()
    entered.wait(60)
    for use in (lambda: step(full(0)), lambda: step.state, lambda: step.reset({0: W, 3: W})):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            use()
        assert not enough.is_set()
    enough.set()
    other.join()
    assert held(step) == {0: 2, 3: -2}
