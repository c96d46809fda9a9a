"""Which create options a library takes, found by sending values of each type.

Owns the attempts, in a child process that is started again if an attempt ends it, and what follows
from the answers. No client is kept: each one that is created is destroyed at once.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pjrt_hub import errors
from pjrt_hub.base import log
from pjrt_hub.finding.contract import headers
from pjrt_hub.finding.contract.option import UNKNOWN, Option
from pjrt_hub.running.sandbox import watch
from pjrt_hub.running.sandbox.child import Child, crash

if TYPE_CHECKING:
    from pjrt_hub.running.capi.library import Api

#: An answer holds the client's "platform", or the "error".
Answer = dict[str, str]
#: The answers to one name by the type of its value; None stands for a process that died.
_Answers = dict[str, Answer | None]
_Ask = Callable[..., list[Answer | None]]

#: Values of each type that no plugin acts upon. The first is wrong for most options; the others are
#: for options that check the value, too.
_VALUES: dict[str, tuple[Any, ...]] = {
    "int64_list": ([1], [0], []),
    "string": ("x", "", "0", "auto", "default"),
    "int64": (1, 0, 2, 4, 8),
    "float": (0.5, 1.0, 0.0),
    "bool": (True, False),
}
#: The words for the types in the errors of plugins.
_WORDS = {
    "int64_list": r"\b(k?int(64)?_?lists?|(lists?|arrays?|vectors?)\b( of \w+)?)",
    "string": r"\b(k?strings?|str|texts?)\b",
    "int64": r"\b(k?int(64)?(_t)?|integers?)\b",
    "float": r"\b(k?floats?(32)?|doubles?)\b",
    "bool": r"\b(k?bools?|booleans?)\b",
}
#: No plugin has an option of this name, so it gets the answer that every unknown name gets.
_NOBODY = "zq_pjrt_hub_nobody"
#: XLA's plugins name the type that they expected by its index in PJRT_NamedValue_Type.
_EXPECTED = re.compile(r"expected type index is (\d)")
_INDEXED = ("string", "int64", "int64_list", "float", "bool")

_IDENTIFIER = re.compile(rb"(?<=\0)[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?=\0)")
_NEAR = 4096  # Other names are looked for within this many bytes of a known one.
_MOST_CANDIDATES = 400
_MOST_DEATHS = 200
_SECONDS = 120.0
_DIED = "died"
_SMALL = 1 << 20  # Up to this size of a library, every identifier in its data is a candidate.
_HINT = "`pjrt-hub check` says more of it; `--no-options` does not ask for options"


@dataclass(frozen=True, slots=True)
class Contact:
    """What a plugin answered when a client was created without any option."""

    platform: str  # Empty if the plugin told none.
    refusal: str  # Why the plugin makes no client here, or empty.


def candidates(path: Path, known: Sequence[str]) -> tuple[str, ...]:
    """List names that may be options: the known ones, and identifiers near them in the file."""
    import mmap

    near: dict[str, None] = {}
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if len(data) <= _SMALL:
            # The constants lie apart from symbols' names and debug information.
            constants = [each for each in headers.sections(path) if each.role == "data"]
            places = [(max(0, each.offset - 1), each.offset + each.nbytes) for each in constants]
            places = places or [(0, len(data))]
        else:
            anchors = [name.encode() for name in known if "_" in name] + [b"PJRT_Client_Create"]
            named = re.finditer(b"\0(?:" + b"|".join(map(re.escape, anchors)) + b")\0", data)
            places = [(max(0, each.start() - _NEAR), each.end() + _NEAR) for each in named]
        for begin, end in places:
            for each in _IDENTIFIER.finditer(data[begin:end]):
                near[each[0].decode()] = None
    own = list(near)[: max(0, _MOST_CANDIDATES - len(known))]
    return tuple(dict.fromkeys([*own, *known]))


def find(
    path: Path,
    names: Sequence[str],
    env: Mapping[str, str],
    *,
    identity: str = "",
    seconds: float = _SECONDS,
) -> tuple[Contact, tuple[Option, ...]]:
    """Find out which of these names are create options of a library, and of which types.

    A name is an option if the plugin answers it unlike a name that nobody has: with a client, with
    another error, or by ending its process. Its type is the one that the plugin asks for, or the
    only one with which the plugin answers as without any option; otherwise it is `UNKNOWN`. A
    plugin that takes any name with any value shows no options.

    Only the file with this `identity` is asked, by default the one at `path`; the `seconds` are for
    all names together. PluginCrashedError: the plugin dies without any option, or of too many of
    them.
    """
    deadline = time.monotonic() + seconds
    ask = functools.partial(_ask, path, identity, env, deadline)
    [told] = ask([{}], most_deaths=1)
    assert told is not None
    unasked = _normalize(told, _NOBODY)
    strangers = _of_each_type(ask, _NOBODY)
    unknown = {kind: _normalize(answer, _NOBODY) for kind, answer in strangers.items()}
    # If a plugin takes unknown names, two wrong types show which names it knows. If it refuses
    # unknown names, it may refuse wrong types in the same words, so every type is tried.
    kinds = _VALUES.keys() if set(unknown.values()) != {unasked} else ("int64_list", "string")
    answers: dict[str, dict[str, Answer | None]] = {}
    # If unknown names end the process, each attempt needs a new one, and time may run out.
    if _DIED in unknown.values():
        for name in names:
            if time.monotonic() > deadline - seconds / 4:
                log.step("probe", "%s: no time for %d names", path, len(names) - len(answers))
                break
            answers[name] = _of_each_type(ask, name)
    else:
        answers = _of_types(ask, names, kinds)
    suspects = [
        name
        for name, given in sorted(answers.items())
        if any(_normalize(answer, name) != unknown[kind] for kind, answer in given.items())
    ]
    options = []
    for name in suspects:
        given = _of_each_type(ask, name)
        if not _is_stranger({_normalize(each, name) for each in given.values()}, unknown):
            options.append(Option(name, _type(ask, name, given, unasked)))
    return Contact(told.get("platform", ""), told.get("error", "")), tuple(options)


def _of_types(ask: _Ask, names: Sequence[str], kinds: Iterable[str]) -> dict[str, _Answers]:
    """Ask for each name with the first value of each type."""
    attempts = [(name, kind) for name in names for kind in kinds]
    given: dict[str, _Answers] = {name: {} for name in names}
    answers = ask([{name: _VALUES[kind][0]} for name, kind in attempts])
    for (name, kind), answer in zip(attempts, answers, strict=True):
        given[name][kind] = answer
    return given


def _of_each_type(ask: _Ask, name: str) -> _Answers:
    return _of_types(ask, [name], _VALUES)[name]


def _is_stranger(said: Set[str], unknown: Mapping[str, str]) -> bool:
    """Say whether every answer is the refusal of unknown names, with a suggestion after it."""
    refusals = {each.rstrip(".!") for each in unknown.values()} - {"", _DIED}
    return len(said) == 1 and all(each.startswith(tuple(refusals)) for each in said)


def _type(ask: _Ask, name: str, answers: _Answers, unasked: str) -> str:
    """Return the type that a plugin asks for, or the only one that it takes, else `UNKNOWN`."""
    if named := next(filter(None, map(_type_in_error, answers.values())), ""):
        return named
    said = {kind: _normalize(answer, name) for kind, answer in answers.items()}
    taken = [kind for kind in said if said[kind] == unasked]
    if not taken:  # The option may check the value, too.
        others = [(kind, value) for kind, values in _VALUES.items() for value in values[1:]]
        again = ask([{name: value} for _, value in others])
        pairs = zip(others, again, strict=True)
        taken = [kind for (kind, _), each in pairs if _normalize(each, name) == unasked]
    if not taken:  # The refusals of the other types may name the right type.
        words = {kind: _words(answer, name) for kind, answer in answers.items()}
        taken = [kind for kind in words if all(kind in words[of] for of in words if of != kind)]
    return taken[0] if len(set(taken)) == 1 else UNKNOWN


def _words(answer: Answer | None, name: str) -> set[str]:
    """Find the types that an error names; a list of integers does not count as an integer."""
    text = (answer or {}).get("error", "").replace(name, "NAME")
    rest = re.sub(_WORDS["int64_list"], "", text, flags=re.IGNORECASE)
    named = {kind for kind, word in _WORDS.items() if re.search(word, rest, re.IGNORECASE)}
    return named if rest == text else {*named, "int64_list"}


def _type_in_error(answer: Answer | None) -> str:
    found = _EXPECTED.search((answer or {}).get("error", ""))
    return _INDEXED[int(found[1])] if found and int(found[1]) < len(_INDEXED) else ""


def _normalize(answer: Answer | None, name: str) -> str:
    """Return an answer without the name and numbers, which differ between attempts."""
    if answer is None:
        return _DIED
    return re.sub(r"0x[0-9a-f]+|\d+", "0", answer.get("error", "").replace(name, "NAME"))


def _ask(
    path: Path,
    identity: str,
    env: Mapping[str, str],
    deadline: float,
    attempts: Sequence[Mapping[str, Any]],
    most_deaths: int = _MOST_DEATHS,
) -> list[Answer | None]:
    """Make a client with each of these options; an answer is None if the process ended."""
    answers: list[Answer | None] = []
    for death in range(1, most_deaths + 1):
        left = attempts[len(answers) :]
        status = 1
        with Child(__name__, [str(path), identity, json.dumps(left)], env=env) as child:
            for line in child.answers(deadline):
                if "refusal" in line:
                    raise errors.PluginLoadError(**line["refusal"], path=path)
                if "status" in line:
                    status = line["status"]
                else:
                    answers.append(line)
            if not child.silent:
                raise errors.PluginTimeoutError(
                    f"{path} did not say in time whether it takes the options {left[0]} and others",
                    seconds=_SECONDS,
                    hint=_HINT,
                )
        if len(answers) < len(attempts):
            if death == most_deaths:
                break
            answers.append(None)
        if len(answers) == len(attempts):
            return answers
    last = attempts[len(answers)]
    what = f"the options {dict(last)}" if last else "no option"
    doing = f" as it made a client with {what}"
    raise crash(path, doing, status, child.words.text(), _HINT)


def work(tell: watch.Tell, path: str, identity: str, attempts: str) -> int:
    """Make a client with each of these options, in the child process; tell the answers."""
    from pjrt_hub.running.capi import library

    try:
        api = library.load(path, identity=identity)
    except errors.PluginLoadError as exc:
        tell(refusal={"message": exc.message, "hint": exc.hint})
        return 1
    for options in json.loads(attempts):
        answer: Answer = {}
        try:
            client = api.call("PJRT_Client_Create", create_options=options)
            answer["platform"] = api.call("PJRT_Client_PlatformName", client=client).decode()
            api.call("PJRT_Client_Destroy", client=client)
        except errors.PjrtHubError as exc:
            answer["error"] = exc.message
            if not options:
                answer["platform"] = _platform_of_topology(api)
        tell(**answer)
    return 0


def _platform_of_topology(api: Api) -> str:
    """Return the platform of the topology that the plugin describes by default, or empty."""
    describe, name = "PJRT_TopologyDescription_Create", "PJRT_TopologyDescription_PlatformName"
    with contextlib.suppress(errors.PjrtHubError):
        topology = api.call(describe, topology_name="", create_options={})
        return str(api.call(name, topology=topology).decode())
    return ""
