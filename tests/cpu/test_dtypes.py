"""Every element type that the plugin knows: put, read back and run through a program."""

import array
import pickle
import re

import ml_dtypes
import numpy as np
import pytest
from elements import IN_PROGRAMS, KNOWN, OLD, SMALL, UNKNOWN
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from texts import identity

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.errors import UnsupportedByPluginError
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.program.signature import ANYTHING, Slot

WHOLE_BYTES = [each for each in OLD if each.bits >= 8]
SHARED = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def extremes(element):
    """Values at the ends of a type's range, and its infinities, NaN and -0 if it has them."""
    dtype = dtypes.numpy_dtype(element.code)
    if dtype.kind == "b":
        values = [False, True]
    elif dtype.kind == "c":
        real = np.finfo(dtype)
        values = [real.max + 1j * real.min, complex("nan+infj"), complex(-0.0, 0.0), 1j]
    elif "int" in element.numpy:
        info = ml_dtypes.iinfo(dtype) if dtype.kind == "V" else np.iinfo(dtype)
        values = [info.min, info.max, 0, 1]
    else:
        info = ml_dtypes.finfo(dtype)
        values = [info.max, info.min, info.tiny, 0.5, 1.0]
        return np.concatenate(
            [np.array(values).astype(dtype), np.array([np.nan, np.inf, -0.0]).astype(dtype)]
        )
    return np.array([dtype.type(value) for value in values], dtype)


def assert_same(actual, expected):
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert actual.tobytes() == expected.tobytes()


def test_there_are_types_of_each_generation(plugin):
    known = [each for each in dtypes.ELEMENT_TYPES if each.since <= plugin.api_version.minor]
    assert len(OLD) == 28
    assert len(known) == 28 + 2 * (plugin.api_version.minor >= 94) + 2 * (
        plugin.api_version.minor >= 114
    )


@pytest.mark.parametrize("element", KNOWN)
@pytest.mark.rows
def test_values_come_back_bit_by_bit(client, element):
    values = extremes(element)
    buffer = client.buffer_from_host(values)
    assert buffer.dtype == values.dtype
    assert_same(buffer.to_numpy(), values)
    bits = len(values) * element.bits
    assert bits // 8 <= buffer.on_device_nbytes <= len(values) * values.dtype.itemsize


@pytest.mark.parametrize("element", IN_PROGRAMS)
def test_values_pass_through_a_program(client, element):
    values = extremes(element)
    executable = client.compile(identity(f"{len(values)}x{element.name}"))
    result = executable(client.buffer_from_host(values))
    assert result.dtype == values.dtype
    assert_same(result.to_numpy(), values)
    one = f"({element.name}[{len(values)}])"
    assert str(executable.signature) == f"{one} -> {one}"


@pytest.mark.parametrize("element", KNOWN)
def test_any_rank_and_no_elements(client, element):
    one = extremes(element)[-1:]
    for shape in [(), (1,), (1, 1, 1), (0,), (2, 0, 3), (0, 1 << 40)]:
        values = np.broadcast_to(one.reshape(()), shape)
        assert_same(
            client.buffer_from_host(values).to_numpy(), np.ascontiguousarray(values).reshape(shape)
        )


@pytest.mark.parametrize("element", KNOWN)
def test_names_are_those_of_numpy_and_of_programs(element):
    for name in (element.numpy, dtypes.numpy_dtype(element.code)):
        assert dtypes.of_numpy(name) is element
    for name in (element.name, element.xla):
        assert dtypes.of_type(name) is element


@pytest.mark.parametrize("element", KNOWN)
def test_what_a_buffer_calls_its_type_is_a_dtype(client, element):
    """Numpy has another meaning for "i8", "i4", "i2", "i1" and "u1"."""
    buffer = client.buffer_from_host(extremes(element))
    for name in (buffer.element_type, pickle.loads(pickle.dumps(buffer.element_type))):
        assert dtypes.of_numpy(name) is element
        assert client.create_uninitialized_buffer((3,), name).dtype == buffer.dtype
        assert client.buffer_from_host([0, 0], dtype=name).dtype == buffer.dtype
        if element.primitive >= 0:
            assert Slot.of(name, (3,)).element_type == name == element.name
    for name, meant in {"i8": "int64", "i4": "int32", "i2": "int16", "i1": "int8"}.items():
        assert dtypes.of_numpy(name).numpy == meant


@pytest.mark.parametrize("element", UNKNOWN)
def test_a_newer_type_is_refused_before_the_plugin_sees_it(client, element):
    have = re.escape(str(client.api.version))
    with pytest.raises(UnsupportedByPluginError, match=f"{element.name}.* {have}") as caught:
        dtypes.require(element, client.api.version)
    assert caught.value.since == f"0.{element.since}"
    with pytest.raises(
        (UnsupportedByPluginError, TypeError), match=r"does not know|install a newer"
    ):
        client.buffer_from_host([0, 0], dtype=element.numpy)


@pytest.mark.parametrize(
    "value",
    [
        *(None, object(), "text", b"bytes", {1: 2}, 2**70, np.array(["a"]), np.zeros(3, "V4")),
        *(np.array([1], "timedelta64[s]"), np.ma.array([1.0, 2.0])),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}",
)
def test_what_no_device_holds_is_a_type_error(client, value):
    with pytest.raises(TypeError, match=r"no element type|masked"):
        client.buffer_from_host(value)


def test_a_missing_dtype_is_a_type_error(client):
    with pytest.raises(TypeError, match="the dtype is None"):
        client.create_uninitialized_buffer((2,), None)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (3, None, np.array(3, np.int32)),
        (True, None, np.array(True)),
        (2.5, None, np.array(2.5, np.float32)),
        (1j, None, np.array(1j, np.complex64)),
        ([1, 2.5], None, np.array([1, 2.5], np.float32)),
        ([], None, np.zeros(0, np.float32)),
        ([[1], [2]], None, np.array([[1], [2]], np.int32)),
        ((True, False), None, np.array([True, False])),
        ([np.float64(1)], None, np.array([1.0])),
        (np.float64(1), None, np.array(1.0)),
        (np.int64(1), None, np.array(1)),
        ([np.arange(2)], None, np.arange(2).reshape(1, 2)),
        (2**31 - 1, None, np.array(2**31 - 1, np.int32)),
        (2**40, "int64", np.array(2**40)),
        (2**63, None, np.array(2**63, np.uint64)),
        ([1, 2], "bf16", np.array([1, 2], ml_dtypes.bfloat16)),
        ([1, 2], np.float16, np.array([1, 2], np.float16)),
        (np.array([300]), "int16", np.array([300], np.int16)),
        ([1, 0], "bool", np.array([True, False])),
        (np.array([1.5]), "f32", np.array([1.5], np.float32)),
        ([2**63], "ui64", np.array([2**63], np.uint64)),
        (bytearray(b"\1\2"), None, np.array([1, 2], np.uint8)),
        (memoryview(b"\1\2"), None, np.array([1, 2], np.uint8)),
        (array.array("d", [1, 2]), None, np.array([1.0, 2.0])),
        (array.array("h", [-1, 2]), None, np.array([-1, 2], np.int16)),
    ],
)
def test_what_numbers_and_sequences_become(client, value, dtype, expected):
    assert_same(client.buffer_from_host(value, dtype=dtype).to_numpy(), expected)


#: A name that users may write -> numpy's name. If numpy and StableHLO differ, numpy's counts.
NAMES = {
    **{"i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64"},
    **{"u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64"},
    **{"f2": "float16", "f4": "float32", "f8": "float64", "c8": "complex64", "?": "bool"},
    **{"i16": "int16", "i32": "int32", "i64": "int64", "ui8": "uint8", "ui32": "uint32"},
    **{"f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16"},
    **{"s8": "int8", "s32": "int32", "pred": "bool", "c64": "complex64", "c128": "complex128"},
    **{"complex<f32>": "complex64", "f8E4M3FN": "float8_e4m3fn", "f8e5m2": "float8_e5m2"},
    **{"int4": "int4", "uint4": "uint4", "s4": "int4", "ui4": "uint4", "int2": "int2"},
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_means_what_numpy_means_by_it(client, name):
    """It means the same in each call that takes a dtype."""
    expected = NAMES[name]
    assert client.buffer_from_host([1, 0], dtype=name).dtype.name == expected
    assert client.create_uninitialized_buffer((2,), name).dtype.name == expected
    assert pjrt_hub.empty_aligned(2, name).dtype.name == expected


@pytest.mark.parametrize(
    ("value", "dtype", "found"),
    [
        (np.array([100, -3, 7]), "int4", "100 does not fit int4: -8 to 7"),
        ([8], "s4", "8 does not fit int4"),
        (np.array([-3]), "uint4", "-3 does not fit uint4: 0 to 15"),
        (np.array([300]), "i1", "300 does not fit int8: -128 to 127"),
        (np.array([-1]), "u8", "-1 does not fit uint64"),
        (np.array([2**63], np.uint64), "int64", "9223372036854775808 does not fit int64"),
        (np.array([2**32]), "int32", "4294967296 does not fit int32"),
        ([0, 2], "bool", "2 does not fit bool: 0 to 1"),
        (np.array([7], ml_dtypes.int4), "int2", "7 does not fit int2: -2 to 1"),
        (np.array([-1], ml_dtypes.int4), "uint8", "-1 does not fit uint8"),
        (2**70, "int64", "too large|too big"),
        *((value, None, "dtype='int64'") for value in (2**31, -(2**31) - 1, [1, 2**40])),
    ],
)
def test_what_does_not_fit_a_dtype_is_refused(client, value, dtype, found):
    with pytest.raises(OverflowError, match=found):
        client.buffer_from_host(value, dtype=dtype)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1.0], "int32"),
        (np.array([1.5]), "i32"),
        (np.float32(0.5), "bool"),
        (np.array([1], ml_dtypes.bfloat16), "int8"),
        ([1j], "float32"),
        (np.zeros(0), "int32"),
    ],
)
def test_what_would_lose_its_kind_is_refused(client, value, dtype):
    with pytest.raises(TypeError, match="do not become"):
        client.buffer_from_host(value, dtype=dtype)


def test_floats_are_rounded(client):
    values = np.array([1e39, -1e39, 0.1, np.nan])
    with np.errstate(over="ignore"):
        assert_same(
            client.buffer_from_host(values, dtype="f32").to_numpy(), values.astype(np.float32)
        )


def test_a_dtype_is_numpys_everywhere(client):
    """A buffer's dtype can be passed to any call, while the name "i8" would be another type."""
    text = identity("2xi8")
    executable = client.compile(text)
    signature = pjrt_hub.signature(text)
    given = client.buffer_from_host([1, 2], dtype=executable.parameters[0].dtype)
    result = executable(given)
    assert result.tolist() == [1, 2]
    for each in (
        *executable.parameters,
        *executable.signature.parameters,
        *executable.signature.outputs,
        *signature.parameters,
        *signature.outputs,
        given,
        result,
    ):
        assert (each.dtype, each.element_type) == (np.dtype(np.int8), "i8"), each
    assert repr(signature) == "<Signature (i8[2]) -> (i8[2])>"
    assert repr(signature.parameters) == "(<Slot i8[2]>,)"


def test_a_type_that_nobody_tells():
    assert (ANYTHING.dtype, ANYTHING.element_type, str(ANYTHING)) == (None, None, "?[...]")


def test_a_type_that_the_installed_ml_dtypes_lacks(monkeypatch):
    slot = Slot.of("int4", (2,))
    monkeypatch.delattr(ml_dtypes, "int4")
    dtypes.numpy_dtype.cache_clear()
    with pytest.raises(TypeError, match="the installed ml_dtypes has no int4: install a newer"):
        _ = slot.dtype
    assert (slot.element_type, str(slot)) == ("i4", "i4[2]")
    monkeypatch.undo()
    assert slot.dtype == ml_dtypes.int4


def test_objects_with_array(client):
    class Lazy:
        def __array__(self, dtype=None, copy=None):
            return np.arange(3, dtype=dtype or np.int16)

    assert_same(client.buffer_from_host(Lazy()).to_numpy(), np.arange(3, dtype=np.int16))
    assert_same(client.buffer_from_host(Lazy(), dtype="f32").to_numpy(), np.arange(3, dtype="f4"))
    buffer = client.buffer_from_host(np.arange(4))
    assert_same(client.buffer_from_host(buffer).to_numpy(), np.arange(4))


@st.composite
def views(draw):
    """Arrays of any dtype, alignment and byte order, sliced, transposed, broadcast or reversed."""
    dtype = dtypes.numpy_dtype(draw(st.sampled_from(WHOLE_BYTES)).code)
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
    count = int(np.prod(shape))
    raw = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    if dtype.kind == "b":
        raw = bytes(byte & 1 for byte in raw)
    offset = draw(st.sampled_from([0, 0, 1, 8]))
    base = np.frombuffer(bytes(offset) + raw, dtype, count, offset).reshape(shape)
    if dtype.kind in "iufc" and draw(st.booleans()):
        base = base.astype(dtype.newbyteorder())
    view = base[draw(arrays.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))]
    view = np.asarray(view)
    if view.ndim and draw(st.booleans()):
        view = view.transpose(draw(st.permutations(range(view.ndim))))
    if draw(st.booleans()):
        view = np.broadcast_to(view, (draw(st.integers(0, 3)), *view.shape))
    return view


@SHARED
@given(view=views())
def test_any_array(client, view):
    result = client.buffer_from_host(view).to_numpy()
    assert_same(result, np.array(view, view.dtype.newbyteorder("="), order="C"))


@pytest.mark.parametrize("element", SMALL)
def test_strides_of_types_smaller_than_a_byte(client, element):
    values = np.resize(extremes(element), 24).reshape(2, 3, 4)
    for view in (values[::-1, :, ::2], values.T, values[:, 1], values[..., ::-1]):
        assert_same(client.buffer_from_host(view).to_numpy(), np.array(view, order="C"))


@pytest.mark.parametrize("number", [0, 23, 34, 99, -1])
def test_types_without_data_have_no_arrays(number):
    with pytest.raises(TypeError, match=f"PJRT_Buffer_Type {number} cannot be read"):
        dtypes.of_code(number)


@pytest.mark.parametrize(
    "results",
    ["!stablehlo.token", "tensor<f32>, !stablehlo.token", "!stablehlo.token, tensor<f32>"],
)
def test_tokens_are_not_given(client, results):
    given = results.replace("!stablehlo.token", "%t").replace("tensor<f32>", "%a")
    program = f"""func.func @main(%a: tensor<f32>) -> ({results}) {{
      %t = stablehlo.create_token : !stablehlo.token
      return {given} : {results}
    }}"""
    with pytest.raises(TypeError, match=r"gives \d values, of which \d are arrays: tokens"):
        client.compile(program)


@pytest.mark.cpu("refuses within the call")
def test_tokens_are_not_taken(client):
    executable = client.compile(
        "func.func @main(%a: tensor<f32>, %t: !stablehlo.token) -> tensor<f32> "
        "{ return %a : tensor<f32> }"
    )
    with pytest.raises(errors.InvalidArgumentError, match=r"program expected 2|expected 2 buffers"):
        executable(client.buffer_from_host(np.float32(1)))
