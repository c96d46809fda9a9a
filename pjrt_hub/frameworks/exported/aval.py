"""Abstract values: the element type and dimensions of one input or output, symbolic ones too.

Symbolic ones are expressions such as "2*b + 1", in the language of jax.export.symbolic_shape. Owns
the text of types, and evaluating and solving expressions; must not evaluate anything else, because
the expressions come from files.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pjrt_hub.base.fork import cached_property
from pjrt_hub.running.array import dtypes

if TYPE_CHECKING:
    import numpy

#: The number of 32-bit words in a random key of JAX, by the name of the key's type.
KEYS = {"key<fry>": 2, "key<rbg>": 4, "key<unsafe_rbg>": 4}
_MAX_EXPONENT = 8
_MAX_SIZE = 2**63
_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
}
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


class Place(NamedTuple):
    """A symbolic dimension and the size that was found there."""

    expression: str
    size: int  # The size in elements.
    where: str  # The path of the array, for messages.
    number: int  # The dimension's number.


@dataclass(frozen=True)
class Aval:
    """The type of one input or output.

    Attributes:
        element_type: its name in programs, "f32"; for JAX's random keys, "key<fry>".
        shape: numbers, and expressions of symbolic dimensions such as "b" or "2*b + 1".
    """

    __module__ = "pjrt_hub"
    element_type: str
    shape: tuple[int | str, ...]

    @cached_property
    def is_static(self) -> bool:
        """Whether all dimensions are numbers."""
        return not any(isinstance(size, str) for size in self.shape)

    @cached_property
    def names(self) -> frozenset[str]:
        """The symbols of its dimensions."""
        symbolic = (size for size in self.shape if isinstance(size, str))
        return frozenset().union(*map(names, symbolic))

    @property
    def mlir(self) -> str:
        """The type of the array that is passed, as MLIR writes it, if the type is static."""
        return f"tensor<{''.join(f'{size}x' for size in self.dimensions)}{self.element.name}>"

    @cached_property
    def element(self) -> dtypes.ElementType:
        """The element type of the array that is passed."""
        if self.element_type in KEYS:
            return dtypes.of_numpy("uint32")
        return dtypes.of_type("i1" if self.element_type == "f0" else self.element_type)

    @cached_property
    def dtype(self) -> numpy.dtype[Any]:
        """The dtype of the array that is passed, as `Buffer.dtype`: a random key's is uint32."""
        return dtypes.numpy_dtype(self.element.code)

    @cached_property
    def dimensions(self) -> tuple[int | str, ...]:
        """The dimensions of the array that is passed: a random key has one more."""
        return (*self.shape, KEYS[self.element_type]) if self.element_type in KEYS else self.shape

    @property
    def sizes(self) -> tuple[int, ...]:
        """The dimensions of the array that is passed, if the type is static."""
        return tuple(map(int, self.dimensions))

    def at(self, sizes: Mapping[str, int]) -> Aval:
        """Return the type with numbers for its symbols.

        Args:
            sizes: the size of each symbol, in elements.

        Raises:
            ValueError: a symbol has no size.
        """
        return Aval(self.element_type, tuple(evaluate(size, sizes) for size in self.shape))

    def __str__(self) -> str:
        return f"{self.element_type}[{','.join(map(str, self.shape))}]"


def names(expression: str) -> frozenset[str]:
    """Return the variables of an expression, or raise ValueError if it is malformed."""
    found = set()
    for node in ast.walk(_parse(expression)):
        if isinstance(node, ast.Name) and node.id not in _FUNCTIONS:
            found.add(node.id)
    return frozenset(found)


def evaluate(expression: int | str, sizes: Mapping[str, int]) -> int:
    """Return the size that an expression means.

    An expression that is malformed, has an unknown variable, or gives no size raises ValueError.
    """
    if isinstance(expression, int):
        return expression
    value = _value(_parse(expression).body, sizes)
    if not 0 <= value < _MAX_SIZE:
        raise ValueError(f"{expression} is {value}, which is not a size")
    return value


def solve(places: Sequence[Place], given: Mapping[str, int]) -> dict[str, int]:
    """Find the sizes of variables from the sizes of arrays.

    Sizes that contradict each other, or do not determine a variable, raise ValueError.
    """
    sizes = dict(given)
    left = list(places)
    while left:
        later = []
        for place in left:
            unknown = names(place.expression) - sizes.keys()
            if len(unknown) == 1:
                [name] = unknown
                size = _solve(place, name, sizes)
                if size is None:
                    later.append(place)
                    continue
                sizes[name] = size
            elif unknown:
                later.append(place)
                continue
            expected = evaluate(place.expression, sizes)
            if expected != place.size:
                known = ", ".join(f"{name} = {sizes[name]}" for name in sorted(sizes))
                where = "" if place.expression in sizes else f" where {known}"
                raise ValueError(
                    f"{place.where}: dimension {place.number} is {place.expression} = {expected}"
                    f"{where}, found {place.size}"
                )
        if len(later) == len(left):
            wanted = sorted({name for p in later for name in names(p.expression)} - sizes.keys())
            raise ValueError(
                f"the shapes do not tell {', '.join(wanted)}\n\n"
                f"hint: give them: dimensions={{{wanted[0]!r}: ...}}"
            )
        left = later
    return sizes


def _solve(place: Place, name: str, sizes: Mapping[str, int]) -> int | None:
    """Solve a linear expression for `name`, its one unknown; return None if that fails."""
    tree = _parse(place.expression).body
    try:
        if isinstance(tree, ast.Name):
            return place.size
        at_zero, at_one = (_value(tree, {**sizes, name: number}) for number in (0, 1))
        slope = at_one - at_zero
        if not slope:
            return None
        size = (place.size - at_zero) // slope
        fits = size >= 0 and _value(tree, {**sizes, name: size}) == place.size
    except ValueError:
        return None
    return size if fits else None


@lru_cache(1024)
def _parse(expression: str) -> ast.Expression:
    """Parse an expression, in which JAX writes powers as "b^2"."""
    try:
        return ast.parse(expression.replace("^", "**").strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{expression!r} is not an expression of dimensions") from None


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name) if name in sizes:
            return sizes[name]
        case ast.Name(id=name):
            raise ValueError(f"nothing tells the size of {name}")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, sizes)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))):
            if not 0 <= power <= _MAX_EXPONENT:
                raise ValueError(f"the power {power} gives no dimension")
            return _check_bound(_value(left, sizes) ** power)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            apply = _OPERATORS[type(operator)]
            try:
                return _check_bound(apply(_value(left, sizes), _value(right, sizes)))
            except ZeroDivisionError:
                raise ValueError(f"{ast.unparse(node)} divides by zero") from None
        case ast.Call(func=ast.Name(id=function), args=[left, right], keywords=[]) if (
            function in _FUNCTIONS
        ):
            a, b = _value(left, sizes), _value(right, sizes)
            if not b and function in ("floordiv", "mod"):
                raise ValueError(f"{function} by zero")
            return _FUNCTIONS[function](a, b)
    raise ValueError(f"{ast.unparse(node)} is not an expression of dimensions")


def _check_bound(value: int) -> int:
    if abs(value) >= _MAX_SIZE:
        raise ValueError("a dimension is larger than 63 bits")
    return value
