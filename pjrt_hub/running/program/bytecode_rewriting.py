"""A portable program whose constants become parameters of its main function, or the reverse.

Owns the changes to bytecode; `bytecode_constants` says which constants are taken out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pjrt_hub.running.array import dtypes
from pjrt_hub.running.program import bytecode
from pjrt_hub.running.program.bytecode import Reader, write_numbers
from pjrt_hub.running.program.bytecode_function import PORTABLE, ProgramReader
from pjrt_hub.running.program.bytecode_region import (
    Block,
    Operation,
    Region,
    read_region,
    write_operation,
    write_region,
)
from pjrt_hub.running.program.bytecode_values import TypeNumber
from pjrt_hub.running.program.main_function import TensorType, Unreadable

_CONSTANT, _CALL = "vhlo.constant_v1", "vhlo.call_v1"
#: The kinds of attributes and types in the dialect vhlo, by StableHLO's VhloBytecode.cpp.
_ARRAY, _BOOLEAN, _DICTIONARY, _TENSOR, _TYPE, _FUNCTION_TYPE = 1, 2, 6, 15, 17, 8
#: The places of arg_attrs, function_type and sym_name among a function's properties.
_PARAMETERS, _SIGNATURE, _NAME = 0, 1, 3
#: The only version of bytecode that portable programs with properties have.
_VERSION = 6


class Constant(NamedTuple):
    """A constant that became a parameter: its elements lie row by row, in native byte order."""

    element: str  # The element type as MLIR writes it.
    shape: tuple[int, ...]
    start: int  # The place of its first byte in the program that it was taken from.
    nbytes: int


class _Large(NamedTuple):
    """An attribute that is a large constant."""

    constant: Constant
    type_number: int


class _Function(NamedTuple):
    """A function of the module."""

    operation: Operation
    body: Region
    properties: Sequence[int]


class Rewriting:
    """A program, and what is added to the numbered attributes and types of its bytecode.

    Functions and constants are named by the numbers of their attributes: its name, its value.
    """

    def __init__(self, code: bytes | memoryview, min_constant_nbytes: int) -> None:
        self._reader = ProgramReader(code)
        opened = self._opened = self._reader.opened
        if opened.version != _VERSION or opened.sections.get(bytecode.RESOURCES):
            raise Unreadable("another form of bytecode")
        self._entries = bytecode.Entries(opened)
        self._large = dict(self._find_large(min_constant_nbytes))
        self._module, self._body = self._reader.module()
        self._functions = dict(self._read_functions())
        self._needs = dict[int, tuple[int, ...]]()  # The constants that each function takes.
        self._attributes, self._types = list[bytes](), list[bytes]()  # Those that are new.
        self._properties = dict[int, bytes]()  # Those that replace others.
        self._written = dict[int, bytes]()  # The sections that are written anew.
        self._main = self._find_main()
        self.constants = tuple(self._large[each].constant for each in self._need(self._main))

    def program(self) -> bytes:
        """Write the program anew, with parameters in place of large constants."""
        for name in self._functions:  # One that nobody calls may have the same constants.
            self._need(name)
        self._refuse_references()
        return self._write({n: self._change(n, each) for n, each in self._needs.items() if each})

    def with_first(self, value: int) -> bytes:
        """Write the program anew, with a constant in place of the first parameter."""
        function = self._functions[self._main]
        [(kind, _), *_] = function.body.blocks[0].arguments
        if self._reader.values.type(kind) != (TensorType("i32", ()),):
            raise Unreadable("the first parameter is no number")
        number = self._add_attribute(_TENSOR, kind, 4, content=value.to_bytes(4, "little"))
        properties = len(bytecode.properties(self._opened))
        self._properties[properties] = write_numbers(number)
        location = function.body.blocks[0].operations[0].location
        constant = Operation(self._constant_name(), location, None, properties, [kind], (), (), ())
        return self._write({self._main: self._change(self._main, (), constant)})

    def _constant_name(self) -> int:
        """Return the number of the constants' name among those of operations; maybe a new one."""
        if _CONSTANT in self._opened.operations:
            return self._opened.operations.index(_CONSTANT)
        dialect, _, word = _CONSTANT.partition(".")
        strings, sections = [*self._opened.strings, word.encode()], self._opened.sections
        self._written[bytecode.STRINGS] = bytecode.write_strings(strings)
        named = write_numbers(self._opened.dialects.index(dialect), 1, (len(strings) - 1) << 1 | 1)
        self._written[bytecode.DIALECTS] = sections[bytecode.DIALECTS].again().rest() + named
        return len(self._opened.operations)

    def _write(self, changed: Mapping[int, Operation]) -> bytes:
        [block] = self._body.blocks
        places = {id(self._functions[name].operation): each for name, each in changed.items()}
        operations = [places.get(id(each), each) for each in block.operations]
        body = write_region(Region(self._body.num_values, [Block(block.arguments, operations)]))
        module = self._module._replace(regions=[Reader(body, 0, len(body))])
        written = self._written | self._tables()
        written[bytecode.OPERATIONS] = write_numbers(1 << 1) + write_operation(module)
        return self._opened.write(written)

    def _find_large(self, min_nbytes: int) -> Iterator[tuple[int, _Large]]:
        for number in range(self._entries.attributes):
            dialect, is_text, content = self._entries.attribute(number)
            if dialect != "vhlo" or is_text or content.end - content.position < min_nbytes:
                continue
            if content.varint() != _TENSOR:
                continue
            kind, nbytes = content.varint(), content.varint()
            [tensor] = self._reader.values.type(kind)
            try:
                bits = dtypes.of_type(tensor.element).bits
            except TypeError:  # No buffer has this type.
                continue
            shape = tuple(size for size in tensor.sizes if size is not None)
            # Elements that share bytes, and one that stands for all, lie otherwise.
            if bits >= 8 and nbytes * 8 == bits * math.prod(shape) and nbytes >= min_nbytes:
                found = Constant(tensor.element, shape, content.position, nbytes)
                yield number, _Large(found, kind)

    def _read_functions(self) -> Iterator[tuple[int, _Function]]:
        if len(self._body.blocks) != 1:
            raise Unreadable("a module of several blocks")
        for operation in self._body.blocks[0].operations:
            if self._reader.name(operation) == PORTABLE:
                [body] = operation.regions
                if isinstance(body, Reader):
                    body = read_region(body.again(), _VERSION)
                properties = self._reader.properties(operation)
                yield properties[_NAME], _Function(operation, body, properties)

    def _find_main(self) -> int:
        for name in self._functions:
            if self._reader.values.attribute(name) == b"main":
                return name
        raise Unreadable("there is no main function")

    def _need(self, name: int, depth: int = 0) -> tuple[int, ...]:
        """Return the constants that a function and those that it calls have, each once."""
        if name not in self._needs:
            if depth > len(self._functions):
                raise Unreadable("functions that call each other")
            found = dict[int, None]()
            for operation in _walk(self._functions[name].body):
                if (constant := self._constant(operation)) is not None:
                    found[constant] = None
                elif (called := self._called(operation)) is not None:
                    found |= dict.fromkeys(self._need(called, depth + 1))
            self._needs[name] = tuple(found)
        return self._needs[name]

    def _constant(self, operation: Operation) -> int | None:
        """Return the constant that an operation is, if it is a large one."""
        if self._reader.name(operation) != _CONSTANT:
            return None
        [number] = self._reader.properties(operation)
        return number if number in self._large else None

    def _called(self, operation: Operation) -> int | None:
        """Return the function that an operation calls."""
        if self._reader.name(operation) != _CALL:
            return None
        [number] = self._reader.properties(operation)
        return number

    def _refuse_references(self) -> None:
        """Refuse a program that uses a function with constants otherwise than by calling it.

        So is one that has a constant where no parameter can stand for it.
        """
        values, seen = self._reader.values, set[int]()
        names = {values.attribute(each) for each, needed in self._needs.items() if needed}
        for function in self._functions.values():
            if any(self._constant(each) is not None for each in _walk_apart(function.body)):
                raise Unreadable("a large constant in a region that stands alone")
            used = [each for each in _walk(function.body) if self._called(each) is None]
            for operation in (*used, *_walk_apart(function.body)):
                for number in self._properties_once(operation, seen):
                    value = values.attribute(number)
                    words = value if isinstance(value, list) else [value]
                    if any(isinstance(each, bytes) and each in names for each in words):
                        raise Unreadable("a function that an attribute names")

    def _properties_once(self, operation: Operation, seen: set[int]) -> list[int]:
        """Return the attributes among an operation's properties, unless these were seen."""
        number = operation.properties
        if number is None or number in seen:
            return []
        seen.add(number)
        numbers = self._reader.properties(operation)
        return [each for each in numbers if each < self._entries.attributes]

    def _change(
        self, name: int, needed: Sequence[int], first: Operation | None = None
    ) -> Operation:
        """Return a function that takes constants as its last parameters.

        The constant `first` takes the place of its first parameter.
        """
        function, kept = self._functions[name], slice(first is not None, None)
        properties = list(function.properties)
        kind = self._reader.values.attribute(properties[_SIGNATURE])
        if not isinstance(kind, TypeNumber):
            raise Unreadable("the function has no type")
        content = self._entries.type(kind.number).content.again()
        content.varint()
        inputs, outputs = (content.varints(content.varint()) for _ in range(2))
        inputs = [*inputs[kept], *(self._large[each].type_number for each in needed)]
        new = self._add_type(_FUNCTION_TYPE, len(inputs), *inputs, len(outputs), *outputs)
        properties[_SIGNATURE] = self._add_attribute(_TYPE, new)
        content = self._entries.attribute(properties[_PARAMETERS]).content.again()
        if content.varint() != _ARRAY:
            raise Unreadable("attributes of parameters that are no list")
        if said := content.varints(content.varint()):
            said = said[kept] + [self._add_attribute(_DICTIONARY, 0)] * len(needed)
            properties[_PARAMETERS] = self._add_attribute(_ARRAY, len(said), *said)
        if function.operation.properties is None or not function.body.blocks:
            raise Unreadable("a function without a body")
        self._properties[function.operation.properties] = write_numbers(*properties)
        count = len(function.body.blocks[0].arguments)
        parameters = {each: count + number for number, each in enumerate(needed)}
        body = self._without_constants(function.body, parameters, {}, added=needed, first=first)
        written = write_region(body)
        return function.operation._replace(regions=[Reader(written, 0, len(written))])

    def _add_attribute(self, *numbers: int, content: bytes = b"") -> int:
        self._attributes.append(write_numbers(*numbers) + content)
        return self._entries.attributes + len(self._attributes) - 1

    def _add_type(self, *numbers: int) -> int:
        self._types.append(write_numbers(*numbers))
        return len(self._entries) - self._entries.attributes + len(self._types) - 1

    def _tables(self) -> dict[int, bytes]:
        """Write the sections of attributes, types and properties."""
        entries, vhlo = self._entries, self._opened.dialects.index("vhlo")
        empty = write_numbers(_BOOLEAN, 0)  # In place of a constant that no operation has any more.
        hoisted = dict.fromkeys(self._needs[self._main], empty)
        data, offsets = list[bytes](), list[bytes]()

        def add(dialect: int, contents: Sequence[tuple[bytes, bool]]) -> None:
            if contents:
                sizes = [len(each) << 1 | is_encoded for each, is_encoded in contents]
                offsets.append(write_numbers(dialect, len(sizes), *sizes))
                data.extend(each for each, _ in contents)

        for dialect, places in entries.groups():
            if places.start == entries.attributes:
                add(vhlo, [(each, True) for each in self._attributes])
            group = list[tuple[bytes, bool]]()
            for place in places:
                found = entries.at(place)
                group.append((hoisted.get(place) or found.content.rest(), not found.is_text))
            add(self._opened.dialects.index(dialect), group)
        add(vhlo, [(each, True) for each in self._types])
        counts = write_numbers(
            entries.attributes + len(self._attributes),
            len(entries) - entries.attributes + len(self._types),
        )
        properties = [each.again().rest() for each in bytecode.properties(self._opened)]
        for number, content in sorted(self._properties.items()):
            properties[number : number + 1] = [content]
        return {
            bytecode.ATTRIBUTES: b"".join(data),
            bytecode.OFFSETS: b"".join([counts, *offsets]),
            bytecode.PROPERTIES: write_numbers(len(properties))
            + b"".join(write_numbers(len(each)) + each for each in properties),
        }

    def _without_constants(
        self,
        region: Region,
        parameters: Mapping[int, int],
        values: dict[int, int],
        old: int = 0,
        new: int = 0,
        added: Sequence[int] = (),
        first: Operation | None = None,
    ) -> Region:
        """Return a region in which the function's parameters stand for constants.

        Its values were numbered from `old` on, and get numbers from `new` on; `values` has the new
        number of each by its old one. `parameters` are the values of the function's new parameters,
        by their constants, and `added` are those that the region's first block gets. The operation
        `first`, with which it then begins, takes the place of its first argument.
        """
        found = [self._constant(each) for block in region.blocks for each in block.operations]
        num_values = region.num_values + len(added) - sum(each is not None for each in found)
        inner_old, inner_new = old + region.num_values, new + num_values
        blocks = list[Block]()
        for block in region.blocks:
            arguments, operations = list(block.arguments), list[Operation]()
            begin, old = old, old + len(arguments)
            del arguments[: first is not None]
            for each in range(old - len(arguments), old):
                values[each], new = new, new + 1
            arguments += [(self._large[each].type_number, None) for each in added]
            new, added = new + len(added), ()
            if first is not None:
                operations.append(first)
                values[begin], new, first = new, new + 1, None
            for operation in block.operations:
                constant = self._constant(operation)
                if constant is not None:
                    values[old], old = parameters[constant], old + 1
                    continue
                operands = [values[each] for each in operation.operands]
                called = self._called(operation)
                if called is not None:
                    operands += [parameters[each] for each in self._needs[called]]
                for _ in operation.results:
                    values[old], old, new = new, old + 1, new + 1
                regions = [
                    self._without_constants(each, parameters, values, inner_old, inner_new)
                    if isinstance(each, Region)
                    else each
                    for each in operation.regions
                ]
                operations.append(operation._replace(operands=operands, regions=regions))
            blocks.append(Block(arguments, operations))
        return Region(num_values, blocks)


def _walk(region: Region) -> Iterator[Operation]:
    """Yield the operations of a region, and those in their regions that do not stand alone."""
    for block in region.blocks:
        for operation in block.operations:
            yield operation
            for each in operation.regions:
                if isinstance(each, Region):
                    yield from _walk(each)


def _walk_apart(region: Region) -> Iterator[Operation]:
    """Yield the operations in regions that stand alone, which are never changed."""
    for operation in _walk(region):
        for each in operation.regions:
            if isinstance(each, Reader):
                inner = read_region(each.again(), _VERSION)
                yield from _walk(inner)
                yield from _walk_apart(inner)
