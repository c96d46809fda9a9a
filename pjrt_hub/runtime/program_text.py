"""Program text (layer 2): what of StableHLO text would end the process inside XLA's compiler.

Owns reading calls, sizes and layouts by pattern; must not parse MLIR, nor judge what compilers do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress

#: A type with so many characters of dimensions; fewer multiply to less than the bound below.
_LONG = re.compile(rb"tensor<\s*[?\dx\s]{19}")
_DIMENSIONS = re.compile(rb"tensor<\s*((?:[?\d]+\s*x\s*)+)")
#: Of elements of 16 bytes, half of what int64 counts: beyond that XLA's compiler ends the process.
_MAX_ELEMENTS = 1 << 58
#: A bounded type and, in its attributes, an order of its dimensions; of an argument it has a name.
_BOUNDED_LAYOUT = re.compile(
    rb"(%\w+\s*:\s*)?tensor<[^<>]*bounds<[^<>]*>\s*>\s*"
    rb'\{(?:[^{}"]|"[^"]*")*?layout_mode\s*=\s*"\{([\d,\s]+)\}"'
)
_NAME = rb'@(?:"(?:[^"\\]|\\.)*"|[\w.$-]+)'
#: What tells who calls whom, and comments and strings, which may hold anything.
_CALLS = re.compile(
    rb'//[^\n]*|(?P<generic>"func\.func")|\bsym_name\s*=\s*"(?P<sym_name>[^"\\]*)"'
    rb'|"(?:[^"\\]|\\.)*"'
    rb"|\bfunc\.func\s+(?P<visibility>private\s+)?(?:\w+\s+)?(?P<function>" + _NAME + rb")"
    rb"|\b(?:call\s+|callee\s*=\s*|decomposition\s*=\s*)(?P<callee>" + _NAME + rb")"
    rb"|\bcalled_computations\s*=\s*\[(?P<callees>[^\]]*)\]",
    re.DOTALL,
)
_MENTION = re.compile(_NAME)
_FUNCTION = re.compile(rb"func\.func\s+(?:\w+\s+){0,2}(" + _NAME + rb")")
_CALLING = (b"call", b"decomposition")
#: XLA's compiler goes into a call by recursion, which fills 8 MiB of stack after some 700 calls.
_MAX_DEPTH = 500


def hazard(text: bytes) -> str:
    """What the program is that would end the process; empty where nothing was found."""
    if huge := _too_large(text):
        return f"a program of tensor<{huge}...>, which is larger than any memory"
    if descent := _descent(text):
        return f"a program whose functions {descent}"
    if order := _bounded_in_order(text):
        return (
            f"a program with dynamic dimensions in the layout_mode {order}: "
            "XLA orders such dimensions row-major only"
        )
    return ""


def _too_large(text: bytes) -> str:
    """The dimensions of a type whose bytes overflow, zeros not counted: as XLA multiplies them."""
    if not _LONG.search(text):
        return ""
    for dimensions in set(_DIMENSIONS.findall(text)):
        sizes = re.findall(rb"\d{1,40}", dimensions)
        if math.prod(int(size) or 1 for size in sizes) > _MAX_ELEMENTS:
            return str(dimensions[:60].decode(errors="replace"))
    return ""


def _descent(text: bytes) -> str:
    """How functions that others can call lead to a circle of calls, or to a chain too deep."""
    if not any(word in text for word in _CALLING):
        return ""
    import graphlib

    mentions = _mentions(text)
    if mentions is not None:
        with suppress(graphlib.CycleError):
            if _depth(mentions) <= _MAX_DEPTH:
                return ""
    calls, roots = _calls(text)
    reached, left = dict[bytes, set[bytes]](), list(roots)
    while left:
        function = left.pop()
        if function not in reached:
            reached[function] = calls.get(function, set())
            left += reached[function]
    try:
        depth = _depth(reached)
    except graphlib.CycleError as exc:
        cycle = " -> ".join(name.decode(errors="replace") for name in reversed(exc.args[1]))
        return f"call themselves, which XLA cannot compile: {cycle}"
    if depth > _MAX_DEPTH:
        return f"call each other {depth} deep, for which XLA's stack is too small"
    return ""


def _depth(calls: Mapping[bytes, set[bytes]]) -> int:
    """How many functions the longest chain of calls has."""
    import graphlib

    depths: dict[bytes, int] = {}
    for function in graphlib.TopologicalSorter(calls).static_order():  # those that are called first
        called = (depths[each] for each in calls.get(function, ()))
        depths[function] = 1 + max(called, default=0)
    return max(depths.values(), default=0)


def _mentions(text: bytes) -> dict[bytes, set[bytes]] | None:
    """The names that each function mentions, all that it calls among them: fifty times faster.

    None where that is not known: in the generic form, and where a function does not begin a line,
    as one in a comment or a string.
    """
    functions = list(_FUNCTION.finditer(text))
    if len(functions) != text.count(b"func.func"):
        return None
    mentions: dict[bytes, set[bytes]] = {}
    ends = [each.start() for each in functions[1:]] + [len(text)]
    for function, end in zip(functions, ends, strict=True):
        if text[text.rfind(b"\n", 0, function.start()) + 1 : function.start()].strip():
            return None
        names = _MENTION.findall(text, function.end(), end)
        mentions.setdefault(_plain(function[1]), set()).update(map(_plain, set(names)))
    return mentions


def _calls(text: bytes) -> tuple[dict[bytes, set[bytes]], list[bytes]]:
    """The functions that each function calls, and those that are not private.

    In MLIR's generic form a function's name may come after its body. Where nested modules have
    functions of one name, nothing is known.
    """
    calls, roots = dict[bytes, set[bytes]](), list[bytes]()
    called, unnamed = set[bytes](), False
    for match in _CALLS.finditer(text):
        name = match["function"]
        if match["generic"]:
            called, unnamed = set(), True
        elif match["sym_name"] is not None and unnamed:
            name, unnamed = b"@" + match["sym_name"], False
        elif match["callee"]:
            called.add(_plain(match["callee"]))
        elif match["callees"]:
            called.update(map(_plain, re.findall(_NAME, match["callees"])))
        if match["function"]:
            called = set()
        if name:
            name = _plain(name)
            if name in calls:
                return {}, []
            calls[name] = called
            if not match["visibility"]:
                roots.append(name)
    return calls, roots


def _plain(name: bytes) -> bytes:
    return b"@" + name[2:-1] if name.startswith(b'@"') else name


def _bounded_in_order(text: bytes) -> str:
    if b"bounds<" not in text or b"layout_mode" not in text:
        return ""
    for argument, order in _BOUNDED_LAYOUT.findall(text):
        dimensions = [int(number) for number in order.split(b",") if number.strip()]
        if not argument and dimensions != sorted(dimensions, reverse=True):
            return f"{{{order.decode()}}}"
    return ""
