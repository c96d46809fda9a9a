"""The StableHLO reference plugin, run by our own runtime."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from operation import on

from pjrt_hub import errors
from pjrt_hub.kit import authoring
from pjrt_hub.kit.authoring.reference import Reference
from pjrt_hub.running.array import dtypes

TYPES = [each.numpy for each in dtypes.ELEMENT_TYPES if each.primitive >= 0 and each.bits > 1]


@pytest.mark.parametrize("name", TYPES)
def test_values_of_every_type_pass_through(client, name):
    try:
        dtype = np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        pytest.skip(f"neither numpy nor ml_dtypes has {name}")
    array = np.array([1, 0, 1], np.int8).astype(dtype)
    back = on(client, "stablehlo.reverse %0, dims = [0] : $T", array)
    assert back.dtype == dtype
    assert back.tobytes() == array[::-1].tobytes()


def test_complex_numbers_keep_both_parts(client):
    array = np.array([1 + 2j, -3j], np.complex128)
    assert on(client, "stablehlo.multiply %0, %0 : $T", array).tolist() == [-3 + 4j, -9]


def test_results_lie_as_its_buffers_say(client):
    """They lie by rows, as in the HLO that hosts read; XLA's importer would say columns."""
    text = """
    func.func @main(%x: tensor<2x3xi32>) -> (tensor<3x2xi32>, tensor<3x2xi32>) {
      %y = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xi32>) -> tensor<3x2xi32>
      %z = stablehlo.add %y, %y : tensor<3x2xi32>
      return %y, %z : tensor<3x2xi32>, tensor<3x2xi32>
    }
    """
    matrix = np.arange(1, 7, dtype=np.int32).reshape(2, 3)
    executable = client.compile(text)
    for call in (executable, executable.bind(matrix)):
        for _ in range(2):
            transposed, doubled = call(*[matrix] * (call is executable))
            assert transposed.to_numpy().tolist() == matrix.T.tolist()
            assert doubled.tolist() == (2 * matrix.T).tolist()
            assert transposed.layout == doubled.layout == (1, 0)
    rows = client.compile(text.replace("2x3", "?").replace("3x2", "2x3").replace("?", "3x2"))
    assert rows(transposed)[0].tolist() == matrix.tolist()


@pytest.mark.parametrize("written", ["bytes", "bits"])
def test_long_booleans_of_either_form(client, written):
    """Each takes a byte, as the plugin's own MLIR writes them, or a bit, as an older MLIR did."""
    elements = np.tril(np.ones((40, 40), bool))
    data = elements if written == "bytes" else np.packbits(elements, bitorder="little")
    constant = f'dense<"0x{data.tobytes().hex()}"> : tensor<40x40xi1>'
    text = f"""func.func @main() -> tensor<40x40xi1> {{
      %0 = stablehlo.constant {constant}
      return %0 : tensor<40x40xi1>
    }}"""
    assert np.array_equal(client.compile(text)(), elements)


def test_a_composite_is_what_it_is_made_of(client):
    text = """
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %y = stablehlo.composite "my.twice" %x {decomposition = @twice}
        : (tensor<2xf32>) -> tensor<2xf32>
      return %y : tensor<2xf32>
    }
    func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
      %y = stablehlo.add %x, %x : tensor<2xf32>
      return %y : tensor<2xf32>
    }
    """
    x = client.buffer_from_host(np.array([1, 2], np.float32))
    assert client.compile(text)(x).to_numpy().tolist() == [2, 4]


def test_chlo_is_made_stablehlo(client):
    array = np.array([0, 0.5], np.float32)
    found = on(client, "chlo.erf %0 : $T -> $T", array)
    assert found == pytest.approx([0, 0.5204999], abs=1e-6)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("stablehlo.custom_call @print(%0) : $F", "no stablehlo.custom_call"),
        ("stablehlo.cholesky %0 : $T", "no stablehlo.cholesky"),
    ],
)
def test_what_it_lacks_is_refused_by_name(client, body, words):
    with pytest.raises(errors.UnimplementedError, match=words):
        on(client, body, np.eye(2, dtype=np.float32))


def test_types_that_hosts_cannot_be_told_are_refused(client):
    program = "func.func @main(%0: tensor<2xf6E3M2FN>) -> tensor<2xf6E3M2FN> {"
    with pytest.raises(errors.UnimplementedError, match="has no f6E3M2FN"):
        client.compile(f"{program} return %0 : tensor<2xf6E3M2FN> }}")


def test_nonsense_is_refused_in_the_words_of_mlir(client):
    with pytest.raises(errors.InvalidArgumentError, match=r"stablehlo\.nothing"):
        on(client, "stablehlo.nothing %0 : $T", np.zeros(2, np.float32))


def test_the_interpreter_may_die_and_comes_back(client):
    backend = Reference()
    with authoring.plugin(backend).client() as client:
        text = "func.func @main(%0: tensor<2xi32>) -> tensor<2xi32> { return %0 : tensor<2xi32> }"
        executable = client.compile(text)
        x = client.buffer_from_host(np.array([1, 2], np.int32))
        backend._interpreter._process.kill()
        with pytest.raises(errors.PluginInternalError, match="died of SIGKILL: it said nothing"):
            executable(x)
        assert executable(x).to_numpy().tolist() == [1, 2]


def test_hosts_read_the_program_in_hlo(client):
    text = "func.func @main(%0: tensor<2xi32>) -> tensor<2xi32> { return %0 : tensor<2xi32> }"
    program = client.compile(text).optimized_program()
    assert program.format == "hlo"
    from jaxlib import _hlo

    assert "ENTRY" in _hlo.XlaComputation(program.code).as_hlo_text()


@pytest.mark.slow
@pytest.mark.night
@pytest.mark.timeout(900)  # the interpreter runs the programs of two thousand checks
def test_the_conformance_suite_finds_no_defect(python, tmp_path):
    library = str(tmp_path / "libstablehlo.so")
    name = "pjrt_hub.kit.authoring.reference:Reference"
    status, _, errors = python("-m", "pjrt_hub.cli", "build", name, "-o", library)
    assert status == 0, errors
    words = ("-m", "pjrt_hub.cli", "check", library, "--option", "devices=2", "--json")
    status, printed, errors = python(*words, seconds=800)
    results = json.loads(printed)["results"]
    defects = [r for r in results if r["verdict"] not in ("pass", "unsupported", "skip")]
    assert (status, defects) == (0, []), errors
    assert sum(r["verdict"] == "pass" for r in results) > 2000


def test_its_options_are_checked():
    plugin = authoring.plugin(Reference())
    for options in ({"devices": 0}, {"devices": "four"}, {"device": 4}):
        with pytest.raises(errors.InvalidArgumentError, match="devices"):
            plugin.client(options)
