"""Operations that the reference interpreter gets wrong are right after the plugin rewrites them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from composition import element, named
from operation import on, run

from pjrt_hub import errors

FLOATS = ["float16", "float32", "float64", "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e5m2"]

SELECT_AND_SCATTER = """
func.func @main(%0: tensor<4xf32>, %1: tensor<2xf32>, %2: tensor<f32>) -> tensor<4xf32> {
  %r = "stablehlo.select_and_scatter"(%0, %1, %2) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }, {
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.$OP %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
  }) {window_dimensions = array<i64: 3>}
    : (tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
"""


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64", "int4", "uint4"])
def test_integers_can_be_divided_by_zero(client, dtype):
    dtype = named(dtype)
    left, right = np.array([7, 5, 0], dtype), np.array([2, 0, 0], dtype)
    quotient = on(client, "stablehlo.divide %0, %1 : $T", left, right)
    ones = np.array([-1]).astype(dtype)[0]
    assert quotient.tolist() == [3, ones, ones]
    rest = on(client, "stablehlo.remainder %0, %1 : $T", left, right)
    assert rest.tolist() == [1, 5, 0]


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_have_a_total_order(client, dtype):
    dtype = named(dtype)
    ordered = np.array([-np.nan, -np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan]).astype(dtype)
    ordered[[0, -1]] = np.copysign(ordered[-1], np.array([-1, 1], dtype))
    left, right = (each.ravel() for each in np.meshgrid(ordered, ordered))
    rank_left, rank_right = (each.ravel() for each in np.meshgrid(range(8), range(8)))
    for direction, compare in (("LT", np.less), ("EQ", np.equal), ("GE", np.greater_equal)):
        line = f"stablehlo.compare {direction}, %0, %1, TOTALORDER : $F"
        found = on(client, line, left, right, gives="tensor<64xi1>")
        assert (found == compare(rank_left, rank_right)).all(), direction


@pytest.mark.parametrize("in_a_loop", [False, True])
def test_a_scatter_leaves_what_it_is_given(client, in_a_loop):
    scatter = """"stablehlo.scatter"(%x, %i, %v) ({
        ^bb0(%a: tensor<i32>, %b: tensor<i32>):
          %c = stablehlo.add %a, %b : tensor<i32>
          stablehlo.return %c : tensor<i32>
      }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
          scatter_dims_to_operand_dims = [0]>}
        : (tensor<3xi32>, tensor<1xi32>, tensor<i32>) -> tensor<3xi32>"""
    loop = f"""stablehlo.while(%n = %v, %y = %x) : tensor<i32>, tensor<3xi32>
      cond {{
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %more = stablehlo.compare GT, %n, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      }} do {{
        %one = stablehlo.constant dense<1> : tensor<i32>
        %m = stablehlo.subtract %n, %one : tensor<i32>
        %z = {scatter.replace("%x, %i, %v", "%y, %i, %one")}
        stablehlo.return %m, %z : tensor<i32>, tensor<3xi32>
      }}"""
    line = f"%r:2 = {loop}" if in_a_loop else f"%r = {scatter}"
    text = f"""func.func @main(%x: tensor<3xi32>, %i: tensor<1xi32>, %v: tensor<i32>)
        -> (tensor<3xi32>, tensor<3xi32>) {{
      {line}
      return {"%r#1" if in_a_loop else "%r"}, %x : tensor<3xi32>, tensor<3xi32>
    }}"""
    x = np.array([1, 2, 3], np.int32)
    added, kept = run(client, text, x, np.array([1], np.int32), np.int32(5))
    assert (added.tolist(), kept.tolist()) == ([1, 7, 3], [1, 2, 3])


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_unsigned_indices_have_no_sign(client, dtype):
    x = np.arange(300, dtype=np.int32)
    most = np.iinfo(dtype).max
    for index, place in ((200, 200), (most, min(most, 299))):
        start = np.array(index, dtype)
        line = "stablehlo.dynamic_slice %0, %1, sizes = [1] : $F"
        assert on(client, line, x, start, gives="tensor<1xi32>").tolist() == [place]
        line = "stablehlo.dynamic_update_slice %0, %1, %2 : $F"
        found = on(client, line, x, np.array([-1], np.int32), start, gives="tensor<300xi32>")
        assert np.flatnonzero(found == -1).tolist() == [place]
        line = """"stablehlo.gather"(%0, %1) {slice_sizes = array<i64: 1>, dimension_numbers =
          #stablehlo.gather<offset_dims = [0], start_index_map = [0]>} : $F"""
        assert on(client, line, x, start[None], gives="tensor<1xi32>").tolist() == [place]
        line = """"stablehlo.scatter"(%0, %1, %2) ({
          ^bb0(%a: tensor<i32>, %b: tensor<i32>): stablehlo.return %b : tensor<i32>
        }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
          scatter_dims_to_operand_dims = [0]>} : $F"""
        found = on(client, line, x, start[None], np.array(-1, np.int32), gives="tensor<300xi32>")
        assert np.flatnonzero(found == -1).tolist() == ([index] if index < 300 else [])


def convolution(numbers):
    return f"""stablehlo.convolution(%0, %1) dim_numbers = {numbers}, window = {{}}
      {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : $F"""


def products_added(client, numbers, result):
    """The sum of the squares of numbers, by a product and by a convolution."""
    line = "stablehlo.dot_general %0, %1, contracting_dims = [0] x [0] : $F"
    product = on(client, line, numbers, numbers, gives=f"tensor<{element(result)}>")
    image, kernel = numbers.reshape(1, -1, 1), numbers.reshape(-1, 1, 1)
    line, gives = convolution("[b, 0, f]x[0, i, o]->[b, 0, f]"), f"tensor<1x1x1x{element(result)}>"
    return [product.item(), on(client, line, image, kernel, gives=gives).item()]


@pytest.mark.parametrize(
    ("operand", "result"),
    [("int8", "int32"), ("uint8", "uint32"), ("int16", "int64"), ("int4", "int8")],
)
def test_products_of_narrow_integers_are_added_as_wide_ones(client, operand, result):
    operand, result = named(operand), named(result)
    most = np.full(4, ml_dtypes.iinfo(operand).max, operand)
    total = 4 * int(most[0]) ** 2
    expected = np.array(total).astype(result).tolist()  # 4 * 49 overflows int8
    assert products_added(client, most, result) == [expected] * 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e5m2"])
@pytest.mark.parametrize("result", ["same", "float32"])
def test_products_of_narrow_floats_are_added_in_f32(client, dtype, result):
    dtype = named(dtype)
    result = dtype if result == "same" else np.dtype(np.float32)
    assert products_added(client, np.ones(4096, dtype), result) == [4096] * 2


def test_a_convolution_may_give_features_before_batches(client):
    rng = np.random.default_rng(0)
    image = rng.integers(-9, 9, (2, 5, 3)).astype(np.float32)
    kernel = rng.integers(-9, 9, (2, 3, 4)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(image, 2, axis=1)  # axes b, 0, f, window
    expected = np.einsum("bxiw,wio->oxb", windows, kernel)
    line = convolution("[b, 0, f]x[0, i, o]->[f, 0, b]")
    found = on(client, line, image, kernel, gives="tensor<4x4x2xf32>")
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint4", "float32", "bfloat16", "complex64"])
def test_a_sum_of_nothing_is_zero(client, dtype):
    dtype = named(dtype)
    left, right = np.zeros((2, 0), dtype), np.zeros((0, 3), dtype)
    gives = f"tensor<2x3x{element(dtype)}>"
    line = "stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : $F"
    found = on(client, line, left, right, gives=gives)
    assert found.tolist() == np.zeros((2, 3), dtype).tolist()


@pytest.mark.parametrize("begin", [0, -0.0, 1])
def test_what_select_and_scatter_begins_with_counts_once(client, begin):
    x, source = np.array([0, 5, 1, 2], np.float32), np.array([10, -20], np.float32)
    begin = np.float32(begin)
    added = run(client, SELECT_AND_SCATTER.replace("$OP", "add"), x, source, begin)
    assert added.tolist() == [begin, begin - 10, begin, begin]
    assert (
        np.signbit(added).tolist()
        == [np.signbit(begin), begin == 0 or bool(begin < 10)] + [np.signbit(begin)] * 2
    )
    largest = run(client, SELECT_AND_SCATTER.replace("$OP", "maximum"), x, source, begin)
    assert largest.tolist() == [begin, 10, begin, begin]
    with pytest.raises(errors.UnimplementedError, match="does more than add or choose"):
        run(client, SELECT_AND_SCATTER.replace("$OP", "multiply"), x, source, begin)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_functions_keep_small_numbers(client, dtype):
    x = np.array([1e-20 + 1e-21j, -1e-9j, 3 - 2j, -700 + 1j, 2, 0], dtype)
    less_one = on(client, "stablehlo.exponential_minus_one %0 : $T", x)
    plus_one = on(client, "stablehlo.log_plus_one %0 : $T", x)
    small = np.abs(x) < 1e-5  # numpy's log1p also loses these
    within = float(8 * np.finfo(dtype).eps)
    assert less_one == pytest.approx(np.expm1(x), rel=within, abs=0)
    expected = np.where(small, x - x * x / 2, np.log1p(x))
    assert plus_one == pytest.approx(expected, rel=within, abs=0)


def test_operations_of_old_programs_are_made_new_ones(client):
    x = np.array([[1, 2], [3, 4]], np.float32)
    assert on(client, '"stablehlo.dot"(%0, %1) : $F', x, x).tolist() == [[7, 10], [15, 22]]
    line = "stablehlo.broadcast %0, sizes = [2] : $F"
    found = on(client, line, x, gives="tensor<2x2x2xf32>")
    assert found.tolist() == [x.tolist()] * 2


def test_hosts_are_told_the_shape_that_a_program_gives(client):
    bits = on(client, "stablehlo.bitcast_convert %0 : $F", np.float64(1.5), gives="tensor<64xi1>")
    assert np.packbits(bits, bitorder="little").tobytes() == np.float64(1.5).tobytes()
