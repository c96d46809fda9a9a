"""Programs that jaxlib rewrites in a process of its own, and the errors if it is not installed."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from pjrt_hub.errors import NotRunnableError
from pjrt_hub.frameworks.exported import lapack, reading, specialisation
from pjrt_hub.running.program import bytecode

from .conftest import ARTIFACTS

needs_jaxlib = pytest.mark.skipif(not specialisation.has_jaxlib(), reason="jaxlib is not installed")


class Memory(dict):
    def put(self, key, value):
        self[key] = value


def rows(count):
    return np.arange(count * 3, dtype=np.float32).reshape(count, 3)


@needs_jaxlib
@pytest.mark.parametrize(
    "name", ["symbolic", "symbolic-0.4.33", "symbolic-0.6.2", "symbolic-0.8.3"]
)
def test_symbolic_dimensions_become_numbers(load, name):
    grow = load(name)
    for count in (5, 1, 5):
        x = rows(count)
        value, twice = grow(x)
        np.testing.assert_array_equal(value, 2 * x + count)
        np.testing.assert_array_equal(twice, np.concatenate([x, x]))
    assert grow.compile(b=5) is grow.compile(b=5)
    x, y = rows(2), np.arange(5, dtype=np.float32)  # the sizes follow from these
    np.testing.assert_array_equal(load("two_symbols")(x, y), x[:, :1] + y[:2])


@needs_jaxlib
def test_the_second_process_needs_no_jaxlib(load, monkeypatch):
    memory = Memory()
    load("symbolic", cache=memory)(rows(4))
    assert len(memory) == 2  # the program without symbols and its executable
    monkeypatch.setattr(specialisation, "has_jaxlib", lambda: False)
    value, _ = load("symbolic", cache=memory)(rows(4))
    np.testing.assert_array_equal(value, 2 * rows(4) + 4)


def test_branches_of_other_platforms_are_never_taken(load, monkeypatch):
    """The compiler knows no function of CUDA, and need not, although it reads its name."""
    monkeypatch.setattr(specialisation, "has_jaxlib", lambda: False)
    cholesky = load("cholesky")
    assert "cusolver_potrf_ffi" in cholesky.function.custom_calls
    assert load("platforms").compile().signature.parameters[0].shape == (4,)
    if lapack.handlers(cholesky.function.custom_calls, cholesky.client):
        np.testing.assert_allclose(cholesky(4 * np.eye(4, dtype=np.float32)), 2 * np.eye(4))


@pytest.mark.parametrize("index", [0, 1])
def test_a_program_without_constants_becomes_one_for_a_platform(client, index):
    """It gets an operation whose name it did not have."""
    function = reading.read(ARTIFACTS / "sine.jaxexport")
    assert "vhlo.constant_v1" not in function.uses.operations
    program = function.for_platform(index).program
    assert "vhlo.constant_v1" in bytecode.uses(program.code).operations
    x = np.float32([0.5, 2])
    np.testing.assert_allclose(client.compile(program)(x), np.sin(x), rtol=1e-5)


ERF_OF, ERF = np.array([-1, 0, 0.5], np.float32), [-0.8427008, 0, 0.5204999]


@needs_jaxlib
def test_operations_of_a_newer_stablehlo_are_written_for_the_plugins(load):
    erf = load("composite")
    assert "vhlo.composite_v2" in erf.function.uses.operations
    np.testing.assert_allclose(erf(ERF_OF), ERF, rtol=1e-5)


@needs_jaxlib
@pytest.mark.parametrize("release", ["0.11.2", "0.12.0.1"])
def test_an_operation_that_only_a_newer_jaxlib_reads(load, reads, release):
    """It runs if such a jaxlib or as new a plugin is there; else the hint names a jaxlib."""
    from jaxlib.version import __version__

    cholesky = load(f"cholesky-{release}")
    assert "vhlo.custom_call_v2" in cholesky.function.uses.operations
    if reads("1.18.0") or tuple(map(int, __version__.split(".")[:2])) >= (0, 11):
        np.testing.assert_allclose(cholesky(4 * np.eye(4, dtype=np.float32)), 2 * np.eye(4))
        return
    with pytest.raises(NotRunnableError, match=r"custom_call_v2 must be written for") as caught:
        cholesky.compile()
    assert f"jaxlib {__version__} reads StableHLO up to 1.1" in caught.value.message
    assert f"a newer jaxlib may; {release} wrote it and reads it" in caught.value.hint


@needs_jaxlib
@pytest.mark.parametrize("name", ["special", "special_symbolic"])
def test_functions_of_the_dialect_chlo(load, name):
    """They run when exported for several platforms, and with symbolic dimensions."""
    x = np.array([[0.1, 0.5, 0.3, 0.7], [0.2, 0.9, 0.8, 0.4], [0.6, 0.1, 0.2, 0.3]], np.float32)
    result = load(name)(x)
    values, places = result.pop("top_k")
    np.testing.assert_array_equal(values, np.sort(x)[:, :1:-1])
    np.testing.assert_array_equal(places, np.argsort(x)[:, :1:-1])
    erf = np.vectorize(math.erf)
    for key, expected in {
        "erf": erf(x),
        "cdf": (1 + erf(x / math.sqrt(2))) / 2,
        "asin": np.arcsin(x),
        "acosh": np.arccosh(x + 1),
        "atanh": np.arctanh(x),
        "sinh": np.sinh(x),
        "cosh": np.cosh(x),
    }.items():
        np.testing.assert_allclose(result[key], expected, rtol=1e-5, err_msg=key)


def test_without_jaxlib(load, monkeypatch):
    monkeypatch.setattr(specialisation, "has_jaxlib", lambda: False)
    refused(load("symbolic"), rows(2), "the symbolic dimensions b must become numbers")


def test_without_jaxlib_a_plugin_needs_the_operations_stablehlo(load, row, reads, monkeypatch):
    monkeypatch.setattr(specialisation, "has_jaxlib", lambda: False)
    erf = load("composite")
    if reads("1.14.0"):
        np.testing.assert_allclose(erf(ERF_OF), ERF, rtol=1e-5)
    else:
        written = re.escape(f"composite_v2 must be written for StableHLO {row.stablehlo}")
        refused(erf, ERF_OF, written)


def refused(function, given, message):
    with pytest.raises(NotRunnableError, match=message) as caught:
        function(given)
    assert "jaxlib does and which is not installed" in caught.value.message
    assert "install jaxlib" in caught.value.hint


@needs_jaxlib
def test_a_program_that_ends_mlir(load):
    """The child process that runs MLIR dies or refuses the program; this process goes on."""
    grow = load("symbolic")
    code = bytearray(grow.function.program.code)
    code[200:260] = b"\xff" * 60
    object.__setattr__(grow.function.program, "code", bytes(code))
    with pytest.raises(NotRunnableError, match="jaxlib could not do that"):
        grow(rows(2))


def test_sizes_that_contradict(load):
    with pytest.raises(ValueError, match=r"args\[1\]: dimension 0 is 2\*b \+ 1 = 5 where b = 2, c"):
        load("two_symbols")(rows(2), np.ones(7, np.float32))
    with pytest.raises(ValueError, match=r"args\[0\]: expected f32\[b,3\], found .* \[2,4\]"):
        load("symbolic")(np.ones((2, 4), np.float32))
    with pytest.raises(ValueError, match="dimension 0 is b = 7, found 2"):
        load("symbolic", dimensions={"b": 7})(rows(2))
    with pytest.raises(ValueError, match=r"the symbolic dimensions are \['b'\], sizes were given"):
        load("symbolic").compile()


@pytest.fixture
def topology(client):
    """A stand-in for a topology of the client's plugin, which describes none without hardware."""
    return SimpleNamespace(
        platform_name="cpu",
        api=SimpleNamespace(attributes=client.plugin.attributes),
        device_descriptions=client.devices,
    )


def test_a_function_is_a_program_for_a_topology(load, client, topology):
    function = load("add").function
    program = specialisation.for_topology(function, topology, {})
    assert program is function.program
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(client.compile(program)(x, x), 2 * x)
    topology.platform_name = "tpu"
    with pytest.raises(NotRunnableError, match="cannot be run on tpu"):
        specialisation.for_topology(function, topology, {})


@needs_jaxlib
def test_a_symbolic_function_has_sizes_and_a_platform_for_a_topology(load, client, topology):
    function = load("symbolic").function
    program = specialisation.for_topology(function, topology, {"b": 5})
    value, twice = client.compile(program)(rows(5))
    np.testing.assert_array_equal(value, 2 * rows(5) + 5)
    assert twice.shape == (10, 3)
    with pytest.raises(ValueError, match="b"):
        specialisation.for_topology(function, topology, {})
    platforms = load("platforms").function  # the argument with the platform's number is fixed
    program = specialisation.for_topology(platforms, topology, {})
    assert len(client.compile(program).parameters) == len(platforms.inputs)
