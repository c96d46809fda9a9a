"""How things look: the text of a buffer's value, and HTML for notebooks.

Owns truncation, alignment and escaping; asks of an object only what it says without waiting. Of a
large value on a device it fetches only what is shown. Imports numpy late.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pjrt_hub.errors import PjrtHubError, UnsupportedByPluginError
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.capi import callbacks
from pjrt_hub.running.device.event import Event

if TYPE_CHECKING:
    import numpy

    from pjrt_hub.running.buffer.buffer import Buffer
    from pjrt_hub.running.client.client import Client
    from pjrt_hub.running.client.plugin import Plugin
    from pjrt_hub.running.client.topology import Topology
    from pjrt_hub.running.device.device import Device, Memory
    from pjrt_hub.running.executable.compiled import Compiled
    from pjrt_hub.running.executable.executable import Executable
    from pjrt_hub.running.executable.loaded_executable import LoadedExecutable

#: A value of more elements is truncated.
_THRESHOLD = 100
#: Dimensions that are shown; of those before, the first index.
_SHOWN = 6
#: Characters of a line of a truncated value.
_WIDTH = 100
#: Lines of a cell of a table, and characters of each.
_LINES, _LONG = 8, 300
#: Digits behind the point of the types that are shown as float32, which has more.
_DIGITS = 4
#: Bytes from which on parts of a value are fetched, and of one such part.
_LARGE, _PART = 1 << 20, 1 << 16
#: Where a buffer's bytes on the device are its elements in the order of its layout.
_LINEAR = frozenset({"cpu", "cuda", "rocm", "sycl"})


def of_array(array: numpy.ndarray[Any, Any]) -> str:
    """The text of an array: aligned in every dtype, truncated in every rank."""
    return _text(array, _edge(array.ndim), _THRESHOLD, " ")


def of_buffer(buffer: Buffer) -> str:
    """Its value, or what is the matter with it, and what it is; never waits and never raises."""
    body, footer = _parts(buffer)
    separator = "\n" if body[0] != "<" else " "
    return f"{body}\n{footer}" if separator == "\n" else f"{body[:-1]} {footer}>"


def html_of_buffer(buffer: Buffer) -> str:
    """As `of_buffer`, in HTML."""
    body, footer = map(_escaped, _parts(buffer))
    return f'<div><pre style="margin:0">{body}</pre><small>{footer}</small></div>'


def html_of_client(client: Client) -> str:
    """A table of what a client offers."""
    return _table(
        client,
        client.closed,
        lambda: {
            "Client": client.platform_name,
            "version": client.platform_version,
            "plugin": client.plugin.name,
            "devices": _lines(f"{device} {device.kind}" for device in client.devices),
        },
    )


def html_of_device(device: Device) -> str:
    """A table of what a device is."""
    return _table(
        device,
        device.client.closed,
        lambda: {
            "Device": device,
            "kind": device.kind,
            "process": device.process_index,
            "memories": _lines(map(str, device.memories)),
            **device.attributes,
        },
    )


def html_of_memory(memory: Memory) -> str:
    """A table of what a memory is."""
    return _table(
        memory,
        memory.client.closed,
        lambda: {
            "Memory": memory,
            "kind": memory.kind,
            "devices": _lines(f"{device} {device.kind}" for device in memory.devices),
        },
    )


def html_of_topology(topology: Topology) -> str:
    """A table of the devices that a topology describes."""
    return _table(
        topology,
        _is_closed(topology),
        lambda: {
            "Topology": topology.platform_name,
            "version": topology.platform_version,
            "devices": _lines(f"{each.id} {each.kind}" for each in topology.device_descriptions),
            **topology.attributes,
        },
    )


def html_of_executable_ahead_of_time(executable: Executable) -> str:
    """A table of what a program takes and gives that was compiled ahead of time, and for what."""
    return _table(
        executable,
        _is_closed(executable.topology),
        lambda: {
            "Executable": executable._title,
            **_signature(executable),
            "for": executable.topology,
            "split": (
                f"{executable.num_replicas} replica(s) x {executable.num_partitions} partition(s)"
            ),
        },
    )


def html_of_executable(executable: LoadedExecutable) -> str:
    """A table of what an executable takes and gives, and where."""
    return _table(
        executable,
        executable.closed,
        lambda: {
            "LoadedExecutable": executable._title,
            **_signature(executable),
            "devices": _lines(map(str, executable.devices)),
        },
    )


def html_of_plugin(plugin: Plugin) -> str:
    """A table of what a plugin says of itself."""
    return _table(
        plugin,
        False,
        lambda: {
            "Plugin": plugin.name,
            "PJRT API": plugin.api_version,
            "library": plugin.path,
            **plugin.attributes,
            "extensions": ", ".join(plugin.extensions),
        },
    )


def _parts(buffer: Buffer) -> tuple[str, str]:
    footer = f"[{buffer._summary()}]"
    try:
        if buffer.client.closed or buffer._is_gone:
            return "<Buffer deleted>", footer
        if not buffer.ready.is_ready():
            return "<Buffer pending>", footer
        edge = _edge(buffer.ndim)
        if _fetches_parts(buffer):
            return _text(_glimpse(buffer, edge), edge, 0, ", "), footer
        return _text(buffer.to_numpy(), edge, _THRESHOLD, ", "), footer
    except (PjrtHubError, TypeError) as exc:  # TypeError: this numpy has no such dtype
        first_line = str(exc).partition("\n")[0]
        return f"<Buffer failed: {first_line}>", footer


def _edge(rank: int) -> int:
    """How many items are shown at either end of a truncated dimension."""
    return 3 if rank <= 2 else 2 if rank == 3 else 1


def _text(array: numpy.ndarray[Any, Any], edge: int, threshold: int, separator: str) -> str:
    import numpy

    before = max(array.ndim - _SHOWN, 0) if array.size > threshold else 0
    if before and array.size:
        array = array[(0,) * before]
    aligned, precision = array, None
    if array.dtype.isbuiltin != 1:  # ml_dtypes' elements print themselves, in all widths
        whole = array.dtype.name.startswith(("int", "uint"))
        aligned = array.astype(array.dtype.name.rstrip("0123456789") + "8" if whole else "float32")
        precision = None if whole else _DIGITS
    truncated = aligned.size > threshold
    for items in range(edge, 0, -1):  # rows that fit, so that columns stay below each other
        text = numpy.array2string(
            aligned,
            separator=separator,
            threshold=threshold,
            edgeitems=items,
            precision=precision,
            max_line_width=sys.maxsize if truncated and items > 1 else _WIDTH,
        )
        if not truncated or max(map(len, text.splitlines())) <= _WIDTH:
            break
    return f"at [{'0, ' * before}...]\n{text}" if before and array.size else text


def _fetches_parts(buffer: Buffer) -> bool:
    client = buffer.client
    buffer._order()
    return (
        not client._lends
        and not buffer._scattered
        and client.platform_name in _LINEAR
        and buffer.nbytes > _LARGE
        and not buffer._dynamic
        and dtypes.of_code(buffer._dtype).bits >= 8
        and client.api.has("PJRT_Buffer_CopyRawToHost")
    )


def _glimpse(buffer: Buffer, edge: int) -> numpy.ndarray[Any, Any]:
    """The ends of every dimension, with one item between them for each that is truncated."""
    import numpy

    rank = buffer.ndim
    slowest_first = (buffer._order() or tuple(range(rank - 1, -1, -1)))[::-1]
    shape = [buffer.shape[dimension] for dimension in slowest_first]
    seen = numpy.zeros([min(size, 2 * edge + 1) for size in shape], buffer.dtype)

    def fill(part: Any, start: int, sizes: list[int]) -> None:
        count = math.prod(sizes)
        kept = [_kept(size, edge) for size in sizes]
        if count * buffer.dtype.itemsize <= _PART:
            part[...] = _fetched(buffer, start, count).reshape(sizes)[numpy.ix_(*kept)]
            return
        for place, index in enumerate(kept[0]):
            step = count // sizes[0]
            fill(part[place : place + 1][0, ...], start + index * step, sizes[1:])

    fill(seen, 0, shape)
    return seen.transpose([slowest_first.index(dimension) for dimension in range(rank)])


def _kept(size: int, edge: int) -> list[int]:
    whole = size <= 2 * edge + 1
    return [*range(size)] if whole else [*range(edge + 1), *range(size - edge, size)]


def _fetched(buffer: Buffer, start: int, count: int) -> numpy.ndarray[Any, Any]:
    """So many elements of its memory on the device (`PJRT_Buffer_CopyRawToHost`)."""
    import numpy

    host = numpy.empty(count * buffer.dtype.itemsize, numpy.uint8)
    client = buffer.client
    with client._in_call():
        address = buffer._ask(
            "PJRT_Buffer_CopyRawToHost",
            dst=host.__array_interface__["data"][0],
            offset=start * buffer.dtype.itemsize,
            transfer_size=host.nbytes,
        )
        event = Event._of(client, address)
        try:
            event.wait()
        except BaseException:  # interrupted: the plugin may still write into the array
            callbacks.keep(client.api.address, event._address, host)
            raise
    return host.view(buffer.dtype)


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(texts)


def _cut(text: str) -> str:
    """What a cell shows of a text: its first lines, and not all of a long one."""
    lines = text.splitlines()
    rest = [f"... and {len(lines) - _LINES} more"] if len(lines) > _LINES else []
    return "\n".join(
        [line if len(line) <= _LONG else f"{line[:_LONG]}..." for line in lines[:_LINES]] + rest
    )


def _is_closed(topology: Topology) -> bool:
    return topology.client is not None and topology.client.closed


def _signature(program: Compiled) -> dict[str, str]:
    """What it takes and gives, where the plugin tells."""
    with contextlib.suppress(UnsupportedByPluginError):
        signature = program.signature
        return {
            "takes": _lines(map(str, signature.parameters)),
            "gives": _lines(map(str, signature.outputs)),
        }
    return {}


def _table(shown: object, closed: bool, rows: Any) -> str:
    """Rows by name, the first as the heading; the repr where the object cannot answer."""
    with contextlib.suppress(PjrtHubError):
        if not closed:
            return f"<table>{''.join(_rows(rows()))}</table>"
    return f"<code>{_escaped(repr(shown))}</code>"


def _rows(rows: dict[str, Any]) -> Iterator[str]:
    style = 'style="text-align:left;vertical-align:top;white-space:pre-wrap"'
    for name, value in rows.items():
        shown = _escaped(_cut(str(value)))
        yield f"<tr><th {style}>{_escaped(name)}</th><td {style}>{shown}</td></tr>"


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)
