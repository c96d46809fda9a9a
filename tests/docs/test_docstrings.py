"""Every public name has a docstring, and it describes every argument."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pjrt_hub

griffe = pytest.importorskip("griffe")

ROOT = Path(__file__).parents[2]
griffe.stdlib_decorators["pjrt_hub.base.fork.cached_property"] = {"cached", "property"}
#: The folder of the installed package, since a checkout may have another version.
SOURCE = Path(pjrt_hub.__file__).parents[1]
PACKAGE = griffe.load(
    "pjrt_hub", search_paths=[SOURCE], docstring_parser="google", allow_inspection=False
)
#: The names that the pages of the reference show.
SHOWN = [
    name
    for page in sorted((ROOT / "docs" / "api").glob("*.md"))
    for name in re.findall(r"^::: pjrt_hub\.(\S+)", page.read_text("utf-8"), re.MULTILINE)
]
#: The first word of a sentence that is a noun phrase or has a verb in the third person.
NO_VERB = re.compile(
    r"(An?|The|Its?|One|All|Each|Whether|How|What|Where|Which|Whom?|Whose|\d+|\w*[^s\W]s)\b"
)
#: A method that implements an interface may refer to the interface's docstring.
ELSEWHERE = re.compile(r"See `[\w.]+`\.")


def target(thing: griffe.Object | griffe.Alias) -> griffe.Object:
    return thing.final_target if isinstance(thing, griffe.Alias) else thing


def public(thing: griffe.Object, name: str) -> Iterator[tuple[str, griffe.Object]]:
    """Yield an object with its path, then its public members."""
    yield name, thing
    for key, member in thing.members.items():
        if not key.startswith("_") and not member.is_alias:
            yield from public(member, f"{name}.{key}")


def everything() -> dict[str, griffe.Object]:
    return {path: thing for name in SHOWN for path, thing in public(target(PACKAGE[name]), name)}


def summary(thing: griffe.Object) -> str:
    """The first sentence, on one line."""
    words = " ".join(thing.docstring.value.partition("\n\n")[0].split())
    return re.split(r"(?<=\.) ", words)[0]


THINGS = everything()
FUNCTIONS = {
    name: thing
    for name, thing in THINGS.items()
    if thing.is_function and any(each.name not in ("self", "cls") for each in thing.parameters)
}


def test_every_public_thing_has_a_docstring():
    assert {"client", "Client.buffer_from_host", "Buffer.copy_to_device"} <= FUNCTIONS.keys()
    assert len(FUNCTIONS) > 100
    silent = {name: thing for name, thing in THINGS.items() if not thing.docstring}
    told = {"property", "dataclass"}
    assert [n for n, thing in silent.items() if not thing.is_attribute or thing.labels & told] == []


SUMMARIES = {name: summary(thing) for name, thing in THINGS.items() if thing.docstring}


def test_the_first_sentence_of_a_function_begins_with_a_verb_and_none_is_a_name_alone():
    done = {name: words for name, words in SUMMARIES.items() if THINGS[name].is_function}
    assert len(done) > 200
    assert {name: words for name, words in done.items() if NO_VERB.match(words)} == {}
    bare = re.compile(r"(An? )?`?\w+`?\.")
    told = {name: words for name, words in SUMMARIES.items() if not THINGS[name].is_module}
    assert {name: words for name, words in told.items() if bare.fullmatch(words)} == {}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_argument_has_a_word(name):
    function = FUNCTIONS[name]
    if ELSEWHERE.fullmatch(function.docstring.value):
        return
    sections = {section.kind.value: section.value for section in function.docstring.parsed}
    told = {each.name.lstrip("*") for each in sections.get("parameters", ())}
    taken = {each.name.lstrip("*") for each in function.parameters} - {"self", "cls"}
    assert told == taken


#: Why a class needs no public name -> the classes.
UNNAMED = {
    "what a plugin is opened with": {"CompileCache", "Policy"},
    "a context that is entered at once": {"InCall", "NativeLog"},
    "a Client, as what stands below it sees it": {"ClientHandle", "DeviceClient"},
    "a tuple": {"Listing"},
    "of a lower layer, used where it is returned": {"Api", "Artifact", "Cache", "Tree"},
    "what element_type names": {"ElementType"},
}


def classes_in(annotation: object) -> Iterator[str]:
    """Yield the paths of pjrt_hub's classes that an annotation names."""
    if isinstance(annotation, griffe.Expr):
        for each in annotation.iterate(flat=True):
            if isinstance(each, griffe.ExprName) and each.canonical_path.startswith("pjrt_hub."):
                thing = target(PACKAGE[each.canonical_path.partition(".")[2]])
                if thing.is_class:
                    yield thing.path


def test_what_a_public_method_returns_has_a_public_name():
    """Users need the names for annotations; every name in an extension's module is public."""
    named = {target(PACKAGE[name]).path for name in pjrt_hub.__all__ if name != "__version__"}
    missing = set()
    for name in sorted(named):
        thing = PACKAGE[name.partition(".")[2]]
        members = thing.all_members.items() if thing.is_class else [("", thing)]
        for key, member in members:
            found = target(member)
            if key.startswith("_") or not (found.is_function or found.is_attribute):
                continue
            returns = found.returns if found.is_function else found.annotation
            missing |= {
                f"{each} of {name}.{key}"
                for each in classes_in(returns)
                if each not in named and not each.startswith("pjrt_hub.running.extensions.")
                if each.rpartition(".")[2] not in set().union(*UNNAMED.values())
            }
    assert missing == set()
