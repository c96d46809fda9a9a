"""Random programs of a few operations, and the values that numpy computes for them.

A program returns each value that it made and all its arguments, so that an operation that changes
its operands is noticed. Numbers are whole and small: every type but the narrow floats holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from pjrt_hub.running.array import dtypes

Array = np.ndarray[Any, Any]

INTEGERS = ["int8", "uint8", "int16", "int32", "uint32", "int64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
INDICES = ["uint8", "int8", "int32", "uint32", "int64", "uint64"]


def named(name: str) -> np.dtype[Any]:
    """Return the dtype of this name, of numpy or ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, name, name))


def element(dtype: Any) -> str:
    """Return the name of a dtype in StableHLO."""
    return dtypes.of_numpy(dtype).name


def tensor(array: Array) -> str:
    """Return the type of an array in StableHLO."""
    return f"tensor<{''.join(f'{size}x' for size in array.shape)}{element(array.dtype)}>"


def is_float(array: Array) -> bool:
    """Return whether an array's numbers are floats, including those of ml_dtypes."""
    return bool(array.dtype.kind in "fV")


def wide(array: Array) -> Array:
    """Return an array in a type in which nothing overflows or rounds."""
    return array.astype(np.float64 if is_float(array) else np.int64)


class Program:
    """A growing program; `values` are SSA names with the arrays that numpy computes for them."""

    def __init__(self, seed: int, length: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.lines: list[str] = []
        self.operations: list[str] = []
        dtype = named(self.choice(INTEGERS + FLOATS))
        low = 0 if dtype.kind == "u" else -2
        shape = self.rng.integers(1, 4, self.rng.integers(1, 4))
        self.arguments = [self.rng.integers(low, 3, shape).astype(dtype) for _ in range(2)]
        self.values = [(f"%a{i}", each) for i, each in enumerate(self.arguments)]
        with np.errstate(all="ignore"):
            while len(self.operations) < length:
                operation = self.choice(OPERATIONS)
                if operation(self, *self.choice(self.values)):
                    self.operations.append(operation.__name__)

    def choice(self, several: Sequence[Any]) -> Any:
        """Choose one of several things."""
        return several[self.rng.integers(len(several))]

    def like(self, array: Array) -> tuple[str, Array]:
        """Choose a value of the same type and shape as an array."""
        same = [v for v in self.values if (v[1].dtype, v[1].shape) == (array.dtype, array.shape)]
        return self.choice(same)  # type: ignore[no-any-return]

    def say(self, operation: str, kinds: str) -> str:
        """Add an operation whose value the program does not return, and return its name."""
        name = f"%t{len(self.lines)}"
        self.lines.append(f"{name} = {operation} : {kinds}")
        return name

    def constant(self, array: Array) -> str:
        """Add a constant of whole numbers."""
        values = wide(array) if is_float(array) else array
        numbers = str(values.tolist()) if array.size else ""
        return self.say(f"stablehlo.constant dense<{numbers}>", tensor(array))

    def give(self, operation: str, taken: Sequence[Array], value: Array) -> bool:
        """Add an operation whose value the program returns."""
        kinds = f"({', '.join(map(tensor, taken))}) -> {tensor(value)}"
        name = self.say(operation, kinds)
        self.values.append((name, np.ascontiguousarray(value).reshape(value.shape)))
        return True

    @property
    def text(self) -> str:
        """The program in StableHLO."""
        parameters = ", ".join(f"%a{i}: {tensor(each)}" for i, each in enumerate(self.arguments))
        kinds = ", ".join(tensor(each) for _, each in self.values)
        names = ", ".join(name for name, _ in self.values)
        lines = "\n  ".join([*self.lines, f"return {names} : {kinds}"])
        return f"func.func @main({parameters}) -> ({kinds}) {{\n  {lines}\n}}\n"


def combining(name: str, kind: str) -> str:
    """Return a body, as a reduction has it, that combines two numbers."""
    return f"""({{ ^bb0(%l: tensor<{kind}>, %r: tensor<{kind}>):
    %c = stablehlo.{name} %l, %r : tensor<{kind}>
    stablehlo.return %c : tensor<{kind}> }})"""


def elementwise(program: Program, name: str, x: Array) -> bool:
    functions = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}
    functions |= {"maximum": np.maximum, "minimum": np.minimum}
    if not is_float(x):
        functions |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    operation = program.choice(list(functions))
    other, y = program.like(x)
    value = functions[operation](x, y).astype(x.dtype)
    return program.give(f'"stablehlo.{operation}"({name}, {other})', [x, y], value)


def unary(program: Program, name: str, x: Array) -> bool:
    functions = {"negate": np.negative}
    if x.dtype.kind != "u":
        functions |= {"abs": np.abs, "sign": np.sign}
    operation = program.choice(list(functions))
    value = functions[operation](x).astype(x.dtype)
    return program.give(f'"stablehlo.{operation}"({name})', [x], value)


def select(program: Program, name: str, x: Array) -> bool:
    other, y = program.like(x)
    kinds = f"({tensor(x)}, {tensor(y)}) -> {tensor(x < y)}"
    less = program.say(f"stablehlo.compare LT, {name}, {other}", kinds)
    value = np.where(x < y, x, y)
    return program.give(f'"stablehlo.select"({less}, {name}, {other})', [x < y, x, y], value)


def convert(program: Program, name: str, x: Array) -> bool:
    kinds = ["int64", "float32", "float64"] if is_float(x) else [*INTEGERS, "float64"]
    dtype = named(program.choice(kinds))
    return program.give(f'"stablehlo.convert"({name})', [x], x.astype(dtype))


def broadcast(program: Program, name: str, x: Array) -> bool:
    place = int(program.rng.integers(x.ndim + 1))
    dims = [d + (d >= place) for d in range(x.ndim)]
    shape = [*x.shape[:place], 2, *x.shape[place:]]
    value = np.broadcast_to(np.expand_dims(x, place), shape)
    attributes = f"{{broadcast_dimensions = array<i64{':' * bool(dims)} {str(dims)[1:-1]}>}}"
    return program.give(f'"stablehlo.broadcast_in_dim"({name}) {attributes}', [x], value)


def transpose(program: Program, name: str, x: Array) -> bool:
    order = program.rng.permutation(x.ndim).tolist()
    return program.give(f"stablehlo.transpose {name}, dims = {order}", [x], x.transpose(order))


def reverse(program: Program, name: str, x: Array) -> bool:
    dims = [d for d in range(x.ndim) if program.rng.integers(2)]
    attributes = f"{{dimensions = array<i64{':' * bool(dims)} {str(dims)[1:-1]}>}}"
    return program.give(f'"stablehlo.reverse"({name}) {attributes}', [x], np.flip(x, dims))


def reshape(program: Program, name: str, x: Array) -> bool:
    shape = program.choice([(x.size,), (1, *x.shape), (*x.shape, 1), x.shape[::-1]])
    return program.give(f'"stablehlo.reshape"({name})', [x], x.reshape(shape))


def strided(program: Program, name: str, x: Array) -> bool:
    cuts = [(int(program.rng.integers(size)), size, 1 + size % 2) for size in x.shape]
    shown = ", ".join(f"{first}:{last}:{step}" for first, last, step in cuts)
    value = x[tuple(slice(*each) for each in cuts)]
    return program.give(f"stablehlo.slice {name} [{shown}]", [x], value)


def pad(program: Program, name: str, x: Array) -> bool:
    if not x.ndim or not x.size:
        return False
    low, high, inside = program.rng.integers([[-1], [0], [0]], 2, (3, x.ndim)).tolist()
    if any(n + a <= 0 for n, a in zip(x.shape, low, strict=True)):
        return False
    wider = np.full([n + (n - 1) * i for n, i in zip(x.shape, inside, strict=True)], 1, x.dtype)
    wider[tuple(slice(None, None, i + 1) for i in inside)] = x
    value = wider[tuple(slice(max(-a, 0), None) for a in low)]
    around = [(max(a, 0), b) for a, b in zip(low, high, strict=True)]
    value = np.pad(value, around, constant_values=1)
    one = np.array(1, x.dtype)
    words = f"low = {low}, high = {high}, interior = {inside}"
    operation = f"stablehlo.pad {name}, {program.constant(one)}, {words}"
    return program.give(operation, [x, one], value)


def concatenate(program: Program, name: str, x: Array) -> bool:
    if not x.ndim:
        return False
    other, y = program.like(x)
    dim = int(program.rng.integers(x.ndim))
    value = np.concatenate([x, y], dim)
    return program.give(f"stablehlo.concatenate {name}, {other}, dim = {dim}", [x, y], value)


def reduce(program: Program, name: str, x: Array) -> bool:
    dims = [d for d in range(x.ndim) if program.rng.integers(2)]
    if not x.size or not dims:
        return False
    operation = program.choice(["add", "maximum", "minimum"])
    # XLA ignores this value where it reduces a single element, so it must change nothing.
    low, high = (-(2**14), 2**14) if is_float(x) else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    begin = np.array({"add": 0, "maximum": low, "minimum": high}[operation]).astype(x.dtype)
    function = {"add": np.sum, "maximum": np.max, "minimum": np.min}[operation]
    value = function(wide(x), axis=tuple(dims))
    attributes = f"{{dimensions = array<i64: {str(dims)[1:-1]}>}}"
    body = combining(operation, element(x.dtype))
    text = f'"stablehlo.reduce"({name}, {program.constant(begin)}) {body} {attributes}'
    return program.give(text, [x, begin], np.asarray(value).astype(x.dtype))


def window(program: Program, name: str, x: Array) -> bool:
    if not x.ndim or x.shape[-1] < 2:
        return False
    begin = np.array(0, x.dtype)
    size = [1] * (x.ndim - 1) + [2]
    value = np.lib.stride_tricks.sliding_window_view(wide(x), 2, axis=-1).sum(-1)
    attributes = f"{{window_dimensions = array<i64: {str(size)[1:-1]}>}}"
    body = combining("add", element(x.dtype))
    text = f'"stablehlo.reduce_window"({name}, {program.constant(begin)}) {body} {attributes}'
    return program.give(text, [x, begin], value.astype(x.dtype))


def indices(program: Program, size: int) -> Array:
    """Return three indices along a dimension, some of which are out of bounds."""
    dtype = named(program.choice(INDICES))
    outside = np.iinfo(dtype).max if dtype.kind == "u" else -1
    places = [*program.rng.integers(0, size + 2, 2).tolist(), outside]
    return np.array(places, object).astype(dtype)


def gather(program: Program, name: str, x: Array) -> bool:
    if not x.size or not x.ndim:
        return False
    places = indices(program, x.shape[0])
    inside = np.clip(places.astype(object), 0, x.shape[0] - 1).astype(int)
    offsets = list(range(1, x.ndim))
    sizes = str([1, *x.shape[1:]])[1:-1]
    text = f""""stablehlo.gather"({name}, {program.constant(places)}) {{
      dimension_numbers = #stablehlo.gather<offset_dims = {offsets}, collapsed_slice_dims = [0],
        start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: {sizes}>}}"""
    return program.give(text, [x, places], x[inside])


def scatter(program: Program, name: str, x: Array) -> bool:
    if not x.size or not x.ndim:
        return False
    places = indices(program, x.shape[0])
    updates = np.ones((3, *x.shape[1:]), x.dtype)
    value = wide(x)
    for place in places.tolist():
        if 0 <= place < x.shape[0]:
            value[place] += 1
    window_dims = list(range(1, x.ndim))
    body = combining("add", element(x.dtype))
    operands = f"{name}, {program.constant(places)}, {program.constant(updates)}"
    text = f""""stablehlo.scatter"({operands}) {body} {{
      scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {window_dims},
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}"""
    return program.give(text, [x, places, updates], value.astype(x.dtype))


def dynamic_slice(program: Program, name: str, x: Array) -> bool:
    if not x.ndim:
        return False
    dtype = named(program.choice(INDICES))
    starts = [np.array(n, dtype) for n in program.rng.integers(0, 4, x.ndim)]
    sizes = [int(program.rng.integers(1, size + 1)) if size else 0 for size in x.shape]
    firsts = [min(int(s), n - k) for s, n, k in zip(starts, x.shape, sizes, strict=True)]
    value = x[tuple(slice(f, f + k) for f, k in zip(firsts, sizes, strict=True))]
    names = ", ".join([name, *map(program.constant, starts)])
    return program.give(f"stablehlo.dynamic_slice {names}, sizes = {sizes}", [x, *starts], value)


def update_slice(program: Program, name: str, x: Array) -> bool:
    if not x.size or not x.ndim:
        return False
    dtype = named(program.choice(INDICES))
    starts = [np.array(n, dtype) for n in program.rng.integers(0, 4, x.ndim)]
    update = np.full([1] * x.ndim, 2, x.dtype)
    value = x.copy()
    value[tuple(min(int(s), n - 1) for s, n in zip(starts, x.shape, strict=True))] = 2
    names = ", ".join([name, program.constant(update), *map(program.constant, starts)])
    return program.give(f"stablehlo.dynamic_update_slice {names}", [x, update, *starts], value)


def dot(program: Program, name: str, x: Array) -> bool:
    if not x.ndim or x.ndim > 3:
        return False
    other, y = program.like(x)
    dim = int(program.rng.integers(x.ndim))
    value = np.tensordot(wide(x), wide(y), (dim, dim)).astype(x.dtype)
    words = f"contracting_dims = [{dim}] x [{dim}]"
    return program.give(f"stablehlo.dot_general {name}, {other}, {words}", [x, y], value)


def convolution(program: Program, name: str, x: Array) -> bool:
    if x.ndim != 3 or not x.size:
        return False
    kernel = program.rng.integers(0, 3, (2, x.shape[2], 2)).astype(x.dtype)
    dtype = x.dtype if is_float(x) else named(program.choice([x.dtype.name, "int64"]))
    if dtype.kind != x.dtype.kind:
        dtype = x.dtype
    padded = np.pad(wide(x), ((0, 0), (1, 0), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2, axis=1)
    value = np.einsum("bsiw,wio->bso", windows, wide(kernel)).astype(dtype)
    order = program.choice(["b0f", "f0b", "0bf", "bf0", "0fb", "fb0"])
    value = value.transpose(["b0f".index(letter) for letter in order])
    shown = ", ".join(order)
    text = f"""stablehlo.convolution({name}, {program.constant(kernel)})
      dim_numbers = [b, 0, f]x[0, i, o]->[{shown}], window = {{pad = [[1, 0]]}}
      {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}"""
    return program.give(text, [x, kernel], value)


def loop(program: Program, name: str, x: Array) -> bool:
    count = int(program.rng.integers(3))
    kind = tensor(x)
    zero, end = program.constant(np.array(0)), program.constant(np.array(count))
    one = program.constant(np.array(1))
    number = len(program.lines)
    program.lines.append(f"""%w{number}:2 = stablehlo.while(%i = {zero}, %y = {name}) :
      tensor<i64>, {kind}
    cond {{
      %p = stablehlo.compare LT, %i, {end} : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    }} do {{
      %j = stablehlo.add %i, {one} : tensor<i64>
      %z = stablehlo.add %y, {name} : {kind}
      stablehlo.return %j, %z : tensor<i64>, {kind}
    }}""")
    program.values.append((f"%w{number}#1", (wide(x) * (count + 1)).astype(x.dtype)))
    return True


def sort(program: Program, name: str, x: Array) -> bool:
    if not x.ndim:
        return False
    dim, kind = int(program.rng.integers(x.ndim)), f"tensor<{element(x.dtype)}>"
    text = f""""stablehlo.sort"({name}) ({{ ^bb0(%l: {kind}, %r: {kind}):
      %p = stablehlo.compare LT, %l, %r : ({kind}, {kind}) -> tensor<i1>
      stablehlo.return %p : tensor<i1> }}) {{dimension = {dim} : i64}}"""
    return program.give(text, [x], np.sort(wide(x), dim).astype(x.dtype))


OPERATIONS: list[Callable[[Program, str, Array], bool]] = [
    *(elementwise, unary, select, convert, broadcast, transpose, reverse, reshape, strided, pad),
    *(concatenate, reduce, window, gather, scatter, dynamic_slice, update_slice, dot),
    *(convolution, loop, sort),
]
