"""The PJRT C API as tables: slots, fields, struct sizes, enums and extensions.

Their content is table.json, which the build makes from declarations/ (tools/capi.py).
Must not know what any function is for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

Row = TypeVar("Row")


class Function(NamedTuple):
    """A function of the table; `since` is the minor that added it, 0 for the first stable table."""

    slot: int
    since: int
    args: str
    returns: str


class Field(NamedTuple):
    """A field of a struct; `count` names the field with the number of its elements, or ""."""

    direction: str
    ctype: str
    name: str
    count: str  # type: ignore[assignment]  # Rows do not need tuple.count, which it hides.
    since: int


class ExtensionFunction(NamedTuple):
    """A function of an extension's node: present if the node's struct_size is past `offset`."""

    offset: int
    args: str
    returns: str


class Extension(NamedTuple):
    """A node of the extension chain, known by its type number."""

    type: int
    struct: str
    functions: dict[str, ExtensionFunction]


class Rows(Mapping[str, Row]):
    """A table whose rows are made when they are first used, because a program needs only a few."""

    def __init__(self, texts: dict[str, Any], read: Callable[[str, Any], Row]) -> None:
        self._texts = texts
        self._read = read
        self._rows: dict[str, Row] = {}

    def __getitem__(self, name: str) -> Row:
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = self._read(name, self._texts[name])
        return row

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def _fields(_: str, text: str) -> tuple[Field, ...]:
    _, *rows = text.split(";")
    return tuple(
        Field(direction, ctype, name, count, int(since or 0))
        for direction, ctype, name, count, since in (row.split("|") for row in rows)
    )


def _extension(_: str, row: list[Any]) -> Extension:
    number, struct, functions = row
    rows = {
        field: ExtensionFunction(offset, f"{function}_Args", returns)
        for field, (offset, function, returns) in functions.items()
    }
    return Extension(number, struct, rows)


_TABLE = json.loads(Path(__file__).with_name("table.json").read_bytes())

FUNCTIONS = Rows(
    _TABLE["functions"], lambda name, row: Function(row[0], row[1], f"{name}_Args", row[2])
)
#: The fields of every struct, except struct_size, extension_start and base.
FIELDS = Rows(_TABLE["structs"], _fields)
#: The offset of the end of a struct's last field, which struct_size holds; sizeof may be more.
STRUCT_SIZE = Rows(_TABLE["structs"], lambda _, text: int(text.partition(";")[0]))
ENUMS: dict[str, dict[str, int]] = _TABLE["enums"]
EXTENSIONS = Rows(_TABLE["extensions"], _extension)
