"""Listings: tuples that show themselves as tables, at a Python prompt and in notebooks.

Owns alignment, HTML and the format of sizes; each element gives the text of its own row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, SupportsIndex, TypeVar, overload

from pjrt_hub.errors import PjrtHubError

#: The most characters in a line that is shown at a prompt, for tables and arrays alike.
WIDTH = 100
#: A longer cell may break within a word, so that a long path does not push other cells aside.
_LONG = 40
_STYLE = "text-align:left;vertical-align:top;white-space:pre-wrap"


class Listed(Protocol):
    """An object that can be a row of a listing."""

    def _row(self) -> Mapping[str, str]:
        """Return a cell for each column, by the column's name."""


T = TypeVar("T", bound=Listed)


class Listing(tuple[T, ...]):
    """A tuple whose `repr` is a table with a line for each element; in notebooks, one of HTML."""

    __slots__ = ()

    @overload
    def __getitem__(self, at: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Listing[T]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> T | Listing[T]:
        if isinstance(at, slice):
            return Listing(super().__getitem__(at))
        return super().__getitem__(at)

    def __repr__(self) -> str:
        rows = self.rows()
        if not rows:
            return super().__repr__()
        lines = align(tuple(rows[0]), [tuple(row.values()) for row in rows])
        return "\n".join(
            line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..." for line in lines
        )

    def _repr_html_(self) -> str:
        rows = self.rows()
        if not rows:
            return f"<code>{escape(super().__repr__())}</code>"
        head = "".join(cell(column, "col") for column in rows[0])
        body = "".join(map(_html_row, rows))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def rows(self) -> list[Mapping[str, str]]:
        """Return each element's cells by column name; no rows if an element has no answer."""
        try:
            return [each._row() for each in self]
        except PjrtHubError:  # The client is closed, or the plugin gives no answer.
            return []


def align(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table of text; the first has the columns' names in capitals."""
    head = [column.upper() for column in columns]
    table = [head, *([" ".join(text.split()) for text in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]


def cell(text: str, scope: str = "") -> str:
    """Return a cell of an HTML table that keeps its line breaks even without a style sheet.

    With a `scope`, "col" or "row", it is a header cell.
    """
    tag, head = ("th", f'scope="{scope}" ') if scope else ("td", "")
    style = _STYLE if len(text) <= _LONG else f"{_STYLE};overflow-wrap:anywhere"
    return f'<{tag} {head}style="{style}">{"<br>".join(escape(text).splitlines())}</{tag}>'


def _html_row(row: Mapping[str, str]) -> str:
    first, *others = row.values()
    return f"<tr>{cell(first, 'row')}{''.join(map(cell, others))}</tr>"


def escape(text: str) -> str:
    """Escape text for HTML."""
    import html

    return html.escape(text)


def count_text(number: int, what: str) -> str:
    """Return a number of things as text: "1 archive", "2 archives"."""
    return f"{number} {what}{'s' * (number != 1)}"


def size_text(nbytes: int, *, of_memory: bool = False) -> str:
    """Write a size in its largest unit: "62.7 MB" by powers of 1000, memory "1.5 KiB" by 1024."""
    step, digits = (1024, 4) if of_memory else (1000, 3)
    amount, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB") if of_memory else ("kB", "MB", "GB", "TB"):
        if abs(amount) < step - 0.5:
            break
        amount, unit = amount / step, larger
    return f"{amount:.{digits}g} {unit}"
