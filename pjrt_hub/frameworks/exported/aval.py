"""Abstract values: the element type and dimensions of one input or output.

Owns their words; what symbolic dimensions mean is `dimension`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pjrt_hub.base.fork import cached_property
from pjrt_hub.frameworks.exported import dimension
from pjrt_hub.running.array import dtypes

if TYPE_CHECKING:
    import numpy

#: A random key of JAX is an array of so many 32-bit words, by the name of its type.
KEYS = {"key<fry>": 2, "key<rbg>": 4, "key<unsafe_rbg>": 4}


@dataclass(frozen=True)
class Aval:
    """One input or output.

    Attributes:
        element_type: its name in programs, "f32"; of JAX's random keys "key<fry>".
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
        return frozenset().union(*map(dimension.names, symbolic))

    @property
    def mlir(self) -> str:
        """A static type of an array that is passed, as MLIR writes it."""
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
        """The dimensions of the array that is passed, of a static type."""
        return tuple(map(int, self.dimensions))

    def __str__(self) -> str:
        return f"{self.element_type}[{','.join(map(str, self.shape))}]"
