"""Attributes and types in MLIR's bytecode, read without MLIR.

The numbers are those of MLIR's BuiltinDialectBytecode.td, of StableHLO's VhloBytecode.cpp and
StablehloBytecode.cpp, and of Shardy's bytecode.td.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from pjrt_hub.running.program import bytecode
from pjrt_hub.running.program.bytecode import Contents, Reader, require_count
from pjrt_hub.running.program.main_function import (
    DEEPEST,
    MOST_TYPES,
    TensorType,
    TensorTypes,
    Unreadable,
)

T = TypeVar("T")

_OWN_ELEMENTS = {
    **{1: "index", 3: "bf16", 4: "f16", 5: "f32", 6: "f64", 22: "f8E5M2", 23: "f8E4M3"},
    **{24: "f8E4M3FN", 25: "f8E5M2FNUZ", 26: "f8E4M3FNUZ", 27: "f8E4M3B11FNUZ", 28: "f8E3M4"},
    **{29: "f4E2M1FN", 30: "f6E2M3FN", 31: "f6E3M2FN", 32: "f8E8M0FNU"},
}
_PORTABLE_ELEMENTS = {
    **{0: "i1", 31: "i2", 10: "i4", 11: "i8", 12: "i16", 13: "i32", 14: "i64"},
    **{32: "ui2", 15: "ui4", 16: "ui8", 17: "ui16", 18: "ui32", 19: "ui64"},
    **{2: "bf16", 3: "f16", 4: "f32", 5: "f64", 6: "f8E4M3FN", 7: "f8E5M2", 9: "index"},
    **{27: "f8E4M3FNUZ", 28: "f8E5M2FNUZ", 29: "f8E4M3B11FNUZ", 35: "f8E4M3", 36: "f8E3M4"},
    **{37: "f4E2M1FN", 38: "f6E2M3FN", 39: "f6E3M2FN", 40: "f8E8M0FNU"},
}
#: The element types that consist only of a number, by dialect and number.
_ELEMENTS = {("builtin", kind): name for kind, name in _OWN_ELEMENTS.items()}
_ELEMENTS |= {("vhlo", kind): name for kind, name in _PORTABLE_ELEMENTS.items()}
#: The signedness of integers: signless, signed, unsigned.
_SIGNS = ("i", "si", "ui")
#: Shardy's shardings, which have one number for each way to describe how values are summed.
_SHARDINGS = (6, 15, 17)
#: The longest assembly that is made of an attribute, in characters: meshes and shardings are short.
_LONGEST = 1 << 16


class TypeNumber(NamedTuple):
    """An attribute that is a type: its number, for `Values.type` and `Values.function_type`."""

    number: int


class Values:
    """The attributes and types of a program, by their numbers; each is read once.

    Malformed entries, and types that no buffer holds, are a ValueError or LookupError.
    """

    def __init__(self, opened: Contents) -> None:
        self._strings = opened.strings
        self._entries = bytecode.Entries(opened)
        self._read_attributes = dict[int, Any]()
        self._read_types = dict[int, TensorTypes]()
        self._read_numbers = dict[int, dict[str, int]]()
        self._depth = self._tensors = 0

    def attribute(self, number: int) -> Any:
        """Return an attribute's value, in the form of `main_function.Attributes`, or a TypeNumber.

        Lists are lists, and attributes that nobody asks for are an empty text.
        """
        if number not in self._read_attributes:
            self._read_attributes[number] = self._read_nested(
                self._attribute, self._entries.attribute(number)
            )
        return self._read_attributes[number]

    def type(self, number: int) -> TensorTypes:
        """Return a type as its tensors, one for each buffer."""
        if number not in self._read_types:
            self._read_types[number] = self._read_nested(self._type, self._entries.type(number))
        return self._read_types[number]

    def function_type(self, kind: TypeNumber) -> tuple[list[TensorTypes], list[TensorTypes]]:
        """Return the types of a function's parameters and results."""
        dialect, is_text, content = self._entries.type(kind.number)
        content = content.again()
        if is_text or (dialect, content.varint()) not in (("builtin", 2), ("vhlo", 8)):
            raise Unreadable("the function's type is that of no function")
        inputs, outputs = (_read_list(content, self._type_in) for _ in range(2))
        self._count(sum(map(len, inputs + outputs)))
        return inputs, outputs

    def numbers(self, number: int) -> dict[str, int]:
        """Return the numbers of the attributes in a dictionary, by their names."""
        if number not in self._read_numbers:
            dialect, is_text, content = self._entries.attribute(number)
            if is_text or (dialect, content.varint()) != ("builtin", bytecode.DICTIONARY):
                raise Unreadable("an operation's attributes are not a dictionary")
            pairs = _read_list(content, lambda of: (self._name(of), of.varint()))
            self._read_numbers[number] = dict(pairs)
        return self._read_numbers[number]

    def _read_nested(
        self, read: Callable[[bytecode.TableEntry], T], entry: bytecode.TableEntry
    ) -> T:
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unreadable("types or attributes in one another, deeper than any program has")
        found = read(entry._replace(content=entry.content.again()))
        self._depth -= 1
        return found

    def _attribute(self, entry: bytecode.TableEntry) -> Any:
        dialect, is_text, content = entry
        if is_text:
            from pjrt_hub.running.program import mlir_text  # It takes 10 ms to import.

            return mlir_text.attribute(content.rest().rstrip(b"\0"))
        if dialect not in ("builtin", "vhlo", "stablehlo", "sdy"):
            return ""
        match dialect, content.varint():
            case ("builtin", 0) | ("vhlo", 1):
                return _read_list(content, self._attribute_in)
            case ("builtin", 1) | ("vhlo", 6):
                pairs = _read_list(content, lambda of: (self._name(of), self._attribute_in(of)))
                return dict(pairs)
            case ("builtin", 2 | 3) | ("vhlo", 14):  # These are strings, without and with a type.
                return self._strings[content.varint()]
            case "builtin", 4:
                name = self._attribute_in(content)
                return f'@"{name.decode("utf-8", "replace")}"' if isinstance(name, bytes) else ""
            case ("builtin", 6) | ("vhlo", 17):
                return TypeNumber(content.varint())
            case ("builtin", 8) | ("vhlo", 9):
                return self._integer(content)
            case "vhlo", 2:
                return bool(content.varint())
            case ("vhlo", 18) | ("stablehlo", 13):
                return _bounds(content)
            case "sdy", kind:
                return self._shardy_attribute(kind, content)
        return ""

    def _shardy_attribute(self, kind: int, content: Reader) -> str:
        """Return an attribute of Shardy as assembly, as in MLIR's text."""
        if kind == 1:
            return f'"{self._string(content)}"={content.signed()}'
        if kind == 2:
            return f"#sdy.mesh<[{_join(_read_list(content, self._attribute_in))}]>"
        if kind == 3:
            return f":({content.signed()}){content.signed()}"
        if kind == 4:
            name, part = f'"{self._string(content)}"', content.varint()
            return f"{name}{self.attribute(part >> 1)}" if part & 1 else name
        if kind == 5:
            axes = _read_list(content, self._attribute_in)
            is_closed = content.take(1)[0]
            return f"{{{_join(axes if is_closed else [*axes, '?'])}}}"
        if kind in _SHARDINGS:
            mesh = str(self._attribute_in(content)).removeprefix("#sdy.")
            return f"#sdy.sharding<{mesh}, [{_join(_read_list(content, self._attribute_in))}]>"
        return ""

    def _type(self, entry: bytecode.TableEntry) -> TensorTypes:
        dialect, is_text, content = entry
        if is_text:
            from pjrt_hub.running.program import mlir_text

            return mlir_text.value_type(content.rest().rstrip(b"\0"))
        kind = dialect, content.varint()
        if kind in _ELEMENTS:
            return (TensorType(_ELEMENTS[kind], ()),)
        match kind:
            case "builtin", 0:
                told = content.varint()
                return (TensorType(f"{_SIGNS[told & 3]}{told >> 2}", ()),)
            case ("builtin", 9) | ("vhlo", 1):
                return (TensorType(f"complex<{self._element(content)}>", ()),)
            case ("builtin", 13) | ("vhlo", 20):
                return (self._tensor(content, has_encoding=False),)
            case ("builtin", 14) | ("vhlo", 21):
                return (self._tensor(content, has_encoding=True),)
            case ("builtin", 15) | ("vhlo", 23):
                return self._tuple(content)
            case ("vhlo", 22) | ("stablehlo", 0):  # These are tokens.
                return ()
        raise Unreadable(f"type {kind[1]} of {dialect}")

    def _tensor(self, content: Reader, *, has_encoding: bool) -> TensorType:
        bounds: tuple[int | None, ...] = ()
        if has_encoding:
            from pjrt_hub.running.program import mlir_text

            bounds = mlir_text.bounds_in(str(self._attribute_in(content)))
        sizes = _read_list(content, Reader.signed)
        return TensorType(
            self._element(content),
            tuple(size if size >= 0 else None for size in sizes),
            bounds,
        )

    def _tuple(self, content: Reader) -> TensorTypes:
        parts = list[TensorType]()
        for each in _read_list(content, self._type_in):
            parts += each
            self._count(len(each))
        return tuple(parts)

    def _count(self, tensors: int) -> None:
        self._tensors += tensors
        if self._tensors > MOST_TYPES:
            raise Unreadable("more types than any program has")

    def _element(self, content: Reader) -> str:
        found = self._type_in(content)
        if len(found) != 1 or found[0].sizes:
            raise Unreadable("an array of arrays")
        return found[0].element

    def _integer(self, content: Reader) -> int:
        element = self._element(content)
        if element in ("i1", "si1", "ui1"):
            return bool(content.take(1)[0])
        width = element.lstrip("siu")
        if width.isdigit() and int(width) <= 8:
            return content.take(1)[0]
        return content.signed()

    def _attribute_in(self, content: Reader) -> Any:
        return self.attribute(content.varint())

    def _type_in(self, content: Reader) -> TensorTypes:
        return self.type(content.varint())

    def _name(self, content: Reader) -> str:
        name = self._attribute_in(content)
        if not isinstance(name, bytes):
            raise Unreadable("a name that is not text")
        return name.decode("utf-8", "replace")

    def _string(self, content: Reader) -> str:
        return self._strings[content.varint()].decode("utf-8", "replace")


def _read_list(content: Reader, read: Callable[[Reader], T]) -> list[T]:
    return [read(content) for _ in range(require_count(content.varint(), content))]


def _bounds(content: Reader) -> str:
    sizes = _read_list(content, Reader.signed)
    return f"#stablehlo.bounds<{_join(str(size) if size >= 0 else '?' for size in sizes)}>"


def _join(parts: Iterable[Any]) -> str:
    """Join the parts of a list in assembly, up to a limit, for one part may come many times."""
    text, length = list[str](), 0
    for each in map(str, parts):
        text.append(each)
        length += len(each)
        if length > _LONGEST:
            raise Unreadable("an attribute longer than any program has")
    return ", ".join(text)
