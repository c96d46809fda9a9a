"""Default XLA flags of a plugin: they are sent, can be overridden, and are reported."""

import logging

import ml_dtypes
import numpy as np
import pytest
from children import PLATFORM
from texts import adding

import pjrt_hub
from pjrt_hub import CompileOptions
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import InvalidArgumentError
from pjrt_hub.running.compilation.policy import DefaultFlags

pytestmark = pytest.mark.cpu("its flags")

YNN = "xla_cpu_experimental_ynn_fusion_type"
NAN = "xla_cpu_enable_fast_min_max"
LENGTH = 1 << 17


def reduction(
    operation: str,
    start: str,
    dtype: str = "f32",
    shape: tuple[int, ...] = (LENGTH,),
    axis: int = 0,
) -> str:
    """A program that reduces one axis by an operation."""
    whole = "x".join([*map(str, shape), dtype])
    left = "x".join([*(str(size) for n, size in enumerate(shape) if n != axis), dtype])
    return f"""
func.func @main(%a: tensor<{whole}>) -> tensor<{left}> {{
  %z = stablehlo.constant dense<{start}> : tensor<{dtype}>
  %0 = stablehlo.reduce(%a init: %z) applies stablehlo.{operation} across dimensions = [{axis}]
    : (tensor<{whole}>, tensor<{dtype}>) -> tensor<{left}>
  return %0 : tensor<{left}>
}}"""


SUM = reduction("add", "0.0")
CONVOLUTION = """
func.func @main(%a: tensor<1x64x64x32xf32>, %k: tensor<3x3x32x32xf32>) -> tensor<1x64x64x32xf32> {
  %0 = stablehlo.convolution(%a, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x64x64x32xf32>, tensor<3x3x32x32xf32>) -> tensor<1x64x64x32xf32>
  return %0 : tensor<1x64x64x32xf32>
}"""
MAXIMUM = reduction("maximum", "0xFF800000")


def is_fused(executable) -> bool:
    """Whether the compiler gave a part of the program to YNNPACK."""
    return b"__ynn_fusion" in executable.optimized_program().code


def test_the_plugin_tells_its_flags(plugin):
    """Builds of PJRT API 0.106 and newer fuse reductions and convolutions without a flag."""
    flags = {}
    if plugin.api_version <= ApiVersion(0, 81):
        flags[YNN] = "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,LIBRARY_FUSION_TYPE_REDUCE"
    if plugin.api_version >= ApiVersion(0, 115):
        flags[NAN] = False
    assert plugin.compile_flags == flags


@pytest.mark.parametrize(
    ("flags", "fused"),
    [
        ({}, True),
        ({"xla_cpu_enable_fast_math": False}, True),
        ({YNN: None}, "by the plugin"),
        ({YNN: ""}, False),
        ({YNN: "LIBRARY_FUSION_TYPE_REDUCE"}, True),
        ({NAN: False}, "by the plugin"),
    ],
)
def test_what_the_user_says_wins(client, flags, fused):
    default = client.plugin.compile_flags.get(YNN)
    executable = client.compile(SUM, CompileOptions(flags=flags))
    assert is_fused(executable) is (default is None if fused == "by the plugin" else fused)
    sent = executable.compile_options.flags.get(YNN)
    assert sent == (flags.get(YNN) if {YNN, NAN} & flags.keys() else default)


def test_a_convolution_is_compiled_as_the_plugin_would(client):
    executable = client.compile(CONVOLUTION)
    own = client.compile(CONVOLUTION, CompileOptions(flags={YNN: None}))
    assert is_fused(executable) is is_fused(own)
    image, kernel = np.ones((1, 64, 64, 32), np.float32), np.ones((3, 3, 32, 32), np.float32)
    assert executable(image, kernel).to_numpy()[0, 1, 1, 0] == 3 * 3 * 32


def test_a_sum_stays_a_sum(client):
    values = np.random.default_rng(7).standard_normal(LENGTH).astype(np.float32)
    expected = values.astype(np.float64).sum()
    bound = np.abs(values).sum() * 2.0**-23  # each addend is used once and rounded a few times
    for flags in ({}, {YNN: None}):
        result = client.compile(SUM, CompileOptions(flags=flags))(
            client.buffer_from_host(values)
        ).to_numpy()
        assert abs(result - expected) <= bound


@pytest.mark.parametrize("operation", ["maximum", "minimum"])
def test_the_nan_of_either_side_is_kept(client, operation):
    """Only the newest build keeps it, by its default flag."""
    code = adding("3xf32").replace("add", operation)
    sides = np.array([np.nan, 1, 2], np.float32), np.array([1, np.nan, 2], np.float32)
    found = client.compile(code)(*sides).to_numpy()
    kept = np.isnan(found).tolist()
    assert kept == [True, True, False] if NAN in client.plugin.compile_flags else sum(kept) < 2


def test_who_wants_the_nan_of_a_maximum_gets_it(client):
    values = np.zeros(LENGTH, np.float32)
    values[5] = np.nan
    flags = {NAN: False}
    if YNN not in client.plugin.compile_flags:  # this plugin fuses maxima despite NAN
        flags[YNN] = "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
    maximum = client.compile(MAXIMUM, CompileOptions(flags=flags))
    assert np.isnan(maximum(client.buffer_from_host(values)).to_numpy())


#: Element type -> its numpy type, and the bits of -inf and of inf as XLA writes them.
FLOATS = {
    "f32": (np.float32, "0xFF800000", "0x7F800000"),
    "f64": (np.float64, "0xFFF0000000000000", "0x7FF0000000000000"),
    "f16": (np.float16, "0xFC00", "0x7C00"),
    "bf16": (ml_dtypes.bfloat16, "0xFF80", "0x7F80"),
}


def special(dtype, shape) -> dict[str, np.ndarray]:
    """Arrays of ordinary numbers that contain one kind of special value."""
    chance = np.random.default_rng(11)
    plain = chance.standard_normal(shape).astype(dtype)
    some = [tuple(chance.integers(0, size) for size in shape) for _ in range(4)]

    def holding(*values):
        array = plain.copy()
        for place, value in zip(some, values, strict=False):
            array[place] = value
        return array

    least = np.asarray(ml_dtypes.finfo(dtype).smallest_subnormal, dtype)
    return {
        "plain": plain,
        "NaN": holding(np.nan, np.nan, np.nan),
        "infinity": holding(np.inf, np.inf),
        "both infinities": holding(np.inf, -np.inf, -np.inf),
        "NaN and infinity": holding(np.nan, np.inf, np.nan, -np.inf),
        "negative zeros": np.full(shape, -0.0, dtype),
        "denormals": np.full(shape, least, dtype),
        "only NaN": np.full(shape, np.nan, dtype),
    }


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("length", [17, 125_000])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.slow
def test_no_value_is_less_right_than_the_plugins_own(client, dtype, length, axis):
    """Wrong maxima also occur in the plugin without our flags, and sums are about as accurate."""
    scalar, low, high = FLOATS[dtype]
    shape = (length, 8) if axis == 0 else (8, length)
    arrays = special(scalar, shape)
    for operation, start in (("maximum", low), ("minimum", high), ("add", "0.0")):
        text = reduction(operation, start, dtype, shape, axis)
        ours = client.compile(text)
        own = client.compile(text, CompileOptions(flags=dict.fromkeys(client.plugin.compile_flags)))
        for kind, array in arrays.items():
            buffer = client.buffer_from_host(array)
            found, expected = (exe(buffer).to_numpy().astype(np.float64) for exe in (ours, own))
            wide = array.astype(np.float64)
            if operation != "add":
                right = getattr(np, operation).reduce(wide, axis=axis)
                is_wrong = ~((found == right) | (np.isnan(found) & np.isnan(right)))
                if kind == "denormals":  # XLA's arithmetic flushes them, and on a processor
                    is_wrong &= found != 0  # without AVX-512 so do maxima of bf16, in f32.
                left = (each[is_wrong] for each in (found, expected))
                assert np.array_equal(*left, equal_nan=True), (operation, kind)
                continue
            with np.errstate(invalid="ignore"):
                exact = wide.sum(axis=axis)
            finite = np.isfinite(exact)
            assert np.array_equal(found[~finite], expected[~finite], equal_nan=True), kind
            bound = np.abs(wide).sum(axis=axis)[finite] * float(ml_dtypes.finfo(scalar).eps)
            found, expected, exact = (values[finite] for values in (found, expected, exact))
            own_error = np.abs(expected - exact)
            assert (np.abs(found - exact) <= np.maximum(bound, own_error)).all(), kind


def test_a_program_with_a_maximum_is_compiled_as_the_plugin_would(client):
    sum_and_maximum = SUM.replace(
        "  return %0", "  %1 = stablehlo.maximum %0, %z : tensor<f32>\n  return %1"
    )
    has_default = YNN in client.plugin.compile_flags
    executable = client.compile(sum_and_maximum)
    assert YNN not in executable.compile_options.flags
    assert is_fused(executable) is not has_default
    assert executable(np.ones(LENGTH, np.float32)).item() == LENGTH
    own = CompileOptions(flags={YNN: None})
    hlo = client.compile(sum_and_maximum, own).optimized_program().code
    assert YNN not in client.plugin.policy.default_flags.beside({}, hlo)
    alone = client.compile(SUM).optimized_program().code
    assert (YNN in client.plugin.policy.default_flags.beside({}, alone)) is has_default


@pytest.mark.parametrize("flag", [{"xla_absent": True}, {YNN: "ABSENT"}])
def test_a_default_that_the_plugin_refuses_is_left_out_and_told(clean_env, caplog, flag):
    plugin = pjrt_hub.load(PLATFORM, offline=True)
    plugin.policy.default_flags = DefaultFlags(
        lambda *_: {"xla_cpu_enable_fast_math": False, **flag}
    )
    (name,) = flag
    with plugin.client() as client, caplog.at_level(logging.WARNING, "pjrt_hub.compile_flags"):
        executable = client.compile(SUM)
        assert executable.compile_options.flags == {"xla_cpu_enable_fast_math": False}
        assert plugin.compile_flags == {"xla_cpu_enable_fast_math": False}
        client.compile(SUM)
        assert [name in record.getMessage() for record in caplog.records] == [True]
        with pytest.raises(InvalidArgumentError, match=name):  # a user's flag is always sent
            client.compile(SUM, CompileOptions(flags=flag))


def test_another_error_is_the_programs(client):
    before = client.plugin.compile_flags
    with pytest.raises(InvalidArgumentError, match="xla_absent"):
        client.compile(SUM, CompileOptions(flags={"xla_absent": True}))
    assert client.plugin.compile_flags == before


def test_they_are_part_of_the_cache_key(client, kept):
    client.compile(SUM, cache=kept)
    client.compile(SUM, CompileOptions(flags=client.plugin.compile_flags), cache=kept)
    assert len(kept) == 1
    assert not is_fused(client.compile(SUM, CompileOptions(flags={YNN: ""}), cache=kept))
    assert len(kept) == 2
    loaded = client.compile(SUM, cache=kept)
    assert loaded.compile_options.flags == client.plugin.compile_flags


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (f"--{YNN}=", {NAN}),
        (f"--xla_cpu_enable_fast_math=false --{NAN}=false", {}),
        ("--xla_cpu_enable_fast_math=false", {YNN, NAN}),
        ("a file", {NAN}),
    ],
)
def test_the_users_variable_wins(plugin, child, tmp_path, value, told):
    if value == "a file":
        value = str(tmp_path / "flags")
        (tmp_path / "flags").write_text(f"--{YNN}=\n")
    printed = child(print_flags, prepared=False, XLA_FLAGS=value)
    assert set(printed.split()) == set(told) & plugin.compile_flags.keys()


def print_flags():
    print(*pjrt_hub.load(PLATFORM, offline=True).compile_flags)
