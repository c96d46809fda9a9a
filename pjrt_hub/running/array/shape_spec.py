"""Shape specs: the shape and element type that a buffer is made with.

Owns the checks that sizes fit 64 bits when a plugin multiplies them; makes no buffers.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.running.array import dtypes, memory_layout

_MAX_RANK = 64

#: Equal shapes are the same object, so that the call path can compare them by identity.
known_shapes: dict[tuple[int, ...], tuple[int, ...]] = {}


class ShapeSpec(NamedTuple):
    """A shape, an element type and perhaps a layout, like `PJRT_ShapeSpec`."""

    shape: tuple[int, ...]
    element: dtypes.ElementType
    layout: memory_layout.Order | None = None  # `minor_to_major`; None means the plugin's own.

    @classmethod
    def of(cls, shape: Any, dtype: Any, version: ApiVersion, layout: Any = None) -> ShapeSpec:
        """Make a spec from a user's shape (or one int) and dtype, for a plugin of this version."""
        dims = (shape,) if isinstance(shape, int) else shape
        try:
            dims = tuple(map(operator.index, dims))
        except TypeError:
            raise TypeError(f"the shape is {shape!r}, not a sequence of ints") from None
        element = dtypes.of_numpy(dtype)
        dtypes.require(element, version)
        if len(dims) > _MAX_RANK or any(size < 0 for size in dims):
            raise ValueError(f"the shape {dims} has a negative or more than {_MAX_RANK} dimensions")
        if math.prod(max(size, 1) for size in dims) * element.bits >= 1 << 63:
            raise ValueError(f"the shape {dims} of {element.name} is larger than any memory")
        return cls(dims, element, memory_layout.order_of(layout, len(dims)))

    @classmethod
    def like(cls, spec: Any, version: ApiVersion) -> ShapeSpec:
        """Make a spec from (shape, dtype[, layout]) or from an object with shape and dtype."""
        if hasattr(spec, "shape") and hasattr(spec, "dtype"):
            return cls.of(spec.shape, spec.dtype, version)
        try:
            shape, dtype, layout = spec if len(spec) == 3 else (*spec, None)
        except (TypeError, ValueError):
            raise TypeError(
                f"{spec!r} is not a pair (shape, dtype) and has none of its own"
            ) from None
        return cls.of(shape, dtype, version, layout)

    @property
    def bits(self) -> int:
        """The number of bits of all elements together."""
        return math.prod(self.shape) * self.element.bits

    @property
    def nbytes(self) -> int:
        """The number of bytes of all elements together, packed."""
        return -(-self.bits // 8)

    @property
    def wish(self) -> Any:
        """The layout in the form that a C call takes."""
        return memory_layout.wish(self.layout, self.element.bits)

    def __str__(self) -> str:
        layout = order_text(self.layout) if self.layout is not None else ""
        return f"{self.element.name}[{dims_text(self.shape, ())}]{layout}"


def known_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the equal shape object that compiled programs share, or `shape` itself."""
    return known_shapes.get(shape, shape)


def order_text(order: tuple[int, ...]) -> str:
    """Write minor_to_major as XLA does, behind a type: "{1,0}"."""
    return f"{{{','.join(map(str, order))}}}"


def dims_text(shape: tuple[int, ...], dynamic: tuple[int, ...]) -> str:
    """Write dimensions as XLA does: "<=8" if the size is a bound."""
    return ",".join(f"{'<=' if d in dynamic else ''}{size}" for d, size in enumerate(shape))
