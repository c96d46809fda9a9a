"""Signatures (layer 2): what a compiled program takes and gives on one device.

Read from the optimized HLO, because the C API tells only the outputs' types and dimensions. The
numbers are the fields of XLA's HloModuleProto, ProgramShapeProto, ShapeProto and LayoutProto.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pjrt_hub._capi import wire
from pjrt_hub.errors import InternalError
from pjrt_hub.runtime import dtypes

_CONFIG_MODULE = 1
_MODULE_HOST_PROGRAM_SHAPE = 4
_PROGRAM_PARAMETERS, _PROGRAM_RESULT = 1, 2
_SHAPE_TYPE, _SHAPE_DIMENSIONS, _SHAPE_TUPLE, _SHAPE_LAYOUT = 2, 3, 4, 5
_LAYOUT_MINOR_TO_MAJOR = 1
_TUPLE, _TOKEN = 13, 17

#: Equal shapes are one object, so that the call path compares them by identity.
_shapes: dict[tuple[int, ...], tuple[int, ...]] = {}


class Slot(NamedTuple):
    """One parameter or output.

    Attributes:
        dtype: the `PJRT_Buffer_Type`.
        shape: one device's dimensions.
        layout: minor_to_major, or None for row-major.
    """

    dtype: int
    shape: tuple[int, ...]
    layout: tuple[int, ...] | None

    def __str__(self) -> str:
        dimensions = "".join(f"{size}x" for size in self.shape)
        return f"{dimensions}{dtypes.of_code(self.dtype).name}"


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters and outputs of a compiled program, on one device."""

    parameters: tuple[Slot, ...]
    outputs: tuple[Slot, ...]

    @classmethod
    def of_optimized(cls, code: bytes, form: str) -> Signature:
        """Reads the answer of `PJRT_Executable_OptimizedProgram`.

        Args:
            code: an HloModuleProto, or one with its configuration around it.
            form: the format that the plugin names, "hlo" or "hlo_with_config".

        Raises:
            InternalError: the bytes are not what their format says.
        """
        try:
            module = memoryview(code)
            if form == "hlo_with_config":
                module = _message(module, _CONFIG_MODULE)
            program = _message(module, _MODULE_HOST_PROGRAM_SHAPE)
            parameters: list[Slot] = []
            outputs: list[Slot] = []
            for number, value in wire.fields(program):
                if number == _PROGRAM_PARAMETERS and isinstance(value, memoryview):
                    parameters.extend(_flatten(value))
                elif number == _PROGRAM_RESULT and isinstance(value, memoryview):
                    outputs.extend(_flatten(value))
            return cls(tuple(parameters), tuple(outputs))
        except (ValueError, TypeError) as exc:
            raise InternalError(f"the plugin's {form} cannot be read: {exc}") from exc

    def __str__(self) -> str:
        parameters, outputs = (", ".join(map(str, s)) for s in (self.parameters, self.outputs))
        return f"({parameters}) -> ({outputs})"


def known_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Gives the object that stands for an equal shape of a compiled program, or `shape` itself."""
    return _shapes.get(shape, shape)


def row_major_or(layout: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Writes row-major as None, so that layouts compare by identity in the common case."""
    if layout is None or layout == tuple(range(len(layout) - 1, -1, -1)):
        return None
    return layout


def _message(message: memoryview, number: int) -> memoryview:
    for each, value in wire.fields(message):
        if each == number and isinstance(value, memoryview):
            return value
    raise ValueError(f"field {number} is missing")


def _flatten(shape: memoryview) -> Iterator[Slot]:
    """A tuple becomes its elements, as PJRT passes it; a token becomes nothing."""
    element = 0
    dimensions: list[int] = []
    layout: tuple[int, ...] | None = None
    parts: list[memoryview] = []
    for number, value in wire.fields(shape):
        if number == _SHAPE_TYPE and isinstance(value, int):
            element = value
        elif number == _SHAPE_DIMENSIONS:
            dimensions += wire.integers(value)
        elif number == _SHAPE_TUPLE and isinstance(value, memoryview):
            parts.append(value)
        elif number == _SHAPE_LAYOUT and isinstance(value, memoryview):
            layout = _minor_to_major(value)
    if element == _TUPLE:
        for part in parts:
            yield from _flatten(part)
    elif element != _TOKEN:
        code = dtypes.of_primitive(element).code
        dims = tuple(dimensions)
        yield Slot(code, _shapes.setdefault(dims, dims), row_major_or(layout))


def _minor_to_major(layout: memoryview) -> tuple[int, ...]:
    order: list[int] = []
    for number, value in wire.fields(layout):
        if number == _LAYOUT_MINOR_TO_MAJOR:
            order += wire.integers(value)
    return tuple(order)
