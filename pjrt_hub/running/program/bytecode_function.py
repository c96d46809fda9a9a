"""The main function of programs in MLIR's bytecode, read without MLIR.

Owns finding it among modules and functions, whose bodies are not looked at; `bytecode_region` reads
operations, `bytecode_values` attributes and types.
"""

from __future__ import annotations

import sys
from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any

from pjrt_hub.running.program import bytecode
from pjrt_hub.running.program.bytecode import Reader
from pjrt_hub.running.program.bytecode_region import (
    Operation,
    Region,
    read_operation,
    read_region,
)
from pjrt_hub.running.program.bytecode_values import TypeNumber, Values
from pjrt_hub.running.program.main_function import (
    Attributes,
    MainFunction,
    Mesh,
    Unreadable,
    declare,
)

_MODULE, _FUNCTION, PORTABLE, _MESH = "builtin.module", "func.func", "vhlo.func_v1", "sdy.mesh"
#: The attributes that operations keep as properties, sorted by name. For an optional one ("?"), the
#: lowest bit tells whether it is present.
_PROPERTIES = {
    (_FUNCTION, 5): ("arg_attrs?", "function_type", "res_attrs?", "sym_name", "sym_visibility?"),
    (_FUNCTION, 6): (
        *("arg_attrs?", "function_type", "no_inline?", "res_attrs?", "sym_name"),
        "sym_visibility?",
    ),
    (PORTABLE, 5): ("arg_attrs", "function_type", "res_attrs", "sym_name", "sym_visibility"),
    (_MESH, 2): ("mesh", "sym_name"),
}
_MOST_PROPERTIES = 6


def main_function(code: bytes) -> MainFunction:
    """Read the head of a program's main function, which is @main, or the only one that it has.

    ValueError or LookupError tell that there is none, that it has a type that no buffer holds, or
    that the bytes are malformed.
    """
    program = ProgramReader(code)
    heads = (each for each in program.operations() if program.name(each) in (_FUNCTION, PORTABLE))
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
    from pjrt_hub.running.program import mlir_text  # Few programs need it, and it takes 10 ms.

    program = ProgramReader(code)
    found = dict[str, Mesh]()
    for head in program.operations():
        said = program.attributes_of(head)
        if program.name(head) == _MODULE:
            frontend = program.word(said, "mhlo.frontend_attributes")
            told = frontend.get("xla.sdy.meshes") if isinstance(frontend, dict) else None
            found |= mlir_text.meshes_of(told) if isinstance(told, bytes) else {}
        elif program.name(head) == _MESH:
            name, mesh = program.word(said, "sym_name"), program.word(said, "mesh")
            if isinstance(name, bytes) and isinstance(mesh, str):
                found[name.decode("utf-8", "replace")] = mlir_text.axes(mesh.encode())
    return found


class ProgramReader:
    """Bytecode, and the operations of its outermost module."""

    def __init__(self, code: bytes | memoryview) -> None:
        self.opened = bytecode.contents(code)
        self.values = Values(self.opened)
        self._properties = bytecode.properties(self.opened)

    def module(self) -> tuple[Operation, Region]:
        """Return the outermost module and its body."""
        reader, version = self.opened.sections[bytecode.OPERATIONS].again(), self.opened.version
        if reader.varint() != 1 << 1:
            raise Unreadable("the bytecode is of more than a module")
        module = read_operation(reader, version)
        if self.name(module) != _MODULE or len(module.regions) != 1:
            raise Unreadable(f"the bytecode is of a {self.name(module)}")
        [body] = module.regions
        return module, read_region(body.again(), version) if isinstance(body, Reader) else body

    def operations(self) -> Iterator[Operation]:
        """Yield the module and the operations in it."""
        module, body = self.module()
        yield module
        for block in body.blocks:
            yield from block.operations

    def name(self, operation: Operation) -> str:
        """Return an operation's full name."""
        return self.opened.operations[operation.name]

    def properties(self, operation: Operation, most: int = sys.maxsize) -> list[int]:
        """Return the numbers of an operation's properties, no more than `most`."""
        numbers = list[int]()
        if operation.properties is not None:
            reader = self._properties[operation.properties].again()
            while reader and len(numbers) < most:
                numbers.append(reader.varint())
        return numbers

    def attributes_of(self, operation: Operation) -> Mapping[str, int]:
        """Return the numbers of the attributes that an operation has, by their names."""
        many = {} if operation.attributes is None else self.values.numbers(operation.attributes)
        said, numbers = dict[str, int](), self.properties(operation, _MOST_PROPERTIES + 1)
        known = _PROPERTIES.get((self.name(operation), len(numbers)), ())
        for name, number in zip(known, numbers, strict=False):
            if not name.endswith("?"):
                said[name] = number
            elif number & 1:
                said[name[:-1]] = number >> 1
        return ChainMap(said, many)  # Many operations may share `many`, so a copy would be slow.

    def word(self, said: Mapping[str, int], name: str) -> Any:
        """Return an attribute's value by its name; None if there is none."""
        return self.values.attribute(said[name]) if name in said else None

    def function(self, said: Mapping[str, int]) -> MainFunction:
        """Return a function, read from its operation's attributes."""
        kind = self.word(said, "function_type")
        if not isinstance(kind, TypeNumber):
            raise Unreadable("the function has no type")
        inputs, outputs = self.values.function_type(kind)
        return MainFunction(
            declare(inputs, self._dictionaries(said, "arg_attrs")),
            declare(outputs, self._dictionaries(said, "res_attrs")),
        )

    def _dictionaries(self, said: Mapping[str, int], name: str) -> list[Attributes]:
        found = self.word(said, name) or []
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise Unreadable("attributes of parameters that are not dictionaries")
        return found
