"""Boolean constants of over a hundred elements, which MLIR writes into text as hexadecimal digits.

A newer MLIR writes a byte for each element, while the plugin's parser may expect a bit.
"""

import numpy as np
import pytest

from pjrt_hub import CompileOptions, Program
from pjrt_hub.errors import InvalidArgumentError, UnknownError
from pjrt_hub.running.program import compile_error

CAUSAL = np.tril(np.ones((64, 64), bool))
BITS = np.random.default_rng(0).random(4096) < 0.5


def as_bytes(elements: np.ndarray) -> str:
    return elements.tobytes().hex().upper()


def as_bits(elements: np.ndarray) -> str:
    return np.packbits(elements, bitorder="little").tobytes().hex().upper()


def kind(elements: np.ndarray, of: str = "i1") -> str:
    return f"tensor<{''.join(f'{size}x' for size in elements.shape)}{of}>"


def constants(*elements: np.ndarray, written=as_bytes) -> str:
    """A program that returns these constants."""
    lines = [
        f'%{number} = stablehlo.constant dense<"0x{written(each)}"> : {kind(each)}'
        for number, each in enumerate(elements)
    ]
    values = ", ".join(f"%{number}" for number in range(len(elements)))
    kinds = ", ".join(map(kind, elements))
    return "\n".join(
        [f"func.func @main() -> ({kinds}) {{", *lines, f"return {values} : {kinds}", "}"]
    )


#: JAX 0.10's lowering of `jnp.where(numpy.tril(numpy.ones((64, 64), bool)), x, -1e9)`.
MASK = f"""module @jit__lambda attributes {{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32}} {{
  func.func public @main(%arg0: tensor<64x64xf32>) -> (tensor<64x64xf32> {{jax.result_info = "result"}}) {{
    %c = stablehlo.constant dense<"0x{as_bytes(CAUSAL)}"> : tensor<64x64xi1>
    %cst = stablehlo.constant dense<-1.000000e+09> : tensor<f32>
    %0 = call @_where(%c, %arg0, %cst) : (tensor<64x64xi1>, tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>
    return %0 : tensor<64x64xf32>
  }}
  func.func private @_where(%arg0: tensor<64x64xi1>, %arg1: tensor<64x64xf32>, %arg2: tensor<f32>) -> tensor<64x64xf32> {{
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<64x64xf32>
    %2 = stablehlo.select %arg0, %arg1, %1 : tensor<64x64xi1>, tensor<64x64xf32>
    return %2 : tensor<64x64xf32>
  }}
}}
"""  # noqa: E501


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("form", ["text", "bytes", "file", "Program"])
def test_a_causal_mask(client, tmp_path, form, isolated):
    path = tmp_path / "mask.mlir"
    path.write_text(MASK)
    source = {"text": MASK, "bytes": MASK.encode(), "file": path, "Program": Program(MASK, "mlir")}
    x = np.arange(4096, dtype=np.float32).reshape(64, 64)
    result = client.compile(source[form], isolated=isolated)(x)
    assert np.array_equal(result, np.where(CAUSAL, x, np.float32(-1e9)))


@pytest.mark.parametrize("written", [as_bytes, as_bits])
@pytest.mark.parametrize("shape", [(101,), (127,), (128,), (7, 33), (2, 3, 67), (1, 999), (9,)])
def test_of_any_size(client, shape, written):
    elements = BITS[: np.prod(shape)].reshape(shape)
    assert np.array_equal(client.compile(constants(elements, written=written))(), elements)


@pytest.mark.parametrize("element", [False, True])
def test_all_of_one_value(client, element):
    """A constant of equal elements may be written as one element or in full."""
    elements = np.full(127, element)
    once = constants(elements).replace(f'"0x{as_bytes(elements)}"', "true" if element else "false")
    for text in (once, constants(elements)):
        assert np.array_equal(client.compile(text)(), elements)


SEVERAL = CAUSAL, BITS[:101], np.ones(200, bool), BITS[:1], BITS[200:400]


@pytest.mark.parametrize("written", [as_bytes, as_bits])
def test_several_in_one_program(client, written):
    """One constant is so short that both forms are equal."""
    text = constants(*SEVERAL, written=written)
    for found, expected in zip(client.compile(text)(), SEVERAL, strict=True):
        assert np.array_equal(found, expected)


def test_both_forms_in_one_program(client):
    """No MLIR writes such a program, in which one constant has bits and the others have bytes."""
    text = constants(*SEVERAL).replace(as_bytes(BITS[200:400]), as_bits(BITS[200:400]))
    if client.api.version.minor >= 106:  # this plugin reads bytes
        with pytest.raises(UnknownError, match="hex data size is invalid"):
            client.compile(text)
        return
    for found, expected in zip(client.compile(text)(), SEVERAL, strict=True):
        assert np.array_equal(found, expected)


def test_what_looks_alike_stays(client):
    """Constants of other types, strings and comments are not rewritten."""
    numbers = np.arange(200, dtype=np.int8) % 2
    alike = 'dense<\\"0x0100\\"> : tensor<2xi1>'
    text = f"""// {alike}
    func.func @main() -> ({kind(numbers, "i8")}, {kind(BITS)}) {{
      %0 = stablehlo.constant dense<"0x{as_bytes(numbers)}"> : {kind(numbers, "i8")} loc("{alike}")
      %1 = stablehlo.constant {{name = "{alike}"}} dense<"0x{as_bytes(BITS)}"> : {kind(BITS)}
      return %0, %1 : {kind(numbers, "i8")}, {kind(BITS)}
    }}"""
    found = client.compile(text)()
    assert np.array_equal(found[0], numbers)
    assert np.array_equal(found[1], BITS)
    changed = compile_error.rewrite_booleans(text.encode()).decode()
    assert changed.upper().replace(as_bits(BITS), as_bytes(BITS)) == text.upper()
    assert (
        compile_error.rewrite_booleans(text.replace(kind(BITS), kind(BITS, "i8")).encode()) is None
    )


def test_in_other_words(client):
    """The generic form, unusual spaces and lower-case digits are understood."""
    text = f"""
    "func.func"() <{{function_type = () -> {kind(BITS)}, sym_name = "main"}}> ({{
      %0 = "stablehlo.constant"() <{{value = dense<"0x{as_bytes(BITS).lower()}">:tensor< 4096 x i1 >
      }}> : () -> {kind(BITS)}
      "func.return"(%0) : ({kind(BITS)}) -> ()
    }}) : () -> ()"""
    assert np.array_equal(client.compile(text)(), BITS)


@pytest.mark.parametrize("nbytes", [26, 150, 201])
def test_a_wrong_number_of_digits_stays_an_error(client, nbytes):
    text = constants(BITS[:200], CAUSAL).replace(as_bytes(BITS[:200]), "01" * nbytes)
    with pytest.raises(UnknownError, match=r"(?s)hex data size is invalid.*200xi1") as caught:
        client.compile(text)
    assert "line and column numbers" in caught.value.hint


@pytest.mark.api(">=0.115", "it compiles for topologies")
def test_ahead_of_time(client):
    x = np.arange(4096, dtype=np.float32).reshape(64, 64)
    result = client.load(client.topology.compile(MASK).serialize())(x)
    assert np.array_equal(result, np.where(CAUSAL, x, np.float32(-1e9)))


def test_from_the_compile_cache(client, kept, monkeypatch):
    first = client.compile(MASK, cache=kept)
    monkeypatch.setattr(compile_error, "rewrite_booleans", None)
    again = client.compile(MASK, cache=kept)
    x = np.ones((64, 64), np.float32)
    assert len(kept) == 1
    assert np.array_equal(first(x), again(x))


def test_with_options(client):
    """A flag that the plugin lacks is refused as in any other program."""
    flags = {"xla_absent": True}
    with pytest.raises(InvalidArgumentError, match="xla_absent"):
        client.compile(MASK, CompileOptions(flags=flags))


def test_text_of_an_older_mlir_for_a_newer_plugin():
    """The reference plugin needs it: see `backend/test_reference.py`."""
    old = constants(CAUSAL, BITS[:101], np.ones(1, bool), written=as_bits).encode()
    new = constants(CAUSAL, BITS[:101], np.ones(1, bool)).encode()
    assert compile_error.rewrite_booleans(old).upper() == new.upper()
    assert compile_error.rewrite_booleans(new).upper() == old.upper()
