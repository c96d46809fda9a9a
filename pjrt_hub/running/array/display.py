"""Display: the text of an array, and the HTML of an object in a notebook.

Owns truncation and alignment. Imports numpy late.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pjrt_hub.base.listing import WIDTH, cell, escape
from pjrt_hub.errors import PjrtHubError

if TYPE_CHECKING:
    import numpy

#: An array of more elements is truncated.
THRESHOLD = 100
#: The number of last dimensions that are shown; of the others, only index 0 is shown.
_SHOWN = 6
#: The most lines that a cell of a table has, and the most characters of a line.
_LINES, _LONG = 8, 300
#: The digits after the point for types that are shown as float32, which has more digits.
_DIGITS = 4


def of_array(array: numpy.ndarray[Any, Any]) -> str:
    """Return the text of an array: aligned in every dtype, truncated in every rank."""
    return format_array(array, edge_items(array.ndim), THRESHOLD, " ", WIDTH)


def edge_items(rank: int) -> int:
    """Return how many items are shown at either end of a truncated dimension."""
    return 3 if rank <= 2 else 2 if rank == 3 else 1


def format_array(
    array: numpy.ndarray[Any, Any], edge: int, threshold: int, separator: str, width: int
) -> str:
    """Return an array's text; above `threshold` elements, only `edge` at each end of dimensions."""
    import numpy

    before = max(array.ndim - _SHOWN, 0) if array.size > threshold else 0
    if before and array.size:
        array = array[(0,) * before]
    aligned, precision = array, None
    if array.dtype.isbuiltin != 1:  # Elements of ml_dtypes would print unaligned.
        whole = array.dtype.name.startswith(("int", "uint"))
        aligned = array.astype(array.dtype.name.rstrip("0123456789") + "8" if whole else "float32")
        precision = None if whole else _DIGITS
    truncated = aligned.size > threshold
    for items in range(edge, 0, -1):  # Columns stay aligned only if rows fit.
        shown = numpy.array2string(
            aligned,
            separator=separator,
            threshold=threshold,
            edgeitems=items,
            precision=precision,
            max_line_width=sys.maxsize if truncated and items > 1 else width,
        )
        if not truncated or max(map(len, shown.splitlines())) <= width:
            break
    return f"at [{'0, ' * before}...]\n{shown}" if before and array.size else shown


def _shorten(text: str) -> str:
    """Cut a text to what a table cell shows: its first lines, each cut if it is long."""
    lines = text.splitlines()
    rest = [f"... and {len(lines) - _LINES} more"] if len(lines) > _LINES else []
    return "\n".join(
        [line if len(line) <= _LONG else f"{line[:_LONG]}..." for line in lines[:_LINES]] + rest
    )


def table(rows: Callable[[Any], Mapping[str, Any]]) -> Callable[[Any], str]:
    """Make a `_repr_html_` of a method that returns rows by name, or none for a closed object.

    The HTML is a table of the rows; without rows, or if they cannot be had, the object's repr.
    """

    def html(shown: object) -> str:
        with contextlib.suppress(PjrtHubError):
            cells = ((cell(name, "row"), cell(_shorten(str(v)))) for name, v in rows(shown).items())
            if text := "".join(f"<tr>{name}{value}</tr>" for name, value in cells):
                return f"<table>{text}</table>"
        return f"<code>{escape(repr(shown))}</code>"

    return html
