"""The main function of programs in MLIR's bytecode, read without MLIR.

Owns finding it among modules and functions, whose bodies are not looked at; `bytecode_values` reads
its attributes and types.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pjrt_hub.running.program import bytecode, mlir_text
from pjrt_hub.running.program.bytecode import Reader, require_count
from pjrt_hub.running.program.bytecode_values import TypeNumber, Values
from pjrt_hub.running.program.main_function import (
    DEEPEST,
    Attributes,
    MainFunction,
    Mesh,
    Unreadable,
    declare,
)

#: The bits that tell what follows an operation's name and location.
_HAS_ATTRIBUTES, _HAS_REGIONS, _HAS_USE_ORDERS, _HAS_PROPERTIES = 1, 16, 32, 64
_HAS_NUMBERS = (2, 4, 8)
#: The versions that let blocks keep the order of uses, and arguments lack a location.
_BLOCK_USE_ORDERS, _OPTIONAL_PLACES = 3, 4

_MODULE, _FUNCTION, _PORTABLE, _MESH = "builtin.module", "func.func", "vhlo.func_v1", "sdy.mesh"
#: The attributes that operations keep as properties, sorted by name. For an optional one ("?"), the
#: lowest bit tells whether it is present.
_PROPERTIES = {
    (_FUNCTION, 5): ("arg_attrs?", "function_type", "res_attrs?", "sym_name", "sym_visibility?"),
    (_FUNCTION, 6): (
        *("arg_attrs?", "function_type", "no_inline?", "res_attrs?", "sym_name"),
        "sym_visibility?",
    ),
    (_PORTABLE, 5): ("arg_attrs", "function_type", "res_attrs", "sym_name", "sym_visibility"),
    (_MESH, 2): ("mesh", "sym_name"),
}
_MOST_PROPERTIES = 6


class _Operation(NamedTuple):
    """The head of an operation: its full name, and the numbers of attributes and properties."""

    name: str
    attributes: int | None
    properties: int | None


def main_function(code: bytes) -> MainFunction:
    """Read the head of a program's main function, which is @main, or the only one that it has.

    ValueError or LookupError tell that there is none, that it has a type that no buffer holds, or
    that the bytes are malformed.
    """
    program = _Program(code)
    heads = (each for each in program.operations() if each.name in (_FUNCTION, _PORTABLE))
    only: Mapping[str, int] | None = None
    for number, head in enumerate(heads):
        said = program.attributes_of(head)
        is_private = program.word(said, "sym_visibility") == b"private"
        if program.word(said, "sym_name") == b"main" and not is_private:
            return program.function(said)
        only = None if number or is_private else said
    if only is None:
        raise Unreadable("there is no public main function")
    return program.function(only)


def meshes(code: bytes) -> dict[str, Mesh]:
    """Read the meshes that Shardy's annotations name; ValueError or LookupError if malformed."""
    program = _Program(code)
    found = dict[str, Mesh]()
    for head in program.operations():
        said = program.attributes_of(head)
        if head.name == _MODULE:
            frontend = program.word(said, "mhlo.frontend_attributes")
            told = frontend.get("xla.sdy.meshes") if isinstance(frontend, dict) else None
            found |= mlir_text.meshes_of(told) if isinstance(told, bytes) else {}
        elif head.name == _MESH:
            name, mesh = program.word(said, "sym_name"), program.word(said, "mesh")
            if isinstance(name, bytes) and isinstance(mesh, str):
                found[name.decode("utf-8", "replace")] = mlir_text.axes(mesh.encode())
    return found


class _Program:
    """Bytecode, and the operations of its outermost module."""

    def __init__(self, code: bytes) -> None:
        self._opened = bytecode.contents(code)
        self._values = Values(self._opened)
        self._properties = bytecode.properties(self._opened)
        self._depth = 0

    def operations(self) -> Iterator[_Operation]:
        """Yield the head of the module, and those of the operations in it."""
        reader = self._opened.sections[bytecode.OPERATIONS].again()
        if reader.varint() != 1 << 1:
            raise Unreadable("the bytecode is of more than a module")
        module, regions = self._operation(reader)
        if module.name != _MODULE or len(regions) != 1:
            raise Unreadable(f"the bytecode is of a {module.name}")
        yield module
        body = regions[0] or reader
        for count in self._blocks(body):
            for _ in range(count):
                head, inner = self._operation(body)
                yield head
                for each in inner:
                    if each is None:
                        self._skip_region(body)

    def attributes_of(self, head: _Operation) -> Mapping[str, int]:
        """Return the numbers of the attributes that an operation has, by their names."""
        many = {} if head.attributes is None else self._values.numbers(head.attributes)
        if head.properties is None:
            return many
        said, numbers = dict[str, int](), list[int]()
        reader = self._properties[head.properties].again()
        while reader and len(numbers) <= _MOST_PROPERTIES:
            numbers.append(reader.varint())
        for name, number in zip(
            _PROPERTIES.get((head.name, len(numbers)), ()), numbers, strict=False
        ):
            if not name.endswith("?"):
                said[name] = number
            elif number & 1:
                said[name[:-1]] = number >> 1
        return ChainMap(said, many)  # Many operations may share `many`, so a copy would be slow.

    def word(self, said: Mapping[str, int], name: str) -> Any:
        """Return an attribute's value by its name; None if there is none."""
        return self._values.attribute(said[name]) if name in said else None

    def function(self, said: Mapping[str, int]) -> MainFunction:
        """Return a function, read from its operation's attributes."""
        kind = self.word(said, "function_type")
        if not isinstance(kind, TypeNumber):
            raise Unreadable("the function has no type")
        inputs, outputs = self._values.function_type(kind)
        return MainFunction(
            declare(inputs, self._dictionaries(said, "arg_attrs")),
            declare(outputs, self._dictionaries(said, "res_attrs")),
        )

    def _dictionaries(self, said: Mapping[str, int], name: str) -> list[Attributes]:
        found = self.word(said, name) or []
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise Unreadable("attributes of parameters that are not dictionaries")
        return found

    def _operation(self, reader: Reader) -> tuple[_Operation, list[Reader | None]]:
        """Return an operation's head and its regions; a region that follows in place is None."""
        name = self._opened.operations[reader.varint()]
        has = reader.take(1)[0]
        reader.varint()  # This skips the location.
        attributes = reader.varint() if has & _HAS_ATTRIBUTES else None
        properties = reader.varint() if has & _HAS_PROPERTIES else None
        for each in _HAS_NUMBERS:  # These are result types, operands, and successor blocks.
            if has & each:
                for _ in range(require_count(reader.varint(), reader)):
                    reader.varint()
        if has & _HAS_USE_ORDERS:
            raise Unreadable("the bytecode keeps the order of uses")
        regions: list[Reader | None] = []
        if has & _HAS_REGIONS:
            count = reader.varint()
            stands_alone = count & 1 and self._opened.version >= bytecode.LAZY_BODIES
            for _ in range(require_count(count >> 1, reader)):
                regions.append(bytecode.section(reader)[1] if stands_alone else None)
        return _Operation(name, attributes, properties), regions

    def _blocks(self, reader: Reader) -> Iterator[int]:
        """Yield the number of operations in each block of a region, before they are read."""
        blocks = require_count(reader.varint(), reader)
        if blocks:
            reader.varint()  # This skips the number of values.
        for _ in range(blocks):
            count = reader.varint()
            if count & 1:
                self._skip_arguments(reader)
            yield require_count(count >> 1, reader)

    def _skip_arguments(self, reader: Reader) -> None:
        version = self._opened.version
        for _ in range(require_count(reader.varint(), reader)):
            kind = reader.varint()
            if version < _OPTIONAL_PLACES or kind & 1:
                reader.varint()
        if version >= _BLOCK_USE_ORDERS and reader.take(1)[0]:
            raise Unreadable("the bytecode keeps the order of uses")

    def _skip_region(self, reader: Reader) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unreadable("regions in one another, deeper than any program has")
        for count in self._blocks(reader):
            for _ in range(count):
                for each in self._operation(reader)[1]:
                    if each is None:
                        self._skip_region(reader)
        self._depth -= 1
