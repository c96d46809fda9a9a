"""The docstrings of public names: there, and with a word for every argument."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pjrt_hub

griffe = pytest.importorskip("griffe")

ROOT = Path(__file__).parents[2]
#: The sources as they are installed: a checkout may be another version's.
SOURCE = Path(pjrt_hub.__file__).parents[1]
PACKAGE = griffe.load(
    "pjrt_hub", search_paths=[SOURCE], docstring_parser="google", allow_inspection=False
)
#: What the pages of the reference show.
SHOWN = [
    name
    for page in sorted((ROOT / "docs" / "api").glob("*.md"))
    for name in re.findall(r"^::: pjrt_hub\.(\S+)", page.read_text("utf-8"), re.MULTILINE)
]
#: A method of an interface is told where the interface is.
ELSEWHERE = re.compile(r"See `[\w.]+`\.")


def target(thing: griffe.Object | griffe.Alias) -> griffe.Object:
    return thing.final_target if isinstance(thing, griffe.Alias) else thing


def public(thing: griffe.Object, name: str) -> Iterator[tuple[str, griffe.Object]]:
    """Yields an object with its path, then what is public in it."""
    yield name, thing
    for key, member in thing.members.items():
        if not key.startswith("_") and not member.is_alias:
            yield from public(member, f"{name}.{key}")


def everything() -> dict[str, griffe.Object]:
    return {path: thing for name in SHOWN for path, thing in public(target(PACKAGE[name]), name)}


THINGS = everything()
FUNCTIONS = {
    name: thing
    for name, thing in THINGS.items()
    if thing.is_function and any(each.name not in ("self", "cls") for each in thing.parameters)
}


def test_the_walk_finds_the_public_names():
    assert {"client", "Client.buffer_from_host", "Buffer.copy_to_device"} <= FUNCTIONS.keys()
    assert len(FUNCTIONS) > 100


def test_every_public_thing_has_a_docstring():
    told = ("property", "dataclass")
    silent = [
        name
        for name, thing in THINGS.items()
        if not thing.docstring and (not thing.is_attribute or thing.labels & {*told})
    ]
    assert silent == []


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_argument_has_a_word(name):
    function = FUNCTIONS[name]
    if ELSEWHERE.fullmatch(function.docstring.value):
        return
    sections = {section.kind.value: section.value for section in function.docstring.parsed}
    told = {each.name.lstrip("*") for each in sections.get("parameters", ())}
    taken = {each.name.lstrip("*") for each in function.parameters} - {"self", "cls"}
    assert told == taken
