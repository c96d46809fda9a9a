"""The text of a manifest outside a package: a subset of TOML, a page of code in any language.

Owns the rules 12 to 15 of docs/spec/manifest.md, their messages, and values in messages; readers in
other languages repeat these word for word. Must not know any key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

UTF_8 = "not UTF-8"
MARK = "a byte order mark"
CONTROL = "a control character"
HEADER = "expected [name], [[name]] or [name.name]"
NAME = "expected a name of 1 to 64 of [A-Za-z0-9_-]"
EQUALS = "expected ="
VALUE = "expected a string, a number, true, false, an array or a table"
STRING = "a string without an end"
ESCAPE = "an escape that stands for no character"
INTEGER = "an integer of more than 64 bits"
ARRAY = "expected , or ]"
TABLE = "expected , or }"
END = "expected the end of the line"
TWICE = "given twice"

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HEADER = re.compile(r"\[\[([\w-]{1,64})\]\]|\[([\w-]{1,64})(?:\.([\w-]{1,64}))?\]", re.ASCII)
_NAME = re.compile(r"[\w-]*", re.ASCII)
_BLANKS = re.compile(r"[ \t]*")
_REST = re.compile("(?!#).+")
_LITERAL = re.compile("[^']*")
_BASIC = re.compile(r'(?:[^"\\]|\\.?)*')
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.?))")
_ESCAPES = {'"': '"', "\\": "\\", "b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}
_LETTERS = {char: f"\\{letter}" for letter, char in _ESCAPES.items()}
_NUMBER = re.compile(r"(?:[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)?")


def parse(raw: bytes) -> dict[str, Any]:
    """Parse a text; raise ValueError, which begins with the line, for what the rules forbid.

    A line is checked from left to right, and as a whole before what it repeats.
    """
    reader = _Reader()
    for number, line in enumerate(raw.replace(b"\r\n", b"\n").split(b"\n"), 1):
        try:
            if number == 1 and line.startswith(b"\xef\xbb\xbf"):
                raise ValueError(MARK)
            reader.read(line)
        except ValueError as exc:
            raise ValueError(f"line {number}: {exc}") from None
    return reader.top


def show(value: object) -> str:
    """Format up to 200 characters as TOML in ASCII, a number, or the kind of another value."""
    if isinstance(value, str):
        return f'"{"".join(map(_show, value[:200]))}"' + "..." * (len(value) > 200)
    if isinstance(value, int):
        return str(value).lower()  # That of True is true.
    kinds = {float: "a float", list: "an array", dict: "a table"}
    return kinds.get(type(value), "a date or a time")


def _show(char: str) -> str:
    if char in _LETTERS or " " <= char <= "~":
        return _LETTERS.get(char, char)
    return f"\\u{ord(char):04X}" if char <= "\uffff" else f"\\U{ord(char):08X}"


class _Reader:
    """The tables so far, and the line that is read from left to right."""

    def __init__(self) -> None:
        self.top: dict[str, Any] = {}
        self._table = self.top  # The one that the lines are about.
        self._by_header: set[str] = set()  # Only what headers made can have more of it.

    def read(self, raw: bytes) -> None:
        try:
            self._text, self._at = raw.decode("utf-8"), 0
        except UnicodeDecodeError:
            raise ValueError(UTF_8) from None
        if _CONTROL.search(self._text):
            raise ValueError(CONTROL)
        self._take(_BLANKS)
        if self._text.startswith("[", self._at):
            found = _HEADER.match(self._text, self._at)
            if not found:
                raise ValueError(HEADER)
            self._at = found.end()
            self._end()
            self._open(*found.groups())
        elif _REST.match(self._text, self._at):
            name, value = self._pair()
            self._end()
            _add(self._table, name, value)

    def _end(self) -> None:
        self._take(_BLANKS)
        if _REST.match(self._text, self._at):
            raise ValueError(END)

    def _open(self, array: str | None, name: str, inner: str | None) -> None:
        there = self.top.get(array or name) if (array or name) in self._by_header else None
        self._table = {}
        if array and isinstance(there, list):
            there.append(self._table)
        elif inner and isinstance(there, dict):
            _add(there, inner, self._table)
        else:
            made = [self._table] if array else {inner: self._table} if inner else self._table
            _add(self.top, array or name, made)
        self._by_header.add(array or name)

    def _pair(self, inside: str = "") -> tuple[str, Any]:
        name = self._take(_NAME)
        if not 1 <= len(name) <= 64:
            raise ValueError(NAME)
        self._take(_BLANKS)
        if not self._skip("="):
            raise ValueError(EQUALS)
        self._take(_BLANKS)
        return name, self._value(inside)

    def _value(self, inside: str) -> Any:
        """Read a value; a table may hold arrays, and an array holds neither."""
        for quote, pattern in (("'", _LITERAL), ('"', _BASIC)):
            if self._skip(quote):
                text = self._take(pattern)
                text = _ESCAPE.sub(_unescape, text) if quote == '"' else text
                if not self._skip(quote):
                    raise ValueError(STRING)
                return text
        if inside != "[" and self._skip("["):
            return [self._value("[") for _ in self._items("]", ARRAY)]
        if not inside and self._skip("{"):
            table: dict[str, Any] = {}
            for _ in self._items("}", TABLE):
                _add(table, *self._pair("{"))
            return table
        if (truth := self._skip("true")) or self._skip("false"):
            return truth
        number = self._take(_NUMBER)
        if not number:
            raise ValueError(VALUE)
        if set(number) & set(".eE"):
            return float(number)
        # Python refuses to convert thousands of digits, with words of its own.
        if len(number) > 20 or not -(1 << 63) <= int(number) < 1 << 63:
            raise ValueError(INTEGER)
        return int(number)

    def _items(self, close: str, expected: str) -> Iterator[None]:
        """Pause where an item begins; read what is between the items."""
        self._take(_BLANKS)
        more = not self._skip(close)
        while more:
            yield
            self._take(_BLANKS)
            more = not self._skip(close)
            if more and not self._skip(","):
                raise ValueError(expected)
            self._take(_BLANKS)

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        assert found  # These patterns match nothing at all, too.
        self._at = found.end()
        return found[0]

    def _skip(self, text: str) -> bool:
        there = self._text.startswith(text, self._at)
        self._at += len(text) * there
        return there


def _unescape(found: re.Match[str]) -> str:
    if found[3] in _ESCAPES:
        return _ESCAPES[found[3]]
    code = int(found[1] or found[2] or "0", 16)
    if 0 < code < 0xD800 or 0xE000 <= code < 0x110000:
        return chr(code)
    raise ValueError(ESCAPE)


def _add(table: dict[str, Any], name: str, value: Any) -> None:
    if name in table:
        raise ValueError(TWICE)
    table[name] = value
