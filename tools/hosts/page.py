"""Writes into docs/authoring.md which functions hosts cannot do without, from their profiles.

python tools/hosts/page.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pjrt_hub.kit.conformance.host import Host, Without, newest
from pjrt_hub.running.capi import table

PAGE = Path(__file__).parents[2] / "docs" / "authoring.md"
BEGIN = "<!-- made by tools/hosts/page.py -->\n"
END = "<!-- and no further -->\n"
#: The steps of pjrt-hub without which nothing runs.
NEEDED = frozenset({"load", "client", "put", "compile", "call", "get", "result"})


def page(text: str) -> str:
    """The text of docs/authoring.md with the part that is made from the profiles."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return "".join([head, BEGIN, "\n", *(f"{line}\n" for line in _lines()), "\n", END, tail])


def _lines() -> Iterator[str]:
    yield "### What hosts need"
    yield ""
    by_name = {host.name: host for host in newest()}
    jax, ours = by_name["JAX"], by_name["pjrt-hub"]
    null, unimplemented = _ends(jax.null), _ends(jax.unimplemented)
    yield (
        f"{jax.title} calls {len(null)} functions without checking for NULL, and ends the process "
        f"if one is; {len(unimplemented)} of them also if they answer UNIMPLEMENTED. "
        f"JAX was {jax.learned}"
        + (", pjrt-hub too." if jax.learned == ours.learned else f", pjrt-hub {ours.learned}.")
    )
    yield ""
    yield f"| of | NULL ends {jax.name} | UNIMPLEMENTED ends {jax.name} | pjrt-hub needs |"
    yield "|---|---|---|---|"
    needed = [name for name, found in _in_order(ours.null) if NEEDED & set(found.fails)]
    columns = [_grouped(names) for names in (null, unimplemented, needed)]
    for noun in dict.fromkeys(_noun(name) for name in table.FUNCTIONS):
        if any(noun in column for column in columns):
            cells = (", ".join(column.get(noun, ())) for column in columns)
            yield f"| `PJRT_{noun}` | {' | '.join(cells)} |"
    yield ""
    yield from _others(jax)


def _others(jax: Host) -> Iterator[str]:
    """Yield the functions whose absence JAX survives with an exception."""
    fails = [name for name, found in _in_order(jax.unimplemented) if not found.aborts]
    yield "If one of these answers UNIMPLEMENTED, JAX raises an exception where it needs it:"
    yield ", ".join(f"`{name}`" for name in fails) + "."


def _ends(lacks: Mapping[str, Without]) -> list[str]:
    return [name for name, found in _in_order(lacks) if found.aborts]


def _in_order(lacks: Mapping[str, Without]) -> Iterator[tuple[str, Without]]:
    return ((name, lacks[name]) for name in table.FUNCTIONS if name in lacks)


def _noun(name: str) -> str:
    found = re.fullmatch(r"PJRT_(\w+?)_\w+", name)
    return found[1] if found else name.removeprefix("PJRT_")


def _grouped(names: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        noun = _noun(name)
        groups.setdefault(noun, []).append(name.removeprefix(f"PJRT_{noun}_"))
    return groups


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
