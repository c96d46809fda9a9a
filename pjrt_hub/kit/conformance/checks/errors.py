"""Errors: their codes, messages and payloads, and what they leave behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

from pjrt_hub.errors import UnknownError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Unsupported, ask_twice, code_name, equal, expect, text
from pjrt_hub.kit.conformance.programs import ADD
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.capi import hotpath, unchecked
from pjrt_hub.running.program.compile_options import CompileOptions

_CODES = range(1, 17)  # These are the codes of absl::Status, without 0, which is no error.
_ROUNDS = 200

Call = tuple[str, dict[str, Any]]


@check(number=119)
def codes(subject: Subject) -> None:
    """Ask twice for the code of each error that can be provoked -> the same, from 1 to 16."""
    for what, error in _provoke(subject, _calls(subject)):
        code = ask_twice(partial(_code, subject, error), f"{what}: its code")
        expect(code in _CODES, f"{what}: expected a code from 1 to 16, found {code}")


@check(needs="plugin", number=119)
def codes_without_client(subject: Subject) -> None:
    """Provoke errors before there is a client -> codes from 1 to 16, messages in UTF-8."""
    for what, error in _provoke(subject, _early_calls()):
        code = _code(subject, error)
        expect(code in _CODES, f"{what}: expected a code from 1 to 16, found {code}")
        _read(subject, error, what)


@check(number=119)
def messages(subject: Subject) -> None:
    """Ask twice for the message of each error that can be provoked -> the same UTF-8 text."""
    for what, error in _provoke(subject, _calls(subject)):
        found = ask_twice(partial(_read, subject, error, what), f"{what}: its message")
        expect(bool(found), f"{what}, the message: expected the reason, found none")


@check(number=119, since=107)
def tables(subject: Subject) -> None:
    """Call the functions of each error's own table -> the same code and message."""
    for what, error in _provoke(subject, _calls(subject)):
        message = subject.api.call("PJRT_Error_Message", error=error)
        found = unchecked.by_its_table(error)
        expect(found is not None, f"{what}: expected a table of all functions, found none")
        wanted = _code(subject, error), message
        equal(found, wanted, f"{what}: its code and message by its own table")


@check(number=119)
def two_at_once(subject: Subject) -> None:
    """Keep two errors alive at once -> each keeps its message when the other is destroyed."""
    failing = _failing_calls(subject)
    if len(failing) < 2:
        raise Unsupported("fewer than two calls that were tried made an error")
    (first, first_call), (second, second_call) = failing[:2]
    with unchecked.provoke(subject.api, first_call[0], **first_call[1]) as error:
        before = _read(subject, error, first)
        with unchecked.provoke(subject.api, second_call[0], **second_call[1]) as another:
            expect(another != error, "expected two errors, found one address for both")
            equal(_read(subject, error, first), before, "the first message beside the second")
            _read(subject, another, second)
        equal(_read(subject, error, first), before, "the first message after the second error")


@check(number=119)
def other_thread(subject: Subject) -> None:
    """Read an error's message in another thread -> the same message."""
    what, (function, fields) = _failing_calls(subject)[0]
    with unchecked.provoke(subject.api, function, **fields) as error:
        here = _read(subject, error, what)
        there: list[str] = []
        reader = threading.Thread(target=lambda: there.append(_read(subject, error, what)))
        reader.start()
        reader.join()
        equal(there, [here], "the message as another thread reads it")


@check(number=119)
def many(subject: Subject) -> None:
    """Provoke 200 errors, destroy each once -> the same code, and the client is usable."""
    what, (function, fields) = _failing_calls(subject)[0]
    seen = set()
    for _ in range(_ROUNDS):
        with unchecked.provoke(subject.api, function, **fields) as error:
            expect(bool(error), f"{what}: expected an error each time, found success")
            seen.add(_code(subject, error))
    equal(len(seen), 1, "different codes of one error")
    subject.usable()


@check(number=120)
def unknown_codes(subject: Subject) -> None:
    """Ask for the codes of all errors that can be provoked -> those with UNKNOWN are noted."""
    provoked = _provoke(subject, _calls(subject))
    found = {what: _code(subject, error) for what, error in provoked}
    vague = [what for what, code in found.items() if code == UnknownError.code]
    if vague:
        subject.note(f"UNKNOWN in {len(vague)} of {len(found)}: {', '.join(vague)}")
    subject.note(", ".join(f"{what}: {code_name(code)}" for what, code in found.items()))


@check(number=121, since=99)
def payloads(subject: Subject) -> None:
    """Visit the payloads of each error -> no crash and no empty name; those found are noted."""
    if not subject.api.has("PJRT_Error_ForEachPayload"):
        raise Unsupported("the plugin lacks PJRT_Error_ForEachPayload")
    for what, error in _provoke(subject, _calls(subject)):
        _, _, found = hotpath.read_error(subject.api.address, error, False)
        expect(all(found), f"{what}: expected a name of each payload, found none")
        if found:
            subject.note(f"{what}: payloads {', '.join(found)}")


@check(number=122)
def usable_afterwards(subject: Subject) -> None:
    """Run a + b after each error that can be provoked -> the exact values."""
    for _ in _provoke(subject, _calls(subject)):
        subject.usable()


def _calls(subject: Subject) -> dict[str, Call]:
    """Return calls that every plugin should refuse and survive, the cheap ones first."""
    add, options = subject.encode_program(ADD), CompileOptions().serialize()

    def compile(code: str | bytes, form: str, options: bytes) -> tuple[str, dict[str, Any]]:
        program = {"code": code, "format": form}
        return "PJRT_Client_Compile", {"program": program, "compile_options": options}

    calls = {
        "no such device": ("PJRT_Client_LookupDevice", {"id": -1}),
        "no such local device": (
            "PJRT_Client_LookupAddressableDevice",
            {"local_hardware_id": 1 << 20},
        ),
        "junk as a program": compile("this is no program", "mlir", options),
        "an unknown format": compile(add, "invalid", options),
        "junk as options": compile(add, "mlir", b"\xff" * 32),
        "junk as an executable": (
            "PJRT_Executable_DeserializeAndLoad",
            {"serialized_executable": b"\xff" * 64},
        ),
    }
    return {
        what: (name, {"client": subject.client, **given}) for what, (name, given) in calls.items()
    }


def _early_calls() -> dict[str, Call]:
    create, deserialize = (f"PJRT_TopologyDescription_{name}" for name in ("Create", "Deserialize"))
    unknown = {"topology_name": "no such machine", "create_options": {"no_such_option": 1}}
    junk = {"serialized_topology": b"\xff" * 64}
    return {"no such topology": (create, unknown), "junk as a topology": (deserialize, junk)}


def _provoke(subject: Subject, calls: dict[str, Call]) -> Iterator[tuple[str, int]]:
    """Yield what was wrong and the error of each call; other checks test what must be refused."""
    met = False
    for what, (function, fields) in calls.items():
        if not subject.api.has(function):
            continue
        with unchecked.provoke(subject.api, function, **fields) as error:
            if error:
                met = True
                yield what, error
    if not met:
        raise Unsupported("no call that was tried made an error")


def _failing_calls(subject: Subject) -> list[tuple[str, Call]]:
    """Return the calls that make an error, at least one."""
    calls = _calls(subject)
    return [(what, calls[what]) for what, _ in _provoke(subject, calls)]


def _code(subject: Subject, error: int) -> int:
    return subject.call("PJRT_Error_GetCode", error=error)


def _read(subject: Subject, error: int, what: str) -> str:
    """Read the message of an error, which must be text."""
    return text(subject.api.call("PJRT_Error_Message", error=error), f"{what}, the message")
