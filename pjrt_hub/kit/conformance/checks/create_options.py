"""Create options: those that nobody knows, and values of another type (area client)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pjrt_hub.errors import InvalidArgumentError, PjrtError
from pjrt_hub.kit.conformance import separate_process
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Skipped, Unsupported, expect, expect_error
from pjrt_hub.kit.conformance.refusal import note_code
from pjrt_hub.kit.conformance.separate_process import Tell, attempt
from pjrt_hub.kit.conformance.subject import Subject

_UNKNOWN = {"no_such_option_of_pjrt": 1}
#: An option that a platform's plugins have, and its type.
_OPTIONS = {
    "cpu": ("cpu_device_count", "int64"),
    "gpu": ("memory_fraction", "float"),
    "cuda": ("memory_fraction", "float"),
    "rocm": ("memory_fraction", "float"),
    "tpu": ("max_inflight_computations", "int64"),
}
#: A value of each type.
_VALUES: dict[str, Any] = {
    "string": "wrong",
    "int64": 1,
    "int64_list": [1],
    "float": 0.5,
    "bool": True,
}
_TYPES = {str: "string", bool: "bool", int: "int64", float: "float"}
#: What stands in for another type without a loss.
_LENIENT = {("float", "int64"), ("int64", "bool"), ("bool", "int64")}
_NAME = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")
_SECONDS = 20.0  # for each attempt
_MOST_DEATHS = 8
_ACCEPTED, _REFUSED = "accepted", "refused: "

Attempt = tuple[str, str]  # an option, and the type that it is given


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
    """Create clients with known options of wrong types -> an error each, and no crash."""
    known = dict(_known_options(subject))
    if not known:
        raise Skipped("no option of this plugin is known; give one with --option")
    attempts = [(name, each) for name, right in known.items() for each in _VALUES if each != right]
    try:
        answers = separate_process.run(subject, try_options, attempts, seconds=110)
    except separate_process.Died as exc:
        raise Skipped(f"the process {exc}") from exc
    wrong = []
    for (name, given), answer in zip(attempts, answers, strict=False):
        right = known[name]
        lenient = not right or (right, given) in _LENIENT
        if answer == _ACCEPTED and not lenient:
            wrong.append(f"{name} = {_VALUES[given]!r} is accepted")
        elif not answer.startswith((_ACCEPTED, _REFUSED)):
            wrong.append(f"{name} = {_VALUES[given]!r}: the process {answer}")
    expect(not wrong, f"expected errors, found {'; '.join(wrong)}")
    if set(answers) == {f"{_REFUSED}{text}" for text in _refusals(subject)}:
        raise Skipped("no device: the plugin refuses a client whatever its options")


def try_options(subject: Subject, attempts: list[Attempt]) -> list[str]:
    """Creates clients with options, each of which may end a process."""
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


def _known_options(subject: Subject) -> Iterator[Attempt]:
    """Options by name: those in the plugin's words, its manifest's, the platform's, those given.

    The type is empty where it is not known.
    """
    for text in _refusals(subject, _UNKNOWN):
        yield from ((name, "") for name in _NAME.findall(text) if name not in _UNKNOWN)
    yield from subject.known_options.items()
    if (platform := _platform(subject)) in _OPTIONS:
        yield _OPTIONS[platform]
    for name, value in subject.options.items():
        yield name, _TYPES.get(type(value), "int64_list")


def _refusals(subject: Subject, options: dict[str, Any] | None = None) -> list[str]:
    """Says why it makes no client of these options; empty where it makes one."""
    try:
        subject.destroy(_create(subject, options or {}))
    except PjrtError as exc:
        return [exc.message]
    return []


def _require_device(subject: Subject, error: PjrtError) -> None:
    """Leaves a check whose refusal has nothing to do with options."""
    if error.message in _refusals(subject):
        raise Skipped(f"no device: {error.message}")


def _create(subject: Subject, options: dict[str, Any]) -> int:
    given = {**subject.options, **options}
    return subject.own("Client", subject.call("PJRT_Client_Create", create_options=given))


def _platform(subject: Subject) -> str:
    """Says which plugin it is, also where no client can be made."""
    try:
        name: bytes = subject.call("PJRT_Client_PlatformName", client=subject.client)
    except (Skipped, Unsupported):
        return next((each for each in _OPTIONS if each in subject.path.name.lower()), "")
    return name.decode().lower()
