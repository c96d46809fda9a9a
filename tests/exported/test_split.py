"""Functions for several devices, on a client that has four."""

import numpy as np
import pytest

import pjrt_hub
from pjrt_hub.errors import NotRunnableError
from pjrt_hub.frameworks.exported import reading, specialisation
from pjrt_hub.running.program import op_sharding
from pjrt_hub.running.program.entry import signature

from .conftest import RELEASES

needs_jaxlib = pytest.mark.skipif(not specialisation.has_jaxlib(), reason="jaxlib is not installed")
A = np.arange(16, dtype=np.float32).reshape(4, 4)
B = np.arange(24, dtype=np.float32).reshape(4, 6)
ROWS = np.arange(32, dtype=np.float32).reshape(8, 4)


@pytest.fixture(scope="module")
def four(client):
    with client.plugin.client({"cpu_device_count": 4}) as four:
        yield four


@pytest.fixture
def spread(four, path):
    return lambda name: pjrt_hub.load_exported(path(name), client=four)


def shapes(slots):
    return [slot.shape for slot in slots]


def turns_and_doubles(function, rows=ROWS):
    turned, doubled = function(rows)
    np.testing.assert_array_equal(turned, rows.T)
    np.testing.assert_array_equal(doubled, rows * 2)


@pytest.mark.parametrize("name", ["split", *(f"split-{release}" for release in RELEASES)])
def test_whole_arrays_in_and_out_and_what_each_device_has(spread, four, name):
    """Files are split by Shardy, by its attributes as JAX 0.6 wrote them, or by the older GSPMD."""
    multiply = spread(name)
    assert multiply.nr_devices == 4
    result = multiply(A, four.buffer_from_host(B))
    np.testing.assert_allclose(result["c"], A @ B)
    assert float(result["n"]) == A.sum()
    executable = multiply.compile()
    assert len(executable.devices) == 4
    compiled, declared = executable.signature, signature(multiply.function.program)
    assert shapes(compiled.parameters) == [(2, 2), (1, 6)]
    assert list(map(str, declared.parameters)) == list(map(str, compiled.parameters))
    assert list(map(str, declared.outputs)) == list(map(str, compiled.outputs))
    with pytest.raises(ValueError, match=r"args\[1\]: expected f32\[4,6\], found f32\[4,4\]"):
        multiply(A, A)


def test_what_is_left_to_the_compiler_is_not_known(path):
    entry = signature(reading.read(path("open_platforms")).program)
    assert shapes(entry.parameters) == [(), (4, 2)]
    assert shapes(entry.outputs) == [None, None]


@pytest.mark.parametrize("name", ["open", "open_platforms", "open_gspmd", "open_in"])
def test_what_is_left_to_the_compiler(spread, name):
    """The compiler splits the results, or the arguments of `open_in`, as it likes."""
    function = spread(name)
    turns_and_doubles(function)
    signature = function.compile().signature
    if name != "open_in":
        assert shapes(signature.parameters)[-1] == (4, 2)
    if name in ("open", "open_platforms"):  # the compiler of GSPMD leaves the results whole
        assert shapes(signature.outputs) == [(2, 4), (4, 2)]


TOTAL = ROWS.reshape(4, 2, 4).sum(0)


@needs_jaxlib
@pytest.mark.parametrize("release", ["0.11.2", "0.12.0.1"])
def test_groups_of_devices_that_are_axes_of_a_mesh(spread, release):
    """The plugin's StableHLO does not have them yet, and no operation's name shows their use."""
    total = spread(f"total-{release}")
    assert total.stablehlo_version == "1.18.0"
    np.testing.assert_array_equal(total(ROWS), TOTAL)


def test_they_take_jaxlib_where_the_plugin_is_older(spread, reads, monkeypatch):
    monkeypatch.setattr(specialisation, "has_jaxlib", lambda: False)
    total = spread("total-0.12.0.1")
    if reads("1.16.0"):  # the plugin has that attribute
        np.testing.assert_array_equal(total(ROWS), TOTAL)
        return
    with pytest.raises(NotRunnableError, match="unknown vhlo attribute code: 23") as caught:
        total(ROWS)
    assert "must be written for that" in caught.value.message
    assert "install jaxlib (jax itself is not needed), best 0.12.0.1" in caught.value.hint


@needs_jaxlib
def test_symbolic_sizes_over_devices(spread):
    function = spread("open_symbolic")
    for rows in (ROWS, ROWS[:4]):
        turns_and_doubles(function, rows)


def test_six_rows_on_four_devices(spread):
    """Three devices have two rows each, and the last has none."""
    function = spread("uneven")
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    np.testing.assert_array_equal(function(rows), rows * 2)
    assert shapes(function.compile().signature.outputs) == [(2, 2)]


def test_too_few_devices(load):
    with pytest.raises(NotRunnableError, match="was exported for 4 devices, and the client has 1"):
        load("split")


def test_a_compiler_that_does_not_say_how(spread, monkeypatch):
    """Each part is then taken for a whole array, whose shape is seen to be wrong."""
    multiply = spread("split")
    monkeypatch.setattr(op_sharding, "of_program", lambda code, form: ([], []))
    with pytest.raises(NotRunnableError, match=r"how it splits arrays: .* its part is"):
        multiply(A, B)
