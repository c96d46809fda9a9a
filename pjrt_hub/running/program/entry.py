"""The entry of a program: what it says that it takes and gives, before it is compiled.

Owns what a plugin makes of the main function's types and attributes, which `mlir_text` and
`bytecode_function` read; must not need a plugin.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Any

from pjrt_hub.running.array import dtypes
from pjrt_hub.running.array.memory_layout import row_major_or
from pjrt_hub.running.program import bytecode_function, mlir_text, op_sharding, sharding_attribute
from pjrt_hub.running.program.bytecode import MAGIC
from pjrt_hub.running.program.main_function import (
    Attributes,
    Declared,
    MainFunction,
    TensorType,
    Unreadable,
)
from pjrt_hub.running.program.partitioning import Partitioning
from pjrt_hub.running.program.program import Program
from pjrt_hub.running.program.signature import UNTOLD_LAYOUT, Signature, Slot

#: Element types that have a name only in XLA; it never occurs in MLIR.
_NOT_MLIR = frozenset({"s1", "u1"})
_MOST_DIMENSIONS, _MOST_ELEMENTS = 256, 1 << 63
_LAYOUT, _ALIASED, _DONATED = "mhlo.layout_mode", "tf.aliasing_output", "jax.buffer_donor"
#: The layout modes that leave the layout to the plugin.
_UNPINNED = (b"default", b"auto")
#: The dimensions from minor to major, and perhaps tiles: "{0,1:T(8,128)}".
_ORDER = re.compile(rb"\{([\d,\s]*)(?::[^{}]*)?\}")


def signature(program: Any, num_partitions: int | None = None) -> Signature | None:
    """Read what a program takes and gives on one device; of text, the head of its main function.

    A shape is unknown if only a running program knows it, or if the compiler decides how the
    array is split; a layout, if the program leaves it to the plugin. A compiler may leave donated
    memory unused.

    Args:
        program: a Program, or what `Program.of` takes: text, bytes, the path of a file.
        num_partitions: how many parts the program is compiled into; its own shardings say how its
            arrays are split. None takes the program's own number, for which all of it is read.

    Returns:
        None if the program is malformed, has no public main function, or one with a type that
        no buffer has: a compiler says what is wrong.

    Raises:
        FileFormatError: it is not a program.
    """
    program = Program.of(program)
    try:
        if num_partitions is None:
            num_partitions = Partitioning.of(program).num_partitions
        if program.format == "hlo":
            return _of_hlo(program.code, num_partitions)
        reader = bytecode_function if program.code.startswith(MAGIC) else mlir_text
        function = reader.main_function(program.code)
        return _of_function(function, lambda: reader.meshes(program.code), num_partitions)
    except (ValueError, LookupError, TypeError):
        return None


def _of_hlo(code: bytes, num_partitions: int) -> Signature:
    told = Signature.of_optimized(code, "hlo")
    if not all(map(_is_coherent, told.parameters + told.outputs)):
        raise Unreadable("a layout or a dynamic dimension of another shape")
    if told.donated and told.donated[-1] >= len(told.parameters):
        raise Unreadable(f"a donated parameter {told.donated[-1]} of {len(told.parameters)}")
    if num_partitions == 1 or any(op_sharding.of_program(code, "hlo")):  # Nothing is left to split.
        return told
    takes, gives = op_sharding.of_instructions(code)
    return told._replace(
        parameters=tuple(_split_by_protos(told.parameters, takes)),
        outputs=tuple(_split_by_protos(told.outputs, gives)),
    )


def _is_coherent(slot: Slot) -> bool:
    shape = slot.shape or ()
    return (
        all(0 <= size < _MOST_ELEMENTS for size in shape)
        and (slot.layout is None or sorted(slot.layout) == list(range(len(shape))))
        and all(dimension < len(shape) for dimension in slot.dynamic)
    )


def _split_by_protos(slots: Sequence[Slot], told: Sequence[bytes | None]) -> Iterator[Slot]:
    """Yield each slot as an OpSharding splits it; without one for each, a compiler decides."""
    shardings = told if len(told) == len(slots) else [None] * len(slots)
    for slot, each in zip(slots, shardings, strict=True):
        part = slot.shape
        if part:  # A scalar is never split.
            part = None if each is None else sharding_attribute.part_of_proto(each, part)
        yield Slot.make(slot.code, part, slot.layout, slot.dynamic)


def _of_function(
    function: MainFunction, read_meshes: sharding_attribute.Meshes, num_partitions: int
) -> Signature:
    meshes = cache(read_meshes)

    def slots(declared: list[Declared]) -> Iterator[list[Slot]]:
        for tensors, attributes in declared:
            yield [_slot(each, attributes, meshes, num_partitions) for each in tensors]

    parameters, donated = list[Slot](), list[int]()
    for each, declared in zip(slots(function.parameters), function.parameters, strict=True):
        said = declared.attributes  # To XLA, an argument is a donor even if this says false.
        if isinstance(said.get(_ALIASED), int) or isinstance(said.get(_DONATED), bool):
            donated += range(len(parameters), len(parameters) + len(each))
        parameters += each
    outputs = [slot for each in slots(function.results) for slot in each]
    return Signature(tuple(parameters), tuple(outputs), (), tuple(donated))


def _slot(
    tensor: TensorType,
    attributes: Attributes,
    meshes: sharding_attribute.Meshes,
    num_partitions: int,
) -> Slot:
    rank = len(tensor.sizes)
    if rank > _MOST_DIMENSIONS:
        raise Unreadable(f"{rank} dimensions")
    bounds = tensor.bounds or (None,) * rank
    if len(bounds) != rank:
        raise Unreadable(f"{len(bounds)} bounds of {rank} dimension(s)")
    dynamic = tuple(d for d, size in enumerate(tensor.sizes) if size is None)
    sizes = [
        bound if size is None else size for size, bound in zip(tensor.sizes, bounds, strict=True)
    ]
    shape = tuple(size for size in sizes if size is not None)
    if any(size >= _MOST_ELEMENTS for size in shape):
        raise Unreadable(f"a dimension of {max(shape)}")
    whole = shape if len(shape) == rank else None
    if num_partitions > 1 and whole:  # A scalar is never split.
        whole = sharding_attribute.part(attributes, whole, meshes)
    return Slot.make(_dtype(tensor.element), whole, _layout(attributes.get(_LAYOUT), rank), dynamic)


def _dtype(element: str) -> int:
    """Return the `PJRT_Buffer_Type` of an element type by MLIR's name; refuse names of XLA's."""
    name = element[1:] if element.startswith("si") else element  # "si8" equals StableHLO's "i8".
    found = dtypes.of_type(name)
    if found.name != name or name in _NOT_MLIR:
        raise Unreadable(f"the element type {element}")
    return found.code


@lru_cache(maxsize=64)
def _layout(mode: object, rank: int) -> tuple[int, ...] | None:
    if not isinstance(mode, bytes) or mode in _UNPINNED:
        return UNTOLD_LAYOUT
    pinned = _ORDER.fullmatch(mode)
    if pinned is None:
        raise Unreadable(f"the layout {mode[:80]!r}")
    order = tuple(int(each) for each in pinned[1].split(b",") if each.strip())
    if sorted(order) != list(range(rank)):
        raise Unreadable(f"the layout {mode[:80]!r} of {rank} dimension(s)")
    return row_major_or(order)
