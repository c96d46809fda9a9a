"""Signatures: what a compiled program takes and gives on one device.

Owns reading them from the optimized HLO; `signature_sources` knows the other sources. The numbers
here are the fields of XLA's ShapeProto and LayoutProto.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pjrt_hub.running.array import dtypes
from pjrt_hub.running.array.memory_layout import row_major, row_major_or
from pjrt_hub.running.array.shape_spec import dims_text, known_shapes, order_text
from pjrt_hub.running.capi import wire
from pjrt_hub.running.program import hlo
from pjrt_hub.running.program.main_function import DEEPEST

if TYPE_CHECKING:
    import numpy

_SHAPE_TYPE, _SHAPE_DIMENSIONS, _SHAPE_TUPLE, _SHAPE_LAYOUT, _SHAPE_DYNAMIC = 2, 3, 4, 5, 6
_LAYOUT_MINOR_TO_MAJOR = 1
_TUPLE, _TOKEN = 13, 17

#: These stand for an unknown element type or layout of a slot.
UNTOLD_TYPE = 0
UNTOLD_LAYOUT: tuple[int, ...] = ()


class Slot(NamedTuple):
    """One parameter or output; prints as `f32[8]`.

    Attributes:
        code: the `PJRT_Buffer_Type`; 0 if unknown.
        shape: one device's dimensions; None if unknown.
        layout: minor_to_major, or None for row-major; () if unknown, but see `order`.
        dynamic: the dimensions whose size is only a bound.
    """

    code: int
    shape: tuple[int, ...] | None
    layout: tuple[int, ...] | None
    dynamic: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        dtype: Any,
        shape: Sequence[int],
        layout: Sequence[int] | None = None,
        dynamic: Sequence[int] = (),
    ) -> Slot:
        """Make a slot from a user's dtype and shape.

        Args:
            dtype: numpy's, ml_dtypes' or StableHLO's name; or a `PJRT_Buffer_Type`.
            shape: one device's dimensions.
            layout: minor_to_major, a permutation of the dimensions' numbers; None is row-major.
            dynamic: the dimensions whose size is only a bound.

        Raises:
            TypeError: no such dtype.
            ValueError: a negative dimension, a layout that is not a permutation, or a dynamic
                dimension that is none of them.
        """
        code = dtype if isinstance(dtype, int) else dtypes.of_numpy(dtype).code
        dims = tuple(shape)
        if dtypes.of_code(code).primitive < 0:
            raise TypeError(f"XLA's programs have no {dtypes.of_code(code).name}")
        if not all(isinstance(size, int) and size >= 0 for size in dims):
            raise ValueError(f"the shape {dims} holds something that is not a size")
        order = None if layout is None else tuple(layout)
        if order is not None and sorted(order) != list(range(len(dims))):
            raise ValueError(f"the layout {order} is not a permutation of {len(dims)} dimension(s)")
        if not all(d in range(len(dims)) for d in dynamic):
            raise ValueError(f"of {len(dims)} dimension(s) {tuple(dynamic)} cannot be dynamic")
        return cls(code, dims, row_major_or(order), tuple(dynamic))

    @classmethod
    def make(
        cls,
        code: int,
        shape: Sequence[int] | None,
        layout: Sequence[int] | None,
        dynamic: Sequence[int] = (),
    ) -> Slot:
        """Make a slot of a compiled program; equal slots share one shape object.

        Args:
            code: as the attributes.
            shape: as the attributes.
            layout: as the attributes.
            dynamic: as the attributes.
        """
        dims = None if shape is None else tuple(shape)
        order = None if layout is None else tuple(layout)
        same = None if dims is None else known_shapes.setdefault(dims, dims)
        return cls(code, same, order, tuple(dynamic))

    @property
    def dtype(self) -> numpy.dtype[Any] | None:
        """The dtype of its elements, as `Buffer.dtype`; None if unknown.

        Raises:
            TypeError: the installed ml_dtypes is too old to have it; `element_type` names the type.
        """
        return None if self.code == UNTOLD_TYPE else dtypes.numpy_dtype(self.code)

    @property
    def element_type(self) -> str | None:
        """The type of its elements by its name in programs, as `Buffer.element_type`, or None."""
        return None if self.code == UNTOLD_TYPE else dtypes.of_code(self.code).name

    @property
    def order(self) -> tuple[int, ...] | None:
        """The layout as minor_to_major, even if it is row-major; None if unknown."""
        if self.shape is None or self.layout == UNTOLD_LAYOUT:
            return None
        return self.layout or row_major(len(self.shape))

    def serialize(self) -> bytes:
        """Make the ShapeProto, always with a layout: without one a compiler may choose.

        Raises:
            ValueError: its shape is unknown.
        """
        if self.shape is None:
            raise ValueError(f"{self} has no shape that could be written")
        order = self.layout or row_major(len(self.shape))
        return (
            wire.varint(_SHAPE_TYPE, dtypes.of_code(self.code).primitive)
            + wire.pack(_SHAPE_DIMENSIONS, list(self.shape))
            + wire.pack(_SHAPE_DYNAMIC, [d in self.dynamic for d in range(len(self.shape))])
            + wire.length_delimited(_SHAPE_LAYOUT, wire.pack(_LAYOUT_MINOR_TO_MAJOR, list(order)))
        )

    def __str__(self) -> str:
        element = self.element_type or "?"
        if self.shape is None:
            return f"{element}[...]"
        return f"{element}[{dims_text(self.shape, self.dynamic)}]"

    def __repr__(self) -> str:
        order = "" if self.layout in (None, UNTOLD_LAYOUT) else order_text(self.layout)
        return f"<Slot {self}{order}>"


Slot.__module__ = "pjrt_hub"  # The body of a NamedTuple cannot set this.


#: A slot of which nothing is known.
ANYTHING = Slot(UNTOLD_TYPE, None, UNTOLD_LAYOUT)


class Signature(NamedTuple):
    """The parameters and outputs of a compiled program, on one device.

    Attributes:
        parameters: what it takes.
        outputs: what it gives.
        names: of the parameters, as the compiler has them; empty if it has none.
        donated: the numbers of the parameters whose memory a call may take.
        open: whether the number of parameters is unknown; `parameters` is then empty.
    """

    parameters: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    names: tuple[str, ...] = ()
    donated: tuple[int, ...] = ()
    open: bool = False

    @classmethod
    def of_optimized(cls, code: bytes, form: str) -> Signature:
        """Read a signature from the answer of `PJRT_Executable_OptimizedProgram`.

        Args:
            code: an HloModuleProto, or one with its configuration around it.
            form: the format that the plugin names, "hlo" or "hlo_with_config".

        Raises:
            ValueError, TypeError: the bytes are not what their format says, or have elements that
                the C API cannot pass.
        """
        module = hlo.module_in(code, form)
        program = hlo.message(module, hlo.MODULE_PROGRAM_SHAPE)
        parameters, outputs = (
            tuple(slot for shape in wire.messages(program, number) for slot in flatten(shape))
            for number in (hlo.PROGRAM_PARAMETERS, hlo.PROGRAM_RESULT)
        )
        told = wire.messages(program, hlo.PROGRAM_NAMES)
        names = tuple(bytes(each).decode("utf-8", "replace") for each in told)
        if len(names) != len(parameters):  # A tuple of arguments has one name.
            names = ()
        donated = {*_parameters(module, hlo.MODULE_DONORS, hlo.DONOR_PARAMETER)}
        donated |= {*_parameters(module, hlo.MODULE_ALIASES, hlo.ALIAS_PARAMETER)}
        return cls(parameters, outputs, names, tuple(sorted(donated)))

    def to_lists(self) -> list[Any]:
        """Return the signature as lists, numbers and strings, for JSON."""
        return [self.parameters, self.outputs, self.names, self.donated, self.open]

    @classmethod
    def of_lists(cls, lists: Any) -> Signature:
        """Make a signature from `to_lists`.

        Args:
            lists: from `to_lists`, possibly through JSON.

        Raises:
            ValueError, TypeError: the lists are something else.
        """
        parameters, outputs, names, donated, *more = lists  # Older lists have no more items.
        return cls(
            tuple(Slot.make(*each) for each in parameters),
            tuple(Slot.make(*each) for each in outputs),
            tuple(names),
            tuple(donated),
            *more,
        )

    def __repr__(self) -> str:
        return f"<Signature {self}>"

    def __str__(self) -> str:
        parameters, outputs = (", ".join(map(str, s)) for s in (self.parameters, self.outputs))
        return f"({'...' if self.open else parameters}) -> ({outputs})"


Signature.__module__ = "pjrt_hub"  # The body of a NamedTuple cannot set this.


def tuple_parameters(code: bytes, form: str) -> list[bool]:
    """Tell of each parameter of an HLO program whether it is a tuple."""
    program = hlo.message(hlo.module_in(code, form), hlo.MODULE_PROGRAM_SHAPE)
    shapes = wire.messages(program, hlo.PROGRAM_PARAMETERS)
    return [(_SHAPE_TYPE, _TUPLE) in wire.fields(each) for each in shapes]


def _parameters(module: memoryview, field: int, number_field: int) -> Iterator[int]:
    """Yield parameters' numbers; in a tuple of all arguments, the place in the tuple counts."""
    for entries in wire.messages(module, field):
        for entry in wire.messages(entries, hlo.ENTRIES):
            parameter, index = 0, list[int]()
            for number, value in wire.fields(entry):
                if number == number_field and isinstance(value, int):
                    parameter = value
                elif number == number_field + 1:
                    index += wire.integers(value)
            yield index[0] if index else parameter


def tuple_shape(slots: Sequence[Slot]) -> bytes:
    """Make the ShapeProto of several outputs together."""
    parts = (wire.length_delimited(_SHAPE_TUPLE, slot.serialize()) for slot in slots)
    return wire.varint(_SHAPE_TYPE, _TUPLE) + b"".join(parts)


def flatten(shape: memoryview, depth: int = 0) -> Iterator[Slot]:
    """Read a ShapeProto: a tuple becomes its elements, as PJRT passes it, a token nothing."""
    if depth > DEEPEST:
        raise ValueError("tuples in one another, deeper than any program has")
    element = 0
    dimensions: list[int] = []
    layout: tuple[int, ...] | None = None
    dynamic: list[int] = []
    parts: list[memoryview] = []
    for number, value in wire.fields(shape):
        if number == _SHAPE_TYPE and isinstance(value, int):
            element = value
        elif number == _SHAPE_DIMENSIONS:
            dimensions += wire.integers(value)
        elif number == _SHAPE_TUPLE and isinstance(value, memoryview):
            parts.append(value)
        elif number == _SHAPE_LAYOUT and isinstance(value, memoryview):
            told = (each for n, each in wire.fields(value) if n == _LAYOUT_MINOR_TO_MAJOR)
            layout = tuple(dimension for each in told for dimension in wire.integers(each))
        elif number == _SHAPE_DYNAMIC:
            dynamic += wire.integers(value)
    if element == _TUPLE:
        for part in parts:
            yield from flatten(part, depth + 1)
    elif element != _TOKEN:
        code = dtypes.of_primitive(element).code
        bounds = [d for d, is_dynamic in enumerate(dynamic) if is_dynamic]
        yield Slot.make(code, dimensions, row_major_or(layout), bounds)
