"""Create options: those that nobody knows, and values of another type (area client)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pjrt_hub.door import process
from pjrt_hub.errors import InvalidArgumentError, PjrtError, PjrtHubError
from pjrt_hub.finding.contract.option import UNKNOWN
from pjrt_hub.kit.conformance import create_options, separate_process
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Skipped, expect, expect_error
from pjrt_hub.kit.conformance.refusal import note_code
from pjrt_hub.kit.conformance.separate_process import Tell, attempt
from pjrt_hub.kit.conformance.subject import Subject

_UNKNOWN = {"no_such_option_of_pjrt": 1}
#: Plugins made of XLA have these names; their other names lie near them in the library.
_NAMES = ("cpu_device_count", "memory_fraction", "max_inflight_computations")
_VALUES: dict[str, Any] = {
    "string": "wrong",
    "int64": 1,
    "int64_list": [1],
    "float": 0.5,
    "bool": True,
}
_TYPES = {str: "string", bool: "bool", int: "int64", float: "float"}
#: A plugin may take the second type for the first without losing anything.
_LENIENT = {("float", "int64"), ("int64", "bool"), ("bool", "int64")}
_NAME = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")
_SECONDS = 20.0  # Each attempt has so long.
_TO_FIND = 30.0  # The search for unnamed options has so long.
_MOST_DEATHS = 8
_ACCEPTED, _REFUSED = "accepted", "refused: "

Attempt = tuple[str, str]  # An attempt is an option and the type of the value that it is given.


@check(area="client", needs="plugin", number=25)
def unknown_option(subject: Subject) -> None:
    """Create a client with an unknown option -> an error, usually INVALID_ARGUMENT."""
    what = "an unknown create option"
    error = expect_error(lambda: _create(subject, _UNKNOWN), what=what)
    if error.code != InvalidArgumentError.code:
        _require_device(subject, error)
        note_code(subject, error, what, InvalidArgumentError.code)


@check(area="client", needs="plugin", number=26, seconds=120)
def mistyped_option(subject: Subject) -> None:
    """Create clients with options of wrong types, known or found -> errors, and no crash."""
    known = dict(_known_options(subject))
    if not known:
        raise Skipped("no option of this plugin is known; give one with --option")
    attempts = [(name, each) for name, right in known.items() for each in _VALUES if each != right]
    try:
        answers = separate_process.run(subject, try_options, attempts, seconds=80)
    except separate_process.Died as exc:
        raise Skipped(f"the process {exc}") from exc
    wrong = []
    accepted: dict[str, list[str]] = {name: [] for name in known}
    for (name, given), answer in zip(attempts, answers, strict=False):
        if answer == _ACCEPTED:
            accepted[name].append(given)
        elif not answer.startswith(_REFUSED):
            wrong.append(f"{name} = {_VALUES[given]!r}: the process {answer}")
    for name, types in accepted.items():
        rights = [known[name]] if known[name] else types
        if types and not any(all(_stands_in(each, right) for each in types) for right in rights):
            refusable = [each for each in types if not _stands_in(each, known[name])]
            values = ", ".join(repr(_VALUES[each]) for each in refusable)
            wrong.append(f"{name} accepts {values}")
    expect(not wrong, f"expected errors, found {'; '.join(wrong)}")
    if set(answers) == {f"{_REFUSED}{text}" for text in _refusals(subject)}:
        raise Skipped("no device: the plugin refuses a client whatever its options")


def try_options(subject: Subject, attempts: list[Attempt]) -> list[str]:
    """Create clients with options, each of which may end a process."""
    answers = list[str]()
    for _ in range(_MOST_DEATHS):
        rest = attempts[len(answers) :]
        if not rest:
            break
        said, ended = attempt(lambda tell, rest=rest: _try(subject, rest, tell), _SECONDS)  # type: ignore[misc]
        answers += [json.loads(line) for line in said]
        if len(said) < len(rest):
            answers.append(ended)
    return answers


def _try(subject: Subject, attempts: list[Attempt], tell: Tell) -> None:
    for name, given in attempts:
        try:
            subject.destroy(_create(subject, {name: _VALUES[given]}))
        except PjrtError as exc:
            tell(json.dumps(f"{_REFUSED}{exc.message}"))
        else:
            tell(json.dumps(_ACCEPTED))


def _stands_in(given: str, right: str) -> bool:
    return given == right or (right, given) in _LENIENT


def _known_options(subject: Subject) -> Iterator[Attempt]:
    """Options by name: those in the plugin's words, those found, its manifest's, those given.

    The type is empty where it is not known.
    """
    named = []
    for text in _refusals(subject, _UNKNOWN):
        named += [name for name in _NAME.findall(text) if name not in _UNKNOWN]
    yield from ((name, "") for name in named)
    if not subject.known_options:
        yield from _found_options(subject, [*_NAMES, *named])
    yield from subject.known_options.items()
    for name, value in subject.options.items():
        yield name, _TYPES.get(type(value), "int64_list")


def _refusals(subject: Subject, options: dict[str, Any] | None = None) -> list[str]:
    """Say why it makes no client of these options; empty where it makes one."""
    try:
        subject.destroy(_create(subject, options or {}))
    except PjrtError as exc:
        return [exc.message]
    return []


def _require_device(subject: Subject, error: PjrtError) -> None:
    """Leave a check whose refusal has nothing to do with options."""
    if error.message in _refusals(subject):
        raise Skipped(f"no device: {error.message}")


def _create(subject: Subject, options: dict[str, Any]) -> int:
    given = {**subject.options, **options}
    return subject.own("Client", subject.call("PJRT_Client_Create", create_options=given))


def _found_options(subject: Subject, names: list[str]) -> Iterator[Attempt]:
    """Options that the library names, and answers otherwise to than to a name that nobody has."""
    subject.require("PJRT_Client_Create", "PJRT_Client_Destroy")  # The search calls both functions.
    asked = create_options.candidates(subject.path, names)
    env = dict(process.environment())
    with suppress(PjrtHubError):  # The plugin may make no client at all, or take too long.
        for each in create_options.find(subject.path, asked, env, seconds=_TO_FIND)[1]:
            yield each.name, "" if each.type == UNKNOWN else each.type
