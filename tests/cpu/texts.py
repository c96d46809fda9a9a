"""Programs as text, of the types that a test wants, where tests/programs has none."""

from __future__ import annotations

#: The attribute of a parameter whose memory the first result takes.
DONATED = "{tf.aliasing_output = 0 : i32}"
BOUNDS = {"?x3": "4, ?", "4x?": "?, 3"}


def identity(kind: str) -> str:
    """Give its argument, of a type as "8xf32"."""
    return f"func.func @main(%a: tensor<{kind}>) -> tensor<{kind}> {{ return %a : tensor<{kind}> }}"


def doubling(kind: str, attribute: str = "") -> str:
    """Give twice its argument, which has an attribute."""
    return f"""func.func @main(%a: tensor<{kind}> {attribute}) -> tensor<{kind}> {{
  %0 = stablehlo.add %a, %a : tensor<{kind}>
  return %0 : tensor<{kind}>
}}"""


def adding(kind: str, attribute: str = "") -> str:
    """Give the sum of two arguments, of which the first has an attribute."""
    kind = f"tensor<{kind}>"
    return f"""func.func @main(%a: {kind} {attribute}, %b: {kind}) -> {kind} {{
  %0 = stablehlo.add %a, %b : {kind}
  return %0 : {kind}
}}"""


def custom_call(name: str, kind: str = "8xf32", config: str = "", version: int = 4) -> str:
    """Give what a function of that name makes of the argument, with the attributes of `config`."""
    attributes = f"api_version = {version} : i32"
    attributes += f", backend_config = {{{config}}}" if version == 4 else ""
    return f"""func.func @main(%a: tensor<{kind}>) -> tensor<{kind}> {{
  %r = stablehlo.custom_call @{name}(%a) {{{attributes}}} : (tensor<{kind}>) -> tensor<{kind}>
  return %r : tensor<{kind}>
}}"""


def bounded(dims: str, element: str = "f32") -> str:
    """The type of the first rows ("?x3") or columns ("4x?") of 4x3 elements."""
    return f"{dims}x{element}, #stablehlo.bounds<{BOUNDS[dims]}>"


def cut(dims: str, element: str = "f32") -> str:
    """Give the first rows or columns of its argument, as many as the other says."""
    kind, axis = f"tensor<{bounded(dims, element)}>", dims.split("x").index("?")
    return f"""func.func @main(%a: tensor<4x3x{element}>, %n: tensor<i32>) -> {kind} {{
  %r = "stablehlo.set_dimension_size"(%a, %n) {{dimension = {axis} : i64}}
      : (tensor<4x3x{element}>, tensor<i32>) -> {kind}
  return %r : {kind}
}}"""


def products(count: int = 20_000) -> str:
    """So many products that compiling them takes minutes."""
    kind = "tensor<64x64xf32>"
    product = "%{} = stablehlo.dot_general %{}, %a, contracting_dims = [1] x [0] : ({}, {}) -> {}"
    lines = [f"func.func @main(%a: {kind}) -> {kind} {{", f"%0 = stablehlo.add %a, %a : {kind}"]
    lines += [product.format(n + 1, n, kind, kind, kind) for n in range(count)]
    return "\n".join([*lines, f"return %{count} : {kind}", "}"])
