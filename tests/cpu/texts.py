"""Functions that write programs for the types that a test wants; see also tests/programs."""

from __future__ import annotations

#: The attribute of a parameter whose memory the program reuses for its first result.
DONATED = "{tf.aliasing_output = 0 : i32}"
BOUNDS = {"?x3": "4, ?", "4x?": "?, 3"}


def identity(kind: str) -> str:
    """A program that returns its argument, of a type such as "8xf32"."""
    return f"func.func @main(%a: tensor<{kind}>) -> tensor<{kind}> {{ return %a : tensor<{kind}> }}"


def doubling(kind: str, attribute: str = "") -> str:
    """A program that returns twice its argument, which has an attribute."""
    return f"""func.func @main(%a: tensor<{kind}> {attribute}) -> tensor<{kind}> {{
  %0 = stablehlo.add %a, %a : tensor<{kind}>
  return %0 : tensor<{kind}>
}}"""


def adding(kind: str, attribute: str = "") -> str:
    """A program that returns the sum of two arguments; the first one has an attribute."""
    kind = f"tensor<{kind}>"
    return f"""func.func @main(%a: {kind} {attribute}, %b: {kind}) -> {kind} {{
  %0 = stablehlo.add %a, %b : {kind}
  return %0 : {kind}
}}"""


def custom_call(name: str, kind: str = "8xf32", config: str = "", version: int = 4) -> str:
    """A program that passes its argument to a custom call with the attributes in `config`."""
    attributes = f"api_version = {version} : i32"
    attributes += f", backend_config = {{{config}}}" if version == 4 else ""
    return f"""func.func @main(%a: tensor<{kind}>) -> tensor<{kind}> {{
  %r = stablehlo.custom_call @{name}(%a) {{{attributes}}} : (tensor<{kind}>) -> tensor<{kind}>
  return %r : tensor<{kind}>
}}"""


def bounded(dims: str, element: str = "f32") -> str:
    """The tensor type of the first rows ("?x3") or columns ("4x?") of 4x3 elements."""
    return f"{dims}x{element}, #stablehlo.bounds<{BOUNDS[dims]}>"


def cut(dims: str, element: str = "f32") -> str:
    """A program that returns the first rows or columns of an argument; another gives the count."""
    kind, axis = f"tensor<{bounded(dims, element)}>", dims.split("x").index("?")
    return f"""func.func @main(%a: tensor<4x3x{element}>, %n: tensor<i32>) -> {kind} {{
  %r = "stablehlo.set_dimension_size"(%a, %n) {{dimension = {axis} : i64}}
      : (tensor<4x3x{element}>, tensor<i32>) -> {kind}
  return %r : {kind}
}}"""


def products(count: int = 20_000) -> str:
    """A program of `count` products, many of which take minutes to compile."""
    kind = "tensor<64x64xf32>"
    product = "%{} = stablehlo.dot_general %{}, %a, contracting_dims = [1] x [0] : ({}, {}) -> {}"
    lines = [f"func.func @main(%a: {kind}) -> {kind} {{", f"%0 = stablehlo.add %a, %a : {kind}"]
    lines += [product.format(n + 1, n, kind, kind, kind) for n in range(count)]
    return "\n".join([*lines, f"return %{count} : {kind}", "}"])
