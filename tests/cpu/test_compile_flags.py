"""XLA's flags that a plugin's compilations get by default: sent, overridden, refused, told."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import numpy as np
import pytest

import pjrt_hub
from pjrt_hub import CompileOptions
from pjrt_hub.errors import InvalidArgumentError
from pjrt_hub.runtime.compile_flags import CompileFlags

YNN = "xla_cpu_experimental_ynn_fusion_type"
NAN = "xla_cpu_enable_fast_min_max"
LENGTH = 1 << 17


def reduction(operation: str, start: str) -> str:
    return f"""
func.func @main(%a: tensor<{LENGTH}xf32>) -> tensor<f32> {{
  %z = stablehlo.constant dense<{start}> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %z) applies stablehlo.{operation} across dimensions = [0]
    : (tensor<{LENGTH}xf32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}}"""


SUM = reduction("add", "0.0")
MAXIMUM = reduction("maximum", "0xFF800000")


def is_fused(executable) -> bool:
    """Whether YNNPACK does what the flag of this plugin's manifest is about."""
    return b"__ynn_fusion" in executable.optimized_program()[0]


def test_the_plugin_tells_its_flags(plugin):
    assert plugin.compile_flags == {
        YNN: "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,LIBRARY_FUSION_TYPE_REDUCE"
    }


@pytest.mark.parametrize(
    ("flags", "fused"),
    [
        ({}, True),
        ({"xla_cpu_enable_fast_math": False}, True),
        ({YNN: None}, False),
        ({YNN: ""}, False),
        ({YNN: "LIBRARY_FUSION_TYPE_REDUCE"}, True),
        ({NAN: False}, False),
    ],
)
def test_what_the_user_says_wins(client, flags, fused):
    executable = client.compile(SUM, CompileOptions(flags=flags))
    assert is_fused(executable) is fused
    assert executable.compile_options.flags.get(YNN) == (
        client.plugin.compile_flags[YNN] if fused and YNN not in flags else flags.get(YNN)
    )


def test_a_sum_stays_a_sum(client):
    values = np.random.default_rng(7).standard_normal(LENGTH).astype(np.float32)
    expected = values.astype(np.float64).sum()
    bound = np.abs(values).sum() * 2.0**-23  # each addend once, rounded a few times
    for flags in ({}, {YNN: None}):
        result = client.compile(SUM, CompileOptions(flags=flags))(
            client.buffer_from_host(values)
        ).to_numpy()
        assert abs(result - expected) <= bound


def test_who_wants_the_nan_of_a_maximum_gets_it(client):
    values = np.zeros(LENGTH, np.float32)
    values[5] = np.nan
    maximum = client.compile(MAXIMUM, CompileOptions(flags={NAN: False}))
    assert np.isnan(maximum(client.buffer_from_host(values)).to_numpy())


@pytest.mark.parametrize("flag", [{"xla_absent": True}, {YNN: "ABSENT"}])
def test_a_default_that_the_plugin_refuses_is_left_out_and_told(clean_env, caplog, flag):
    plugin = pjrt_hub.load("cpu", offline=True)
    plugin._compile_flags = CompileFlags(lambda _: {"xla_cpu_enable_fast_math": False, **flag})
    (name,) = flag
    with plugin.client() as client, caplog.at_level(logging.WARNING, "pjrt_hub.compile_flags"):
        executable = client.compile(SUM)
        assert executable.compile_options.flags == {"xla_cpu_enable_fast_math": False}
        assert plugin.compile_flags == {"xla_cpu_enable_fast_math": False}
        client.compile(SUM)
        assert [name in record.getMessage() for record in caplog.records] == [True]
        with pytest.raises(InvalidArgumentError, match=name):  # the user's is never left out
            client.compile(SUM, CompileOptions(flags=flag))


def test_another_error_is_the_programs(client):
    with pytest.raises(InvalidArgumentError, match="xla_absent"):
        client.compile(SUM, CompileOptions(flags={"xla_absent": True}))
    assert YNN in client.plugin.compile_flags


def test_they_are_part_of_the_cache_key(client):
    kept: dict[str, bytes] = {}

    class Memory:
        get = staticmethod(kept.get)
        put = staticmethod(kept.__setitem__)

    client.compile(SUM, cache=Memory)
    client.compile(SUM, CompileOptions(flags=client.plugin.compile_flags), cache=Memory)
    assert len(kept) == 1
    assert not is_fused(client.compile(SUM, CompileOptions(flags={YNN: None}), cache=Memory))
    assert len(kept) == 2
    loaded = client.compile(SUM, cache=Memory)
    assert loaded.compile_options.flags == client.plugin.compile_flags


def test_other_options_stay(client):
    options = CompileOptions(profile_version=3, flags={"xla_cpu_enable_fast_math": False})
    sent = client.plugin._compile_flags.over(options)
    assert sent.profile_version == 3
    assert sent.flags == {**client.plugin.compile_flags, **options.flags}
    assert options.flags == {"xla_cpu_enable_fast_math": False}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (f"--{YNN}=", {}),
        (f"--xla_cpu_enable_fast_math=false --{NAN}=false", {}),
        ("--xla_cpu_enable_fast_math=false", {YNN}),
        ("a file", {}),
    ],
)
def test_the_users_variable_wins(clean_env, tmp_path, value, told):
    if value == "a file":
        value = str(tmp_path / "flags")
        (tmp_path / "flags").write_text(f"--{YNN}=\n")
    code = "import pjrt_hub; print(*pjrt_hub.load('cpu', offline=True).compile_flags)"
    env = {**clean_env, "XLA_FLAGS": value, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == set(told)
