"""Large constants of exported functions, which become arguments; values against numpy's."""

import gc
import os
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

import pjrt_hub
from pjrt_hub.errors import FileFormatError
from pjrt_hub.frameworks.exported import (
    contents,
    jax_blob,
    jaxlib_process,
    reading,
    specialisation,
)
from pjrt_hub.frameworks.exported.flatbuffer import FlatTable
from pjrt_hub.frameworks.exported.function import Constant
from pjrt_hub.running.compilation import isolation
from pjrt_hub.running.program import bytecode_constants
from pjrt_hub.running.program.bytecode_constants import hoist

X = (np.arange(64).reshape(8, 8) % 5 - 1).astype(np.float32)
ELEMENT_TYPES = ["bf16", "complex<f32>", "f32", "f32", "f32", "i8"]


def constants_of(dtype, count=1):
    """The arrays of make_artifacts.py."""
    return [(np.arange(64).reshape(8, 8) % (7 + n) - 3).astype(dtype) for n in range(count)]


def expected(x, other=None):
    """What `constants` of make_artifacts.py returns, perhaps with another constant."""
    first, second, third = constants_of(np.float32, 3)
    first = first if other is None else other

    def middle(x):
        return x @ first + third + (x @ second) @ first + third

    looped = x
    for i in range(2):
        looped = middle(looped) / 64 + i
    return {
        "looped": looped,
        "chosen": x @ second if x[0, 0] > 0 else middle(x),
        "reduced": (x * third).sum(axis=0),
        "bfloat16": x.astype(ml_dtypes.bfloat16) * constants_of(ml_dtypes.bfloat16)[0],
        "int8": constants_of(np.int8)[0] + x.astype(np.int8),
        "complex": x * constants_of(np.complex64)[0],
        "bool": constants_of(bool)[0] & (x > 0),
    }


@pytest.fixture
def hoisted(monkeypatch):
    """Take constants of more than 8 bytes for large; jaxlib needs those that are sizes."""
    monkeypatch.setattr(bytecode_constants, "MIN_NBYTES", 1)
    monkeypatch.setattr(bytecode_constants, "MIN_CONSTANT_NBYTES", 9)


@pytest.fixture
def mapped(hoisted, monkeypatch):
    """Take any file for large, too."""
    monkeypatch.setattr(contents, "_LARGE_NBYTES", 0)


def brought(function):
    return [each for each in function.arguments if isinstance(each, Constant)]


def test_small_constants_stay(path):
    function = reading.read(path("constants"))
    assert brought(function) == []
    assert function.arguments == (0,)


def test_each_large_constant_becomes_an_argument_once(path, hoisted):
    """Packed truth values stay, since their elements share bytes."""
    function = reading.read(path("constants"))
    assert sorted(each.aval.element_type for each in brought(function)) == ELEMENT_TYPES
    assert {each.aval.dimensions for each in brought(function)} == {(8, 8)}
    whole = path("constants").read_bytes()
    assert len(function.program.code) < len(whole)
    held = [whole[each.start :][: 64 * each.aval.dtype.itemsize] for each in brought(function)]
    wanted = [*constants_of(np.float32, 3), *constants_of(np.complex64), *constants_of(np.int8)]
    assert {each.tobytes() for each in wanted} <= set(held)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("large", [0, contents._LARGE_NBYTES], ids=["mapped", "read"])
@pytest.mark.parametrize("form", ["file", "bytes"])
def test_the_values_are_the_same(path, client, hoisted, monkeypatch, sign, large, form):
    monkeypatch.setattr(contents, "_LARGE_NBYTES", large)
    source = path("constants") if form == "file" else path("constants").read_bytes()
    with pjrt_hub.load_exported(source, client=client, isolated=False) as function:
        assert len(brought(function.function)) == len(ELEMENT_TYPES)
        results, wanted = function(X * sign), expected(X * sign)
        assert list(results) == sorted(wanted)
        for name, value in wanted.items():
            assert results[name].dtype == value.dtype
            np.testing.assert_allclose(
                np.asarray(results[name]).astype(np.complex64),
                value.astype(np.complex64),
                rtol=1e-5,
                err_msg=name,
            )


@pytest.mark.parametrize("name", ["nested", "special", "symbolic", "constants_symbolic", "add"])
def test_functions_of_every_kind_give_what_they_gave(path, client, monkeypatch, name):
    """Those that need jaxlib get it, with the constants as arguments."""
    if name in ("special", "symbolic", "constants_symbolic") and not specialisation.has_jaxlib():
        pytest.skip("jaxlib is not installed")
    results = []
    for large in (1 << 60, 9):
        with monkeypatch.context() as patch:
            patch.setattr(bytecode_constants, "MIN_NBYTES", 1)
            patch.setattr(bytecode_constants, "MIN_CONSTANT_NBYTES", large)
            function = reading.read(path(name))
        with pjrt_hub.load_exported(function, client=client) as loaded:
            random = np.random.default_rng(1)
            given = [
                random.standard_normal([3 if size == "b" else size for size in each.shape])
                .astype(np.float32)
                .astype(each.dtype)
                for each in function.inputs
            ]
            args, kwargs = function.in_tree.maker({})(iter(given))
            leaves = list[object]()
            function.out_tree.flatten(loaded(*args, **kwargs), leaves)
            results.append([np.asarray(each) for each in leaves])
    for kept, taken in zip(*results, strict=True):
        np.testing.assert_allclose(taken, kept, rtol=1e-5, atol=1e-6)


def test_the_file_may_get_another_name_before_the_first_call(
    path, client, hoisted, tmp_path, monkeypatch
):
    monkeypatch.setattr(contents, "_LARGE_NBYTES", 0)
    file = tmp_path / "f.jaxexport"
    file.write_bytes(path("constants").read_bytes())
    with pjrt_hub.load_exported(file, client=client, isolated=False) as function:
        file.rename(tmp_path / "g.jaxexport")
        file.write_bytes(b"another file")
        np.testing.assert_allclose(function(X)["looped"], expected(X)["looped"], rtol=1e-5)


def test_a_file_that_was_cut_short_is_an_error(path, client, mapped, tmp_path):
    file = tmp_path / "f.jaxexport"
    file.write_bytes(path("constants").read_bytes())
    with pjrt_hub.load_exported(file, client=client, isolated=False) as function:
        os.truncate(file, 100)
        with pytest.raises(FileFormatError, match="is too short for"):
            function(X)


def test_no_descriptor_is_left(path, mapped):
    gc.collect()
    before = os.listdir("/proc/self/fd")
    function = reading.read(path("constants"))
    assert len(os.listdir("/proc/self/fd")) == len(before) + 1
    del function
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_one_executable_serves_other_constants(path, client, hoisted):
    """The cache's key is the program's without its constants, and so is what the cache holds."""
    kept = {}

    class Cache:
        get = staticmethod(kept.get)
        put = staticmethod(kept.__setitem__)

    whole = path("constants").read_bytes()
    [first, *_] = constants_of(np.float32)
    assert whole.count(first.tobytes()) == 1
    other = whole.replace(first.tobytes(), (first * 2).tobytes())
    for source, factor in ((whole, 1), (other, 2)):
        with pjrt_hub.load_exported(
            source, client=client, cache=Cache(), isolated=False
        ) as function:
            wanted = expected(X, first * factor)
            np.testing.assert_allclose(function(X)["chosen"], wanted["chosen"], rtol=1e-5)
    assert len(kept) == 1


def test_an_isolated_compiler_gets_no_large_constants(path, client, hoisted, monkeypatch):
    """The program itself is compiled in this process, with its constants."""
    contents_of = contents.Contents(path("constants").read_bytes())
    program = jax_blob.read(contents_of, "constants", hoists=False).program
    asked, compile = [], isolation.compile
    monkeypatch.setattr(isolation, "compile", lambda *all: asked.append(all[1]) or compile(*all))
    executable = client.compile(program, isolated=True)
    assert [len(each.code) < len(program.code) for each in asked] == [True]
    assert [slot.shape for slot in executable.signature.parameters] == [(), (8, 8)]
    *_, reduced = executable(np.int32(1), X)
    np.testing.assert_allclose(reduced, expected(X)["reduced"], rtol=1e-5)


@pytest.mark.skipif(not specialisation.has_jaxlib(), reason="jaxlib is not installed")
def test_a_function_that_nobody_calls_may_have_the_same_constant(client, hoisted):
    from jaxlib import _jax
    from jaxlib.mlir import ir

    [values] = constants_of(np.float32)
    kind = "tensor<8x8xf32>"
    constant = f'%c = stablehlo.constant dense<"0x{values.tobytes().hex()}"> : {kind}'
    text = f"""
    func.func public @main(%x: {kind}) -> {kind} {{
      {constant}
      %0 = stablehlo.add %x, %c : {kind}
      return %0 : {kind}
    }}
    func.func private @unused() -> {kind} {{
      {constant}
      return %c : {kind}
    }}"""
    with jaxlib_process._context(), ir.Location.unknown():
        code = _jax.mlir.serialize_portable_artifact(ir.Module.parse(text), "1.13.0")
    program, [constant] = hoist(bytes(code))
    assert constant.shape == (8, 8)
    np.testing.assert_array_equal(client.compile(program)(X, values), X + values)


def test_damaged_programs_are_left_as_they_are(path, hoisted):
    """A program that cannot be changed is compiled as it is, and the compiler judges it."""
    assert hoist(reading.read(path("constants")).program.code) is None  # Nothing large is left.
    program = FlatTable.root(path("constants").read_bytes()).bytes(13)
    assert hoist(program) is not None
    random = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(program)
        for place in random.integers(4, len(program), 3):
            damaged[place] ^= 1 << int(random.integers(8))
        found = hoist(bytes(damaged))
        if found is not None:
            _, constants = found
            assert all(each.start + each.nbytes <= len(damaged) for each in constants)
            starts = sorted(each.start for each in constants)
            assert all(a < b for a, b in pairwise(starts))
