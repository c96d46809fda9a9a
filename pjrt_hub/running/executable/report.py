"""Reports: one page about a compiled program, for people.

Owns the words; asks only what an executable answers, and leaves out what a plugin does not tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pjrt_hub.base.listing import WIDTH, size_text
from pjrt_hub.running.array.shape_spec import order_text
from pjrt_hub.running.capi.status import answer_or_none
from pjrt_hub.running.executable.facts import ExecutableFacts
from pjrt_hub.running.extensions import layouts
from pjrt_hub.running.program.signature import Signature, Slot

_LABEL = 16
#: The entries of the cost analysis to show; the others are numbers for each operand.
_COSTS = ("flops", "transcendentals", "bytes accessed", "optimal_seconds")


def of(program: ExecutableFacts) -> str:
    """Write the page, a line for each fact, without a newline at the end."""
    signature = answer_or_none(lambda: program.signature)
    title = f"{program._title}{signature or ''}"
    lines = [title if len(title) <= WIDTH else program._title]
    for label, value in _facts(program):
        first, *more = value if isinstance(value, list) else [value]
        lines.append(f"  {label:<{_LABEL}}{first}")
        lines += [f"  {'':<{_LABEL}}{line}" for line in more]
    return "\n".join(lines)


def _facts(program: ExecutableFacts) -> Iterator[tuple[str, Any]]:
    devices = getattr(program, "devices", None)
    if devices is not None:
        yield "devices", ", ".join(map(str, devices)) or "any one, chosen at each execution"
    counts = answer_or_none(lambda: (program.num_replicas, program.num_partitions))
    if counts is not None:
        yield "split", "{} replica(s) x {} partition(s)".format(*counts)
    fingerprint = answer_or_none(lambda: program.fingerprint)
    if fingerprint:
        shown = (each if each.isprintable() else f"\\x{ord(each):02x}" for each in fingerprint)
        yield "fingerprint", "".join(shown)
    texts = answer_or_none(lambda: layouts.parameter_layouts(program)) or ()
    kinds = answer_or_none(lambda: program.parameter_memory_kinds) or ()
    signature = answer_or_none(lambda: program.signature) or Signature((), ())
    for index, parameter in enumerate(signature.parameters):
        name = f"{signature.names[index]}: " if signature.names and signature.names[index] else ""
        where = _layout(texts, index, parameter.order) + _kind(kinds, index)
        donated = ", donated" * (index in signature.donated)
        yield f"parameter {index}", f"{name}{parameter}{where}{donated}"
    texts = answer_or_none(lambda: layouts.output_layouts(program)) or ()
    kinds = answer_or_none(lambda: program.output_memory_kinds) or ()
    for index, output in enumerate(signature.outputs):
        where = _layout(texts, index, output.order) + _kind(kinds, index)
        yield f"output {index}", f"{output}{where}"
    costs = program.cost_analysis() or {}
    for name in _COSTS:
        if costs.get(name, -1) >= 0:
            yield name.replace("_", " "), f"{costs[name]:,.10g}"
    memory = program.memory_stats() or {}
    sizes = [
        f"{size_text(size, of_memory=True):>10}  {name.removesuffix('_in_bytes').replace('_', ' ')}"
        for name, size in memory.items()
        if size > 0
    ]
    if sizes:
        yield "memory", sizes
    options = answer_or_none(lambda: program.compile_options)
    if options is not None:
        changed = options.changed()
        changed |= changed.pop("flags", {})  # Each of XLA's flags gets its own line.
        told = [f"{name} = {_option(value)}" for name, value in changed.items()]
        yield "options", [x if len(x) <= 82 else f"{x[:79]}..." for x in told] or "defaults"


def _layout(texts: Sequence[object], index: int, order: tuple[int, ...] | None) -> str:
    """Return a layout as the compiler writes it, with tiles; "" for one plain dimension."""
    if order is None:
        return str(texts[index]) if index < len(texts) else ""
    plain = order_text(order)
    text = str(texts[index]) if index < len(texts) else plain
    return text if len(order) > 1 or text != plain else ""


def _kind(kinds: Sequence[str], index: int) -> str:
    return f" in {kinds[index]}" if index < len(kinds) else ""


def _option(value: Any) -> str:
    """Write an option's value: bytes as their number, shapes as types with their layout."""
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, tuple) and value and all(isinstance(each, Slot) for each in value):
        return ", ".join(f"{each}{_layout((), 0, each.order)}" for each in value)
    return repr(value)
