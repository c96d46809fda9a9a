"""Writes `docs/coverage.md`: which functions of the PJRT C API pjrt-hub calls, and from where.

Reads source text only: a function counts as called where its name stands as a string or an
attribute in Python, or as a word in C. `--check` says whether the page is current.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import capi
import uncalled

ROOT = capi.ROOT
PAGE = ROOT / "docs" / "coverage.md"
RUNNING = ROOT / "pjrt_hub" / "running"
NOT_YET = "not reached yet"

Callers = dict[str, list[str]]


def callers() -> Callers:
    """C function name -> the places that name it, as `module:qualified name`."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(RUNNING.rglob("*.py")):
        for name, place in _named_in_python(ast.parse(path.read_text()), ()):
            found[name].add(f"{_module(path)}:{place}")
    for path in sorted((RUNNING / "capi" / "native").glob("*.c")):
        for name, place in _named_in_c(path.read_text()):
            found[name].add(f"capi/native/{path.name}:{place}")
    return {name: sorted(places) for name, places in found.items()}


def _module(path: Path) -> str:
    return ".".join(path.relative_to(RUNNING).with_suffix("").parts)


def _named_in_python(node: ast.AST, scope: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield names used in functions; a module's own lists of names call nothing."""
    place = ".".join(scope)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        scope = (*scope, node.name)
    elif place and isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value, place
    elif place and isinstance(node, ast.Attribute):
        yield node.attr, place
    for child in ast.iter_child_nodes(node):
        yield from _named_in_python(child, scope)


def _named_in_c(text: str) -> Iterator[tuple[str, str]]:
    """Words of C outside comments and strings, each with the function whose body it is in."""
    text = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', "", text, flags=re.DOTALL)
    place = "file"
    for line in text.splitlines():
        if opening := re.match(r"[A-Za-z_].*?\b(\w+)\s*\(", line):
            place = opening[1]
        yield from ((word, place) for word in re.findall(r"\w+", line))


def page(api: capi.Api, places: Callers) -> str:
    """Return the whole page."""
    return "\n".join([*_head(api, places), *_functions(api, places), *_extensions(api, places), ""])


def _head(api: capi.Api, places: Callers) -> Iterator[str]:
    slots = [slot.function for slot in api.slots]
    nodes = [name for _, names in _nodes(api) for name in names]
    yield "# Coverage of the PJRT C API"
    yield ""
    yield (
        f"Of the {len(slots)} functions of PJRT API 0.{api.constants['PJRT_API_MINOR']}, "
        f"{_count(slots, places)} are called; of the {len(nodes)} functions of its extensions, "
        f"{_count(nodes, places)}."
    )
    yield "Written by `python tools/coverage.py`; do not edit."
    yield ""


def _functions(api: capi.Api, places: Callers) -> Iterator[str]:
    yield "| since | function, in the table's order | called from |"
    yield "|--:|---|---|"
    for slot in api.slots:
        since = f"0.{slot.since}" if slot.since else ""
        yield f"| {since} | `{slot.function}` | {_from(slot.function, places)} |"


def _extensions(api: capi.Api, places: Callers) -> Iterator[str]:
    yield ""
    yield "## Extensions"
    for struct, names in _nodes(api):
        key, number = struct.extension or ("", 0)
        yield ""
        yield f"### {key} (type {number})"
        yield ""
        called = [name for name in names if name in places]
        yield from (f"- `{name}`: {_from(name, places)}" for name in called)
        if len(called) < len(names):
            yield from _missing([name for name in names if name not in places], key)
        elif not names:
            yield "- it has no functions, only data"


def _missing(names: list[str], extension: str) -> Iterator[str]:
    """Return a line for each reason, with the functions that have it."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name in names:
        by_reason[uncalled.reason(name, extension) or NOT_YET].append(f"`{name}`")
    yield from (f"- {reason}: {', '.join(each)}" for reason, each in by_reason.items())


def _nodes(api: capi.Api) -> list[tuple[capi.Struct, list[str]]]:
    """Return the extensions by type number, each with its functions."""
    nodes = [struct for struct in api.structs.values() if struct.extension]
    nodes.sort(key=lambda struct: struct.extension[1] if struct.extension else 0)
    return [(node, [m.function for m in node.members if m.function]) for node in nodes]


def _count(names: list[str], places: Callers) -> int:
    return sum(name in places for name in names)


def _from(name: str, places: Callers) -> str:
    return ", ".join(f"`{place}`" for place in places.get(name, ())) or (
        f"not called: {uncalled.reason(name)}" if uncalled.reason(name) else NOT_YET
    )


def main() -> int:
    """Write the page, or with `--check` compares it."""
    text = page(capi.read(), callers())
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text)
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    sys.stderr.write("docs/coverage.md is not current\n\nhint: python tools/coverage.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
