"""Custom calls with a state: made when a program is compiled, found by its calls, freed with it."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref

import numpy as np
import pytest
from children import in_child, in_threads, ones
from texts import custom_call

from pjrt_hub.errors import AlreadyExistsError, InvalidArgumentError

NUMBERS = itertools.count()

PROGRAM = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @NAME(%a) {api_version = 4 : i32, backend_config = {size = 3 : i32}}
      : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.custom_call @NAME(%0) {api_version = 4 : i32, backend_config = {size = 5 : i32}}
      : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
"""


class Plan:
    """A state that can be watched."""

    def __init__(self, size):
        self.size = size
        self.calls = 0


@pytest.fixture
def staged(plugin, client):
    """Register a function that multiplies by its state's size, and compile two calls of it."""

    def staged(instantiate, function=None):
        def multiply(a, out, *, size):
            plan = plugin.ffi.current.state
            plan.calls += 1
            assert plan.size == size
            out[...] = a * plan.size

        name = f"staged_{next(NUMBERS)}"
        plugin.ffi.register(name, function or multiply, instantiate=instantiate)
        return lambda: client.compile(PROGRAM.replace("NAME", name))

    return staged


@pytest.fixture
def vector(client):
    return client.buffer_from_host(np.arange(4, dtype=np.float32))


def test_each_call_of_a_program_has_a_state(staged, vector):
    made = []

    def instantiate(*, size):
        made.append(Plan(size))
        return made[-1]

    executable = staged(instantiate)()
    assert sorted(plan.size for plan in made) == [3, 5]
    for _ in range(3):
        assert executable(vector).tolist() == [0, 15, 30, 45]
    assert [plan.calls for plan in made] == [3, 3]
    assert len(made) == 2


def test_a_state_ends_with_its_program(staged, vector, wait_until):
    made = []

    def instantiate(*, size):
        plan = Plan(size)
        made.append(weakref.ref(plan))
        return plan

    compile = staged(instantiate)
    first, second = compile(), compile()
    assert first(vector).tolist() == second(vector).tolist()
    gc.collect()
    assert [plan() is None for plan in made] == [False] * 4
    first.close()
    wait_until(lambda: gc.collect() >= 0 and all(plan() is None for plan in made[:2]))
    assert [plan() is None for plan in made[2:]] == [False] * 2
    assert second(vector).tolist() == [0, 15, 30, 45]
    second.close()
    wait_until(lambda: gc.collect() >= 0 and all(plan() is None for plan in made))


def test_without_a_state(plugin, staged, vector):
    seen = []

    def function(a, out, *, size):
        seen.append(plugin.ffi.current.state)
        out[...] = a

    executable = staged(lambda *, size: None, function)()
    assert executable(vector).tolist() == [0, 1, 2, 3]
    assert seen == [None, None]


def test_a_state_that_cannot_be_made_fails_the_compilation(staged):
    def instantiate(*, size):
        raise ValueError(f"{size} is too much")

    with pytest.raises(InvalidArgumentError, match="is too much"):
        staged(instantiate)()


def test_states_and_threads(staged, vector):
    lock = threading.Lock()

    def instantiate(*, size):
        plan = Plan(size)
        plan.lock = lock
        return plan

    executable = staged(instantiate)()
    answers = []
    in_threads(*[lambda: answers.append(executable(vector).tolist())] * 8)
    assert answers == [[0, 15, 30, 45]] * 8


def test_what_is_refused(plugin):
    plugin.ffi.register("staged_once", print, instantiate=dict)
    with pytest.raises(AlreadyExistsError):
        plugin.ffi.register("staged_once", print, instantiate=dict)
    for stage in ("instantiate", "prepare", "initialize"):
        with pytest.raises(TypeError, match="neither a Python function"):
            plugin.ffi.register("never", print, **{stage: "text"})
        with pytest.raises(ValueError, match="no code"):
            plugin.ffi.register("never", print, **{stage: 4096})


class Bare:
    """A state that is alive when Python ends."""


@in_child
def test_a_state_at_the_end_of_python(client):
    def use(a, out):
        out[...] = a + (type(client.plugin.ffi.current.state) is Bare)

    client.plugin.ffi.register("use", use, instantiate=Bare)
    executable = client.compile(custom_call("use"))
    assert executable(ones(client)).tolist()[0] == 2.0
    return client, executable
