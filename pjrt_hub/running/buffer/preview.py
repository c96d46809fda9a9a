"""Previews: the text of a buffer's value, and HTML for notebooks; never waits and never raises.

Fetches only the shown parts of a large value on a device. Imports numpy late.
"""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

from pjrt_hub.base.listing import WIDTH, escape
from pjrt_hub.errors import PjrtHubError
from pjrt_hub.running.array import dtypes, memory_layout
from pjrt_hub.running.array.display import THRESHOLD, edge_items, format_array
from pjrt_hub.running.buffer.device_memory import copy_raw

if TYPE_CHECKING:
    import numpy

    from pjrt_hub.running.buffer.handle import BufferHandle

_BEGIN = "Buffer("
#: Of a value above `_LARGE` bytes, only parts are fetched, each of at most `_PART` bytes.
_LARGE, _PART = 1 << 20, 1 << 16
#: Platforms where a buffer's bytes on the device are its elements in the order of its layout.
LINEAR = frozenset({"cpu", "cuda", "rocm", "sycl"})


def text(buffer: BufferHandle) -> str:
    """Return the value, or the reason why there is none, and the buffer's type and place."""
    value, trouble = _show(buffer, WIDTH - len(_BEGIN))
    if trouble:
        return f"<Buffer {trouble}, {buffer._summary()}>"
    indent = " " * len(_BEGIN)
    shown = _BEGIN + textwrap.indent(value, indent)[len(indent) :]
    end = f"{buffer._summary()})"
    fits = len(shown) - shown.rfind("\n") + len(end) < WIDTH
    return f"{shown}, {end}" if fits else f"{shown},\n{indent}{end}"


def html(buffer: BufferHandle) -> str:
    """Return the same as HTML whose columns stay aligned with any style sheet."""
    value, trouble = _show(buffer, WIDTH)
    body, footer = escape(value or f"<Buffer {trouble}>"), escape(buffer._summary())
    style = "margin:0;font-family:monospace;white-space:pre"  # nbconvert would use another font.
    return f'<div><pre style="{style}">{body}</pre><small>{footer}</small></div>'


def _show(buffer: BufferHandle, width: int) -> tuple[str, str]:
    """Return the value and "", or "" and the reason why there is no value."""
    try:
        if buffer.client.closed or buffer._is_gone:
            return "", "deleted"
        if not buffer.ready.is_ready():
            return "", "pending"
        edge = edge_items(buffer.ndim)
        if _fetches_parts(buffer):
            return format_array(_glimpse(buffer, edge), edge, 0, ", ", width), ""
        return format_array(buffer.to_numpy(), edge, THRESHOLD, ", ", width), ""
    except (PjrtHubError, TypeError) as exc:  # TypeError means that this numpy lacks the dtype.
        first_line = str(exc).partition("\n")[0]
        return "", f"failed: {first_line}"


def _fetches_parts(buffer: BufferHandle) -> bool:
    client = buffer.client
    buffer._order()
    return (
        not client._lends
        and not buffer._scattered
        and client.platform_name in LINEAR
        and buffer.nbytes > _LARGE
        and not buffer._dynamic
        and dtypes.of_code(buffer._dtype).bits >= 8
        and client.api.has("PJRT_Buffer_CopyRawToHost")
    )


def _glimpse(buffer: BufferHandle, edge: int) -> numpy.ndarray[Any, Any]:
    """Return the ends of every dimension, with one item between the ends of a truncated one."""
    import numpy

    order = buffer._order() or memory_layout.row_major(buffer.ndim)
    shape = [buffer.shape[dimension] for dimension in order[::-1]]
    seen = numpy.zeros([min(size, 2 * edge + 1) for size in shape], buffer.dtype)

    def fill(part: Any, start: int, sizes: list[int]) -> None:
        count = math.prod(sizes)
        kept = [_indices(size, edge) for size in sizes]
        if count * buffer.dtype.itemsize <= _PART:
            part[...] = _fetch(buffer, start, count).reshape(sizes)[numpy.ix_(*kept)]
            return
        for place, index in enumerate(kept[0]):
            step = count // sizes[0]
            fill(part[place : place + 1][0, ...], start + index * step, sizes[1:])

    fill(seen, 0, shape)
    return memory_layout.from_memory(seen, order)


def _indices(size: int, edge: int) -> list[int]:
    whole = size <= 2 * edge + 1
    return [*range(size)] if whole else [*range(edge + 1), *range(size - edge, size)]


def _fetch(buffer: BufferHandle, start: int, count: int) -> numpy.ndarray[Any, Any]:
    """Fetch `count` elements from a buffer's device memory."""
    import numpy

    itemsize = buffer.dtype.itemsize
    host = numpy.empty(count * itemsize, numpy.uint8)
    copy_raw(buffer, host, start * itemsize).wait()
    return host.view(buffer.dtype)
