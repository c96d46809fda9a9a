"""Traced values: an operation of StableHLO, the values that it works on, and its derivative.

Knows which dtypes there are and what a constant is; nothing of pjrt-hub.
"""

import itertools
import json

import numpy as np

#: numpy's names of dtypes -> those of StableHLO; minijit has no others.
NAMES = {"bool": "i1", "bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}
NAMES |= {f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)}
NAMES |= {f"uint{bits}": f"ui{bits}" for bits in (8, 16, 32, 64)}
#: The dtype of a Python number where no array beside it decides.
DEFAULTS = {bool: np.dtype(bool), int: np.dtype(np.int32), float: np.dtype(np.float32)}
#: A number can stand beside an array of its own kind or of a wider one.
WIDTH = {"b": 0, "i": 1, "u": 1, "f": 2}

_numbers = itertools.count()


class Tensor:
    """One value of a program that is being traced.

    Attributes:
        operation: its StableHLO with %s for each input; None for a parameter of the program.
        rule: gives the slopes of the inputs, by rule(slope, self, *inputs); None has no derivative.
        number: greater than those of the inputs.
    """

    __slots__ = ("dtype", "inputs", "number", "operation", "rule", "shape")
    __array_ufunc__ = None  # This makes numpy leave `array + tensor` to Tensor.

    def __init__(self, operation, inputs, shape, dtype, rule=None):
        self.operation, self.inputs, self.rule = operation, inputs, rule
        self.shape, self.dtype, self.number = tuple(shape), np.dtype(dtype), next(_numbers)

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: int(np.prod(self.shape)))

    def __repr__(self):
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def lift(what, value, like=None):
    """Make a constant of a number or an array; a number takes the dtype of what is beside it."""
    if isinstance(value, Tensor):
        return value
    dtype = DEFAULTS.get(type(value))
    if dtype and isinstance(like, Tensor):
        if WIDTH[kind(dtype)] > WIDTH[kind(like)]:
            raise TypeError(f"{what}: {value!r} does not fit into {like}; astype converts")
        dtype = like.dtype
    array = np.asarray(value, dtype)
    known(f"{what}: {type(value).__name__}", array.dtype)
    return constant(array)


def constant(array):
    """A constant of the program; its bits are written, so that no digit is lost."""
    native = array.astype(array.dtype.newbyteorder("="))
    bits = json.dumps(array.tolist()) if array.dtype == bool else f'"0x{native.tobytes().hex()}"'
    value = f"dense<{bits if array.size else ''}> : {type_of(array)}"
    return Tensor(f'"stablehlo.constant"() <{{value = {value}}}>', (), array.shape, native.dtype)


def known(what, dtype):
    """Give numpy's dtype of a name or type, if minijit has it."""
    dtype = np.dtype(dtype)
    if dtype.name not in NAMES:
        raise TypeError(f"{what}: minijit has no {dtype}")
    return dtype


def kind(value):
    """Tell bool, int, unsigned int and float apart: "b", "i", "u", "f"."""
    dtype = getattr(value, "dtype", value)
    return "f" if dtype.name == "bfloat16" else dtype.kind


def type_of(value):
    """StableHLO's type of a tensor or an array."""
    return f"tensor<{'x'.join([*map(str, value.shape), NAMES[value.dtype.name]])}>"
