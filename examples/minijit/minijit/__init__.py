"""A framework in a few files: array expressions, traced to StableHLO, run by any PJRT plugin."""

from minijit.gradient import grad, value_and_grad
from minijit.jit import CacheInfo, CompileError, jit
from minijit.operations import (
    broadcast_to,
    cos,
    exp,
    log,
    maximum,
    minimum,
    sin,
    sqrt,
    tanh,
    where,
)
from minijit.tensor import Tensor

__all__ = [
    "CacheInfo",
    "CompileError",
    "Tensor",
    "broadcast_to",
    "cos",
    "exp",
    "grad",
    "jit",
    "log",
    "maximum",
    "minimum",
    "sin",
    "sqrt",
    "tanh",
    "value_and_grad",
    "where",
]
