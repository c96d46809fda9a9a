"""The operations: each checks as Python runs, says what StableHLO it is, and its derivative.

Shapes follow numpy; dtypes never change by themselves.
"""

from functools import partial

import numpy as np

from minijit.tensor import Tensor, constant, kind, known, lift

#: Python's notation -> the operation, the kinds of dtypes that it takes, its derivative.
ELEMENTWISE = {
    "+": ("add", "iuf", lambda slope, out, x, y: (slope, slope)),
    "-": ("subtract", "iuf", lambda slope, out, x, y: (slope, -slope)),
    "*": ("multiply", "iuf", lambda slope, out, x, y: (slope * y, slope * x)),
    "/": ("divide", "f", lambda slope, out, x, y: (slope / y, -slope * out / y)),
    "**": ("power", "f", lambda s, out, x, y: (s * y * x ** (y - 1), s * out * log(x))),
    "maximum": ("maximum", "iuf", lambda s, o, x, y: (where(x >= y, s, 0), where(x >= y, 0, s))),
    "minimum": ("minimum", "iuf", lambda s, o, x, y: (where(x <= y, s, 0), where(x <= y, 0, s))),
    "negative": ("negate", "iuf", lambda slope, out, x: (-slope,)),
    "abs": ("abs", "if", lambda slope, out, x: (where(x < 0, -slope, slope),)),
    "cos": ("cosine", "f", lambda slope, out, x: (-slope * sin(x),)),
    "exp": ("exponential", "f", lambda slope, out, x: (slope * out,)),
    "log": ("log", "f", lambda slope, out, x: (slope / x,)),
    "sin": ("sine", "f", lambda slope, out, x: (slope * cos(x),)),
    "sqrt": ("sqrt", "f", lambda slope, out, x: (slope * 0.5 / out,)),
    "tanh": ("tanh", "f", lambda slope, out, x: (slope * (1 - out * out),)),
    **{"&": ("and", "biu", None), "|": ("or", "biu", None), "^": ("xor", "biu", None)},
    "~": ("not", "biu", None),
    **{"<": ("compare LT,", "biuf", None), "<=": ("compare LE,", "biuf", None)},
    **{">": ("compare GT,", "biuf", None), ">=": ("compare GE,", "biuf", None)},
    **{"==": ("compare EQ,", "biuf", None), "!=": ("compare NE,", "biuf", None)},
}


def elementwise(name, *operands):
    """An operation on each element, or on each of two tensors' pairs of elements."""
    operation, kinds, rule = ELEMENTWISE[name]
    x, y = operands[0], operands[-1]
    operands = (lift(name, x, y), lift(name, y, x))[: len(operands)]
    what = f"{name} of {' and '.join(map(str, operands))}"
    if len({each.dtype for each in operands}) > 1:
        raise TypeError(f"{what}: the dtypes differ; astype makes them equal")
    if kind(operands[0]) not in kinds:
        raise TypeError(f"{what}: there is none for {operands[0].dtype}")
    operands = together(what, *operands)
    shape, dtype = operands[0].shape, operands[0].dtype
    text = f"stablehlo.{operation} {', '.join(['%s'] * len(operands))}"
    return Tensor(text, operands, shape, bool if "compare" in operation else dtype, rule)


def where(condition, x, y):
    """Of each pair of elements x where the condition holds, else y."""
    condition, x, y = lift("where", condition), lift("where", x, y), lift("where", y, x)
    what = f"where of {condition}, {x} and {y}"
    if condition.dtype != bool or x.dtype != y.dtype:
        raise TypeError(f"{what}: it takes bool and twice the same dtype")

    def rule(slope, out, condition, x, y):
        return None, where(condition, slope, 0), where(condition, 0, slope)

    operands = together(what, condition, x, y)
    return Tensor("stablehlo.select %s, %s, %s", operands, operands[1].shape, x.dtype, rule)


def matmul(x, y):
    """The product of matrices, of vectors, or of one of each, as numpy's `@`."""
    x, y = lift("@", x, y), lift("@", y, x)
    what = f"@ of {x} and {y}"
    if x.dtype != y.dtype or kind(x) == "b":
        raise TypeError(f"{what}: it takes twice the same dtype, and no bool")
    if not x.ndim or not y.ndim or x.shape[-1] != y.shape[max(y.ndim - 2, 0)]:
        raise ValueError(f"{what}: the columns of one must be as many as the rows of the other")
    left = x if x.ndim > 1 else reshape(x, 1, -1)
    right = y if y.ndim > 1 else reshape(y, -1, 1)
    (m, k), n = left.shape[-2:], right.shape[-1]
    batch = common_shape(what, left.shape[:-2], right.shape[:-2])
    b = list(range(len(batch)))
    text = (
        "stablehlo.dot_general %s, %s, batching_dims = {0} x {0}, contracting_dims = [{1}] x [{2}]"
    )
    operands = broadcast_to(left, (*batch, m, k)), broadcast_to(right, (*batch, k, n))

    def rule(slope, out, x, y):
        return slope @ transpose(y, *b, -1, -2), transpose(x, *b, -1, -2) @ slope

    text = text.format(b, len(b) + 1, len(b))
    out = Tensor(text, operands, (*batch, m, n), x.dtype, rule)
    return reshape(out, *batch, *[m] * (x.ndim > 1), *[n] * (y.ndim > 1))


def reduce(name, operation, x, initial, axis, keepdims):
    """Reduces dimensions by an operation of two elements."""
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    if any(not -x.ndim <= each < x.ndim for each in axes):
        raise ValueError(f"{name} of {x} over axis {axis}: it has no such dimension")
    if kind(x) == "b":
        raise TypeError(f"{name} of {x}: there is none for bool; astype makes numbers of it")
    axes = sorted({each % x.ndim for each in axes})
    kept = [1 if d in axes else size for d, size in enumerate(x.shape)]

    def rule(slope, out, x, _):
        def wide(each):
            return broadcast_to(reshape(each, kept), x.shape)

        if operation == "add":
            return wide(slope), None
        chosen = (x == wide(out)).astype(x.dtype)  # Equal elements share the slope.
        return wide(slope) * chosen / wide(chosen.sum(axes)), None

    text = f"stablehlo.reduce(%s init: %s) applies stablehlo.{operation} across dimensions = {axes}"
    shape = [size for d, size in enumerate(x.shape) if d not in axes]
    out = Tensor(text, (x, constant(np.array(initial, x.dtype))), shape, x.dtype, rule)
    return reshape(out, kept) if keepdims else out


def total(x, axis=None, keepdims=False):
    """The sum over some or all dimensions, in the dtype of the elements."""
    return reduce("sum", "add", x, 0, axis, keepdims)


def mean(x, axis=None, keepdims=False):
    """The mean over some or all dimensions."""
    out = total(x, axis, keepdims)
    return out / (x.size / max(out.size, 1))


def greatest(x, axis=None, keepdims=False):
    """The greatest element over some or all dimensions."""
    least = np.iinfo(x.dtype).min if kind(x) in "iu" else -np.inf
    return reduce("max", "maximum", x, least, axis, keepdims)


def least(x, axis=None, keepdims=False):
    """The smallest element over some or all dimensions."""
    greatest = np.iinfo(x.dtype).max if kind(x) in "iu" else np.inf
    return reduce("min", "minimum", x, greatest, axis, keepdims)


def reshape(x, *shape):
    """The same elements in another shape, of which one size may be -1."""
    sizes = list(shape[0] if shape and isinstance(shape[0], tuple | list) else shape)
    if sizes.count(-1) == 1 and (rest := -int(np.prod(sizes))) > 0:
        sizes[sizes.index(-1)] = x.size // rest
    if any(size < 0 for size in sizes) or np.prod(sizes) != x.size:
        raise ValueError(f"reshape of {x} to {tuple(sizes)}: the sizes do not fit")

    def rule(slope, out, x):
        return (reshape(slope, x.shape),)

    return Tensor("stablehlo.reshape %s", (x,), sizes, x.dtype, rule)


def transpose(x, *axes):
    """The dimensions in another order; without one, in reverse."""
    order = [axis + x.ndim if axis < 0 else axis for axis in axes or range(x.ndim)[::-1]]
    if sorted(order) != list(range(x.ndim)):
        raise ValueError(f"transpose of {x} by {axes}: each dimension is needed once")

    def rule(slope, out, x):
        return (transpose(slope, *map(int, np.argsort(order))),)

    shape = [x.shape[axis] for axis in order]
    return Tensor(f"stablehlo.transpose %s, dims = {order}", (x,), shape, x.dtype, rule)


def astype(x, dtype):
    """The same numbers in another dtype; what does not fit there is up to the device."""

    def rule(slope, out, x):
        return (astype(slope, x.dtype) if kind(x) == kind(out) == "f" else None,)

    dtype = known(f"astype of {x}", dtype)
    return Tensor("stablehlo.convert %s", (x,), x.shape, dtype, rule)


def broadcast_to(x, shape):
    """The elements repeated to a larger shape."""
    x, shape = lift("broadcast_to", x), tuple(shape)
    what = f"broadcast_to of {x} to {shape}"
    if x.shape == shape:
        return x
    if common_shape(what, x.shape, shape) != shape:
        raise ValueError(f"{what}: the shapes do not broadcast")
    lead = len(shape) - x.ndim
    dims = list(range(lead, len(shape)))

    def rule(slope, out, x):
        grown = [d for d in dims if x.shape[d - lead] != shape[d]]
        return (reshape(total(slope, (*range(lead), *grown)), x.shape),)

    return Tensor(f"stablehlo.broadcast_in_dim %s, dims = {dims}", (x,), shape, x.dtype, rule)


def together(what, *tensors):
    """Broadcasts tensors to the shape that they have in common."""
    shape = common_shape(what, *(each.shape for each in tensors))
    return tuple(broadcast_to(each, shape) for each in tensors)


def common_shape(what, *shapes):
    """The shape that shapes broadcast to."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(f"{what}: the shapes do not broadcast") from None


exp, log, sqrt, tanh = (partial(elementwise, each) for each in ("exp", "log", "sqrt", "tanh"))
sin, cos = partial(elementwise, "sin"), partial(elementwise, "cos")
maximum, minimum = partial(elementwise, "maximum"), partial(elementwise, "minimum")


def _attach():
    """Give tensors the operators and methods of arrays."""

    def refusal(name):
        def refuse(self, *_):
            raise TypeError(f"{name} of {self}: a traced value holds no numbers; see where()")

        return refuse

    binary = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "**": "pow"}
    binary |= {"&": "and", "|": "or", "^": "xor"}
    compared = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
    for name, method in (binary | compared).items():
        setattr(Tensor, f"__{method}__", lambda x, y, name=name: elementwise(name, x, y))
    for name, method in binary.items():
        setattr(Tensor, f"__r{method}__", lambda x, y, name=name: elementwise(name, y, x))
    for name, method in {"negative": "neg", "~": "invert", "abs": "abs"}.items():
        setattr(Tensor, f"__{method}__", lambda x, name=name: elementwise(name, x))
    for name in ("array", "bool", "float", "getitem", "index", "int", "iter", "len"):
        setattr(Tensor, f"__{name}__", refusal(name))
    Tensor.__matmul__, Tensor.__rmatmul__ = matmul, lambda x, y: matmul(y, x)
    Tensor.reshape, Tensor.transpose, Tensor.T = reshape, transpose, property(transpose)
    Tensor.sum, Tensor.mean, Tensor.max, Tensor.min = total, mean, greatest, least
    Tensor.astype = astype


_attach()
