"""Programs that several checks run, as StableHLO text, and the numbers that checks give them.

Owns no verdicts. A program that a single check runs stands beside that check.
"""

from __future__ import annotations

import numpy as np

#: An argument of `ADD` and `DOUBLE`.
NUMBERS = np.arange(1, 5, dtype=np.float32)

ADD = """
func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %sum = stablehlo.add %a, %b : tensor<4xf32>
  return %sum : tensor<4xf32>
}
"""

DOUBLE = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %sum = stablehlo.add %a, %a : tensor<4xf32>
  return %sum : tensor<4xf32>
}
"""

#: `SLOW` takes and gives an array of this type.
SLOW_SHAPE = "16x16xf32"
#: This program multiplies an identity matrix by itself as often as the second argument says.
SLOW = """
func.func @main(%a: tensor<16x16xf32>, %rounds: tensor<i32>) -> tensor<16x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, tensor<16x16xf32>
    cond {
      %more = stablehlo.compare LT, %i, %rounds : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %y = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0]
          : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
      stablehlo.return %j, %y : tensor<i32>, tensor<16x16xf32>
    }
  return %r#1 : tensor<16x16xf32>
}
"""

#: This program takes the place of `SLOW` on plugins without loops.
_LONG = """
func.func @main(%a: tensor<16x16xf32>, %rounds: tensor<i32>) -> tensor<16x16xf32> {{
{products}
  return %x{last} : tensor<16x16xf32>
}}
"""
_PRODUCT = """\
  %x{number} = stablehlo.dot_general %{left}, %a, contracting_dims = [1] x [0]
      : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>"""
_PRODUCTS = 2000


def many_products() -> str:
    """Return `SLOW` without a loop: always 2000 products, whatever the second argument says."""
    names = ["a", *(f"x{number}" for number in range(_PRODUCTS))]
    lines = (_PRODUCT.format(number=i, left=names[i]) for i in range(_PRODUCTS))
    return _LONG.format(products="\n".join(lines), last=_PRODUCTS - 1)
