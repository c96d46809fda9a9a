"""What the reference interpreter lacks or gets wrong: the plugin refuses it by name."""

from __future__ import annotations

import numpy as np
import pytest

from pjrt_hub import errors
from pjrt_hub.kit.authoring import limitations


@pytest.mark.parametrize(("operation", "element"), limitations.WRONG)
def test_what_it_gets_wrong_is_refused_by_name(client, operation, element):
    kind = f"tensor<2x{element}>"
    given = "tensor<2xf32>" if operation == "stablehlo.convert" else kind
    count = 2 if operation == "stablehlo.atan2" else 1
    operands, kinds = ", ".join(["%0"] * count), ", ".join([kind] * count)
    line = f'%r = "{operation}"({operands}) : ({kinds}) -> {given}'
    text = f"func.func @main(%0: {kind}) -> {given} {{ {line} return %r : {given} }}"
    with pytest.raises(errors.UnimplementedError, match=f"{operation} of {element}: it gives"):
        client.compile(text)


def of_a_vector(operation):
    """A program of one operation, from two numbers to two."""
    kind = "tensor<2xf32>"
    return f"func.func @main(%0: {kind}) -> {kind} {{ %r = {operation} return %r : {kind} }}"


def permutation(source, target):
    """A program in which one device sends its numbers to another."""
    pairs = f"{{source_target_pairs = dense<[[{source}, {target}]]> : tensor<1x2xi64>}}"
    kinds = "(tensor<2xf32>) -> tensor<2xf32>"
    return of_a_vector(f'"stablehlo.collective_permute"(%0) {pairs} : {kinds}')


def test_a_device_that_waits_in_vain_gives_up_and_comes_back(client):
    x = client.buffer_from_host(np.array([7, 8], np.float32))
    with pytest.raises(errors.PluginInternalError, match="rendezvous timed out"):
        client.compile(permutation(0, 1))(x)
    twice = of_a_vector("stablehlo.add %0, %0 : tensor<2xf32>")
    assert client.compile(twice)(x).to_numpy().tolist() == [14, 16]


@pytest.mark.parametrize("name", ["reduce", "reduce_window", "scatter"])
def test_numbers_that_are_combined_as_wider_ones_are_refused(client, name):
    attributes = {
        "reduce": "dimensions = array<i64: 0>",
        "reduce_window": "window_dimensions = array<i64: 4>",
        "scatter": "scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],"
        " scatter_dims_to_operand_dims = [0]>",
    }[name]
    operands, kinds, gives = {
        "reduce": ("%0, %1", "tensor<4xi8>, tensor<i8>", "tensor<i32>"),
        "reduce_window": ("%0, %1", "tensor<4xi8>, tensor<i8>", "tensor<1xi32>"),
        "scatter": ("%0, %2, %1", "tensor<4xi8>, tensor<1xi32>, tensor<i8>", "tensor<4xi32>"),
    }[name]
    text = f"""func.func @main(%0: tensor<4xi8>, %1: tensor<i8>, %2: tensor<1xi32>) -> {gives} {{
      %r = "stablehlo.{name}"({operands}) ({{
        ^bb0(%a: tensor<i32>, %b: tensor<i32>):
          %c = stablehlo.add %a, %b : tensor<i32>
          stablehlo.return %c : tensor<i32>
      }}) {{{attributes}}} : ({kinds}) -> {gives}
      return %r : {gives}
    }}"""
    with pytest.raises(errors.UnimplementedError, match=f"stablehlo.{name} of i8 in i32"):
        client.compile(text)


SMALL = "tensor<2xf8E8M0FNU>"
TOTAL_ORDER = f"""func.func @main(%0: {SMALL}) -> tensor<2xi1> {{
  %r = stablehlo.compare LT, %0, %0, TOTALORDER : ({SMALL}, {SMALL}) -> tensor<2xi1>
  return %r : tensor<2xi1>
}}"""
DYNAMIC = """func.func @main(%x: tensor<4xf32>, %n: tensor<1xi32>) -> tensor<i32> {
  %y = stablehlo.dynamic_reshape %x, %n : (tensor<4xf32>, tensor<1xi32>) -> tensor<?xf32>
  %r = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  return %r : tensor<i32>
}"""
FOR_NOBODY = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %t = stablehlo.after_all : !stablehlo.token
  %u = "stablehlo.send"(%x, %t) {is_host_transfer = true,
    channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>
  } : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
  return %x : tensor<4xf32>
}"""
REFUSED = {
    "of a device to itself": permutation(0, 0),
    "f8E8M0FNU in total order": TOTAL_ORDER,
    "dynamic_reshape of a dynamic shape": DYNAMIC,
    r"stablehlo\.send: nobody is at its other": FOR_NOBODY,
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_it_does_not_do_is_refused(client, words):
    with pytest.raises(errors.UnimplementedError, match=words):
        client.compile(REFUSED[words])
