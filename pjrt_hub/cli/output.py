"""How every command prints: a table, or JSON.

A terminal gets rich's table, which wraps, or lines that may be cut; a pipe gets aligned plain text,
a line per row, and does not pay for importing rich, unless FORCE_COLOR asks for its colours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click

from pjrt_hub.base.listing import align

_MOST_COLUMNS = 100
#: The type of the path of a folder to write.
FOLDER = click.Path(path_type=Path, file_okay=False)


class OutputFile(click.Path):
    """The path of a file to write; one that cannot be written is refused before the work begins."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or refuse one that cannot be written."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        place = path if path.exists() else path.parent
        if not place.exists():
            self.fail(f"There is no folder {str(place)!r}.", param, ctx)
        if not os.access(place, os.W_OK):
            self.fail(f"{str(place)!r} cannot be written.", param, ctx)
        return path


def option(
    dest: str, what: str, *, kind: click.ParamType[Any] | None = None, **more: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make the option `--output`, the argument `dest`; by default it takes the path of a file."""
    return click.option("-o", "--output", dest, type=kind or OutputFile(), help=what, **more)


def show_json(value: object) -> None:
    """Print a value as JSON."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def show_path(path: Path, told: Mapping[str, object], as_json: bool) -> None:
    """Print a path or, as JSON, what is told of it."""
    if as_json:
        show_json(told)
    else:
        print(path)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their columns' names; the last column may be long."""
    if not sys.stdout.isatty():
        for line in align(columns, rows):
            print(line)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column.upper(), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def show_rows(rows: Sequence[Mapping[str, str]], styles: Sequence[str] = (), *, cut: bool) -> None:
    """Print each row, its cells by column, as one line under the columns' names.

    On a terminal, a row has its style, by the name that rich gives to it, if there are any, and
    `cut` shortens lines to the terminal's width; in a pipe with FORCE_COLOR, lines are whole.
    """
    columns, cells = [*rows[0]], [[*row.values()] for row in rows]
    if not _is_styled():
        show_table(columns, cells)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console()
    lines = align(columns, cells)
    for line, style in zip_longest(lines, ["bold", *styles], fillvalue=""):
        text = Text(line, style)
        if cut and sys.stdout.isatty():
            console.print(text, overflow="ellipsis", no_wrap=True)
        else:
            console.print(text, soft_wrap=True)


def show_lines(lines: Sequence[tuple[str, str, str]]) -> None:
    """Print lines, each a word, its style on a terminal as rich names it, and the text after it."""
    if not _is_styled():
        for word, _, text in lines:
            print(f"{word:4}  {text}")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True)
    for word, style, text in lines:
        console.print(Text.assemble((f"{word:4}", style), "  ", text))


def _is_styled() -> bool:
    """Return whether stdout gets styles: it is a terminal, or FORCE_COLOR says to style a pipe."""
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def width() -> int:
    """Return the width of a line of text: the terminal's, but no wider than is easy to read."""
    from shutil import get_terminal_size

    return min(get_terminal_size().columns, _MOST_COLUMNS) if sys.stdout.isatty() else _MOST_COLUMNS
