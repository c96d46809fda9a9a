"""What results have in common: one mistake of a plugin is one defect.

A check that `proves` functions stands for all that call them; else the same end in the same C
function is the same cause. Must not make any check.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from pjrt_hub.kit.conformance.check import Check
from pjrt_hub.kit.conformance.verdict import Result, Verdict

#: Hands on the errors of others, and is not to blame for them.
_MESSENGER = "PJRT_Event_Await"
#: What differs where the cause does not: a log's time and process, the check's line, addresses.
_PREFIX = re.compile(r"^[IWEF]\d{4} \S+ +\d+ ", re.MULTILINE)
_CALLED = re.compile(r"^called from .*", re.MULTILINE)
_ADDRESS = re.compile(r"0x[0-9a-f]+")


class Causes:
    """What is known of a plugin's mistakes.

    Attributes:
        broken: C functions that do not work, and forms of programs that are refused, each with the
            check that found it.
        works: those that checks proved.
    """

    def __init__(self) -> None:
        self.broken: dict[str, str] = {}
        self.works: set[str] = set()
        self._first: dict[tuple[str, ...], str] = {}

    def learn(self, check: Check, result: Result) -> Result:
        """Takes a new result; returns it with its cause, where another check tells of that."""
        if result.verdict is Verdict.PASS:
            self.works.update(check.proves)
        if result.cause or not result.verdict.is_defect:
            return result
        if check.proves:
            for function in self._to_blame(check, result):
                self.broken.setdefault(function, check.name)
            return result
        key = _key(result)
        if key is None:
            return result
        first = self._first.setdefault(key, check.name)
        return result if first == check.name else replace(result, cause=first)

    def _to_blame(self, check: Check, result: Result) -> Collection[str]:
        """Returns what does not work, by a check that proves something."""
        if result.function in ("", _MESSENGER) and result.verdict is Verdict.FAIL:
            return check.proves
        if result.function in self.works:  # for others it does
            return check.proves
        return (result.function,) if result.function else check.proves


def _key(result: Result) -> tuple[str, ...] | None:
    """Returns what results of one cause have in common; None where that cannot be told."""
    if not result.function:
        return None
    match result.verdict:
        case Verdict.TIMEOUT:
            return result.verdict, result.function
        case Verdict.CRASH:
            said = _CALLED.sub("", _PREFIX.sub("", result.words)).partition("\n")[0]
            return result.verdict, result.text, _ADDRESS.sub("", said)
    return result.verdict, result.function, _ADDRESS.sub("", result.text)
