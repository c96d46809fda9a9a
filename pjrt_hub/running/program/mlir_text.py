"""Programs in MLIR's text, read without MLIR: the head of the main function.

Owns the grammar of that head: types, attributes, aliases of both. Must not read bodies.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from pjrt_hub.running.program.main_function import (
    DEEPEST,
    MOST_TYPES,
    Attributes,
    Declared,
    MainFunction,
    Mesh,
    TensorType,
    TensorTypes,
    Unreadable,
    declare,
)

T = TypeVar("T")

_STRING = rb'"(?:[^"\\\n]|\\.)*+"'
_SYMBOL = rb'(?:[\w$.-]++|"[^"\n]*")'
#: Comments and strings, which may contain anything. The searched text may end inside a string.
_HIDING = re.compile(rb'//[^\n]*|"(?:[^"\\\n]|\\.?)*+(?P<closed>")?')
#: A function's head, up to its parameters or, in the generic form, up to its dictionary.
_FUNCTION = re.compile(
    rb'func\.func(?:(?P<quoted>"\s*\(\s*\)\s*<\s*(?=\{))|'
    rb"\s+(?:(?P<visibility>public|private|nested)\s+)?@(?P<name>%b)\s*\()" % _SYMBOL
)
#: In the generic form until 2023, a function's attributes follow its body.
_OLD_NAME, _OLD_BODY = re.compile(rb'sym_name\s*=\s*"main"'), re.compile(rb"\}\)\s*(?=\{)")
_MODULE = re.compile(rb'module(?:(?P<quoted>"\s*\()|\s*(?:@|attributes\b|\{))')
_ALIAS = re.compile(rb"(?:\A|\n)[ \t]*([!#][\w$.-]++)[ \t]*=(?!=)")
_MESH = re.compile(rb"sdy\.mesh\s+@(?P<name>%b)\s*=\s*(?P<mesh><[^<>]*>|#[\w$.-]+)" % _SYMBOL)
_GENERIC_MESH = re.compile(
    rb'"sdy\.mesh"\s*\(\s*\)\s*<\s*\{\s*mesh\s*=\s*(?P<mesh>#sdy\.mesh<[^<>]*>|#[\w$.-]+)\s*,'
    rb"\s*sym_name\s*=\s*(?P<name>%b)" % _STRING
)
_MESHES = re.compile(rb'xla\.sdy\.meshes"?\s*=\s*(?P<meshes>%b)' % _STRING)


def _token(pattern: bytes) -> re.Pattern[bytes]:
    """Return the pattern of a token, with any space and comments before it."""
    return re.compile(rb"(?:\s|//[^\n]*)*+(?P<token>%b)" % pattern)


_OPEN, _CLOSE, _COMMA, _ARROW = map(_token, (rb"\(", rb"\)", rb",", rb"->"))
_BRACE, _UNBRACE, _BRACKET, _UNBRACKET = map(_token, (rb"\{", rb"\}", rb"\[", rb"\]"))
_COLON, _EQUALS, _UNANGLE = map(_token, (rb":", rb"=", rb">"))
_VARIABLE, _QUOTED, _NAME = map(_token, (rb"%[\w$.-]+(?:#\d+)?", _STRING, rb"[\w$.-]+"))
_LOCATION, _NUMBER, _TRUTH = map(
    _token, (rb"loc\s*(?=\()", rb"-?\d{1,19}(?=\s*[:,}\])>])", rb"(?:true|false)\b")
)
_TENSOR, _TUPLE, _COMPLEX = map(_token, (rb"tensor\s*<", rb"tuple\s*<", rb"complex\s*<"))
_NO_ARRAY = _token(rb"!(?:stablehlo|mhlo)\.token\b")
_DIMENSION, _ELEMENT = _token(rb"(?:\d{1,19}|\?)\s*x"), _token(rb"[a-zA-Z]\w*")
_TYPE_ALIAS, _ATTRIBUTE_ALIAS = _token(rb"![\w$.-]++(?!\s*<)"), _token(rb"#[\w$.-]++(?!\s*<)")
#: The tokens that may end a value's assembly, or that contain such a token but do not end it.
_PIECE = re.compile(_STRING + rb"|//[^\n]*|->|[<>=]=|[()\[\]{}<>,\n\"]")
_BOUNDS = re.compile(
    r"#(?:stablehlo\.bounds<|(?:stablehlo|mhlo)\.type_extensions<\s*bounds\s*=\s*\[)([\d?,\s]*)[]>]"
)
_ESCAPE = re.compile(rb'\\(?:([0-9a-fA-F]{2})|([nt"\\]))')
_OPENING, _CLOSING = (b"(", b"[", b"{", b"<"), (b")", b"]", b"}", b">")
_ESCAPED = {b"n": b"\n", b"t": b"\t"}
_AXIS = re.compile(rb'"([^"]*)"\s*=\s*(\d{1,10})')
_NAMED_MESH = re.compile(rb'((?<![\w$.-])[\w$.-]++|"[^"]*")\s*=\s*#sdy\.mesh(<[^<>]*>)')


def main_function(text: bytes) -> MainFunction:
    """Read the head of a program's main function, which is @main, or the only one that it has.

    What follows the head is not looked at. Unreadable: there is no such function, or it has a type
    that no buffer holds.
    """
    only: Callable[[], MainFunction] | None = None
    reader, behind = _Reader(text), 0
    for number, head in enumerate(_visible(_FUNCTION, text)):
        if head.start() < behind:  # The match lies in an attribute of another function.
            continue
        reader.position = behind = head.end()
        if head["name"] is None:
            name, visibility, read = reader.generic_head()
            behind = reader.position
        else:
            name, visibility = head["name"].strip(b'"'), head["visibility"]
            read = partial(reader.function, behind)
        if name == b"main" and visibility != b"private":
            if len([*islice(_visible(_MODULE, text, head.start()), 2)]) > 1:
                raise Unreadable("the main function may stand in a module inside another")
            return read()
        only = None if number or visibility == b"private" else read
    for found in islice(_visible(_OLD_NAME, text), 1):
        for body in deque(_visible(_OLD_BODY, text, found.start()), 1):  # Only the last one counts.
            reader.position = body.end()
            name, visibility, read = reader.generic_head()
            if name == b"main" and visibility != b"private":
                return read()
    if only is None:
        raise Unreadable("there is no public main function")
    return only()


def meshes(text: bytes) -> dict[str, Mesh]:
    """Read the meshes that Shardy's annotations name."""
    found, reader = dict[str, Mesh](), _Reader(text)
    for each in (*_visible(_MESH, text), *_visible(_GENERIC_MESH, text)):
        mesh = each["mesh"]
        if b"<" not in mesh:
            reader.position = each.start("mesh")
            mesh = str(reader.value()).encode()
        found[each["name"].strip(b'"').decode("utf-8", "replace")] = axes(mesh)
    for each in _MESHES.finditer(text):
        found |= meshes_of(_unescape(each["meshes"]))
    return found


def meshes_of(told: bytes) -> dict[str, Mesh]:
    """Read the meshes of the attribute xla.sdy.meshes: `{mesh = #sdy.mesh<["x"=8]>}`."""
    return {
        name.strip(b'"').decode("utf-8", "replace"): axes(mesh)
        for name, mesh in _NAMED_MESH.findall(told)
    }


def axes(mesh: bytes) -> Mesh:
    """Read the axes of a mesh: `<["x"=4, "y"=2]>`."""
    return {name.decode("utf-8", "replace"): int(size) for name, size in _AXIS.findall(mesh)}


def value_type(text: bytes) -> TensorTypes:
    """Read a type that stands alone."""
    return _Reader(text).type()


def attribute(text: bytes) -> Any:
    """Read an attribute that stands alone, as `main_function.Attributes` has it."""
    return _Reader(text, is_alone=True).value()


def bounds_in(encoding: str) -> tuple[int | None, ...]:
    """Read the bounds of dynamic dimensions: `#stablehlo.bounds<4, ?>`."""
    found = _BOUNDS.match(encoding)
    if found is None:
        raise Unreadable(f"the encoding {encoding[:80]}")
    sizes = [each.strip() for each in found[1].split(",")]
    if not all(each == "?" or (each.isdigit() and len(each) < 20) for each in sizes):
        raise Unreadable(f"the bounds {found[1][:80]}")
    return tuple(None if each == "?" else int(each) for each in sizes)


def _visible(
    pattern: re.Pattern[bytes], text: bytes, end: int | None = None
) -> Iterator[re.Match[bytes]]:
    """Yield the matches outside comments and strings, from the beginning of a program on."""
    begin = 0  # Each comment or string around a later match begins here or later.
    for found in pattern.finditer(text, 0, len(text) if end is None else end):
        at = found.start()
        if found.groupdict().get("quoted"):  # This quotation mark begins a name, not a string.
            at = text.rfind(b'"', begin, at)
        begin = max(begin, text.rfind(b"\n", begin, at) + 1)  # No string or comment spans lines.
        for hiding in _HIDING.finditer(text, begin, max(begin, at)):
            begin = hiding.end()
            if not hiding["closed"]:
                around = _HIDING.match(text, hiding.start())
                begin = around.end() if around else begin
        if begin <= at:
            begin = at
            yield found


def _unescape(string: bytes) -> bytes:
    """Return the text of a string in quotation marks, with its escapes replaced."""
    if b"\\" not in string:
        return string[1:-1]
    return _ESCAPE.sub(
        lambda found: (
            bytes.fromhex(found[1].decode()) if found[1] else _ESCAPED.get(found[2], found[2])
        ),
        string[1:-1],
    )


#: How each kind of attribute value is converted.
_MEANINGS: tuple[tuple[re.Pattern[bytes], Callable[[bytes], Any]], ...] = (
    (_QUOTED, _unescape),
    (_NUMBER, int),
    (_TRUTH, lambda word: word == b"true"),
)


class _Reader:
    """A place in a text, and what can be read from there."""

    def __init__(self, text: bytes, *, is_alone: bool = False) -> None:
        self.text = text
        self.position = self._depth = self._types = 0
        self._in_alias = int(is_alone)
        self._searched = 0  # All aliases before this position are known.
        self._aliases = dict[bytes, int]()
        self._read = dict[tuple[bytes, Callable[..., Any]], Any]()

    def take(self, token: re.Pattern[bytes]) -> bytes | None:
        """Return the token, if it is what comes next."""
        found = token.match(self.text, self.position)
        if found is None:
            return None
        self.position = found.end()
        return found["token"]

    def require(self, token: re.Pattern[bytes]) -> bytes:
        taken = self.take(token)
        if taken is None:
            found = self.text[self.position : self.position + 40]
            raise Unreadable(f"the text {found!r} at byte {self.position}")
        return taken

    def function(self, position: int) -> MainFunction:
        """Read a function's types, from after the bracket that opens its parameters."""
        self.position = position
        parameters = [*self._read_list(self._type_with_attributes, _CLOSE)]
        results = list[tuple[TensorTypes, Attributes]]()
        if self.take(_ARROW):
            if self.take(_OPEN):
                results += self._read_list(self._type_with_attributes, _CLOSE)
            else:
                results.append((self.type(), {}))
        return MainFunction(
            [Declared(*each) for each in parameters], [Declared(*each) for each in results]
        )

    def generic_head(self) -> tuple[object, object, Callable[[], MainFunction]]:
        """Read name and visibility in a function's dictionary; give them and a reader of the rest.

        Types are read only of the main function, because those of others may be anything.
        """
        places = dict[str, int]()
        self.require(_BRACE)
        while not self.take(_UNBRACE):
            if places:
                self.require(_COMMA)
            name = self._key()
            if self.take(_EQUALS):
                places[name] = self.position
                self._skip()
        name, visibility = (self._at(places.get(each)) for each in ("sym_name", "sym_visibility"))
        return name, visibility, lambda: self._generic_function(places)

    def _generic_function(self, places: Mapping[str, int]) -> MainFunction:
        if "function_type" not in places:
            raise Unreadable("the function has no type")
        self.position = places["function_type"]
        inputs, outputs = self.function_type()
        return MainFunction(
            declare(inputs, self._dictionaries(places.get("arg_attrs"))),
            declare(outputs, self._dictionaries(places.get("res_attrs"))),
        )

    def function_type(self) -> tuple[list[TensorTypes], list[TensorTypes]]:
        """Return the types of parameters and of results: `(tensor<f32>) -> tensor<f32>`."""
        if alias := self.take(_TYPE_ALIAS):
            return self._of_alias(alias, _Reader.function_type)
        self.require(_OPEN)
        inputs = [*self._read_list(self.type, _CLOSE)]
        self.require(_ARROW)
        return inputs, [*self._read_list(self.type, _CLOSE)] if self.take(_OPEN) else [self.type()]

    def type(self) -> TensorTypes:
        """Return a type as its tensors, one for each buffer."""
        self._count(1)
        if self.take(_TENSOR):
            return (self._tensor(),)
        if self.take(_TUPLE):
            return self._tuple()
        if self.take(_NO_ARRAY):
            return ()
        if alias := self.take(_TYPE_ALIAS):
            return self._of_alias(alias, _Reader.type)
        return (TensorType(self._element(), ()),)

    def value(self) -> Any:
        """Return an attribute's value, in the form of `main_function.Attributes`."""
        begin = self.position
        if alias := self.take(_ATTRIBUTE_ALIAS):
            return self._of_alias(alias, _Reader.value) if b"." not in alias else alias.decode()
        if self.take(_BRACE):
            return self._dictionary()
        for token, meant in _MEANINGS:
            if (found := self.take(token)) is not None:
                self._skip()  # This skips the type of a number.
                return meant(found)
        self._skip()
        return self.text[begin : self.position].strip().decode("utf-8", "replace")

    def _type_with_attributes(self) -> tuple[TensorTypes, Attributes]:
        """Read a type and the dictionary after it, past a parameter's name, if it has one."""
        if self.take(_VARIABLE):
            self.require(_COLON)
        tensors = self.type()
        attributes = self._dictionary() if self.take(_BRACE) else {}
        if self.take(_LOCATION):
            self._skip()
        return tensors, attributes

    def _tensor(self) -> TensorType:
        sizes = list[int | None]()
        while size := self.take(_DIMENSION):
            sizes.append(None if size.startswith(b"?") else int(size.rstrip(b"x")))
        element = self._element()
        bounds: tuple[int | None, ...] = ()
        if self.take(_COMMA):
            bounds = bounds_in(str(self.value()))
        self.require(_UNANGLE)
        return TensorType(element, tuple(sizes), bounds)

    def _element(self) -> str:
        if alias := self.take(_TYPE_ALIAS):
            return self._of_alias(alias, _Reader._element)
        if self.take(_COMPLEX):
            part = self.require(_ELEMENT)
            self.require(_UNANGLE)
            return f"complex<{part.decode()}>"
        return self.require(_ELEMENT).decode()

    def _tuple(self) -> TensorTypes:
        self._deepen()
        parts = list[TensorType]()
        for each in self._read_list(self.type, _UNANGLE):
            self._count(len(each))  # An alias is read once, but each use of it counts.
            parts += each
        self._depth -= 1
        return tuple(parts)

    def _dictionary(self) -> Attributes:
        self._deepen()
        found = dict(self._read_list(self._entry, _UNBRACE))
        self._depth -= 1
        return found

    def _entry(self) -> tuple[str, Any]:
        name = self._key()
        return name, self.value() if self.take(_EQUALS) else ""

    def _key(self) -> str:
        quoted = self.take(_QUOTED)
        name = self.require(_NAME) if quoted is None else _unescape(quoted)
        return name.decode("utf-8", "replace")

    def _dictionaries(self, place: int | None) -> list[Attributes]:
        if place is None:
            return []
        self.position = place
        self.require(_BRACKET)
        found = [*self._read_list(self.value, _UNBRACKET)]
        if not all(isinstance(each, dict) for each in found):
            raise Unreadable("attributes of parameters that are not dictionaries")
        return found

    def _read_list(self, read: Callable[[], T], end: re.Pattern[bytes]) -> Iterator[T]:
        """Yield the items between commas, up to the token `end`."""
        if self.take(end) is None:
            yield read()
            while self.take(end) is None:
                self.require(_COMMA)
                yield read()

    def _at(self, place: int | None) -> Any:
        if place is None:
            return None
        behind, self.position = self.position, place
        value = self.value()
        self.position = behind
        return value

    def _skip(self) -> None:
        """Go to the end of a value: to a comma or bracket or, in an alias, the end of the line."""
        depth = 0
        for piece in _PIECE.finditer(self.text, self.position):
            text = piece[0]
            if text in _OPENING:
                depth += 1
            elif text in _CLOSING or text == b"," or (text == b"\n" and self._in_alias):
                if depth == 0:
                    self.position = piece.start()
                    return
                depth -= text in _CLOSING
            elif text == b'"':
                raise Unreadable("a string without an end")
        if depth or not self._in_alias:
            raise Unreadable("the text ends in an attribute")
        self.position = len(self.text)

    def _count(self, types: int) -> None:
        self._types += types
        if self._types > MOST_TYPES:
            raise Unreadable("more types than any program has")

    def _deepen(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unreadable("types or attributes in one another, deeper than any program has")

    def _of_alias(self, name: bytes, read: Callable[[_Reader], T]) -> T:
        """Return what an alias stands for; aliases are written before their uses."""
        if (name, read) in self._read:
            found: T = self._read[name, read]
            return found
        if self.position > self._searched:
            for each in _ALIAS.finditer(self.text, self._searched, self.position):
                self._aliases[each[1]] = each.end()
            self._searched = self.position
        if name not in self._aliases:
            raise Unreadable(f"{name[:80]!r}, which is nothing known")
        self._deepen()
        behind, self.position = self.position, self._aliases[name]
        self._in_alias += 1
        found = self._read[name, read] = read(self)
        self._in_alias -= 1
        self.position = behind
        self._depth -= 1
        return found
