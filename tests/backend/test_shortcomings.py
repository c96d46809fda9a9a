"""What the reference interpreter lacks or gets wrong: the plugin refuses or mends it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pjrt_hub import authoring, errors
from pjrt_hub.authoring import shortcomings
from pjrt_hub.authoring.reference import Reference
from pjrt_hub.runtime import dtypes

FLOATS = ["float16", "float32", "float64", "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e5m2"]


@pytest.fixture(scope="module")
def client():
    with authoring.plugin(Reference()).client() as client:
        yield client


def binary(client, body, left, right, gives):
    """Runs `body`, in which $T is the type of the two arrays and $G that of what it gives."""
    kind = f"tensor<{left.size}x{dtypes.of_numpy(left.dtype).name}>"
    given = f"tensor<{left.size}x{gives}>"
    head = f"func.func @main(%0: {kind}, %1: {kind}) -> {given}"
    text = f"{head} {{ %r = {body.replace('$T', kind).replace('$G', given)} return %r : {given} }}"
    return client.compile(text)(*map(client.buffer_from_host, (left, right))).to_numpy()


@pytest.mark.parametrize(("operation", "element"), shortcomings.WRONG)
def test_what_it_gets_wrong_is_refused_by_name(client, operation, element):
    kind = f"tensor<2x{element}>"
    given = "tensor<2xf32>" if operation == "stablehlo.convert" else kind
    line = f'%r = "{operation}"(%0) : ({kind}) -> {given}'
    text = f"func.func @main(%0: {kind}) -> {given} {{ {line} return %r : {given} }}"
    with pytest.raises(errors.UnimplementedError, match=f"{operation} of {element}: it gives"):
        client.compile(text)


def test_a_device_that_would_wait_for_itself_is_refused(client):
    kind = "tensor<2xf32>"
    pairs = "{source_target_pairs = dense<0> : tensor<1x2xi64>}"
    line = f'%r = "stablehlo.collective_permute"(%0) {pairs} : ({kind}) -> {kind}'
    text = f"func.func @main(%0: {kind}) -> {kind} {{ {line} return %r : {kind} }}"
    with pytest.raises(errors.UnimplementedError, match="of a device to itself"):
        client.compile(text)


def test_a_device_that_waits_in_vain_gives_up_and_comes_back(client):
    kind = "tensor<2xf32>"
    pairs = "{source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}"
    line = f'%r = "stablehlo.collective_permute"(%0) {pairs} : ({kind}) -> {kind}'
    text = f"func.func @main(%0: {kind}) -> {kind} {{ {line} return %r : {kind} }}"
    x = np.array([7, 8], np.float32)
    with pytest.raises(errors.PluginInternalError, match="rendezvous timed out"):
        client.compile(text)(client.buffer_from_host(x))
    assert binary(client, "stablehlo.add %0, %1 : $T", x, x, "f32").tolist() == [14, 16]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64", "int4", "uint4"])
def test_integers_can_be_divided_by_zero(client, dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    left, right = np.array([7, 5, 0], dtype), np.array([2, 0, 0], dtype)
    name = dtypes.of_numpy(dtype).name
    quotient = binary(client, "stablehlo.divide %0, %1 : $T", left, right, name)
    ones = np.array([-1]).astype(dtype)[0]
    assert quotient.tolist() == [3, ones, ones]
    rest = binary(client, "stablehlo.remainder %0, %1 : $T", left, right, name)
    assert rest.tolist() == [1, 5, 0]


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_have_a_total_order(client, dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    ordered = np.array([-np.nan, -np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan]).astype(dtype)
    ordered[[0, -1]] = np.copysign(ordered[-1], np.array([-1, 1], dtype))
    left, right = (each.ravel() for each in np.meshgrid(ordered, ordered))
    rank_left, rank_right = (each.ravel() for each in np.meshgrid(range(8), range(8)))
    for direction, compare in (("LT", np.less), ("EQ", np.equal), ("GE", np.greater_equal)):
        line = f"stablehlo.compare {direction}, %0, %1, TOTALORDER : ($T, $T) -> $G"
        found = binary(client, line, left, right, "i1")
        assert (found == compare(rank_left, rank_right)).all(), direction


def test_a_total_order_of_other_floats_is_refused(client):
    array = np.zeros(2, ml_dtypes.float8_e8m0fnu)
    line = "stablehlo.compare LT, %0, %1, TOTALORDER : ($T, $T) -> $G"
    with pytest.raises(errors.UnimplementedError, match="f8E8M0FNU in total order"):
        binary(client, line, array, array, "i1")
