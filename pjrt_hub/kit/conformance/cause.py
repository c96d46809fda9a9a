"""What results have in common: one mistake of a plugin is one cause.

A check that `proves` functions stands for all checks that call them. Otherwise, the same end in the
same C function is one cause; so is an op that fails in the same way on several element types, and a
type on which most ops fail. Must not make any check.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import replace

from pjrt_hub.kit.conformance.check import BASICS, Check
from pjrt_hub.kit.conformance.verdict import Result, Verdict

#: This function only hands on the errors of others, so it is never to blame.
_MESSENGER = "PJRT_Event_Await"
#: These parts of a text differ although the cause is the same: the time and process of a log line,
#: the line of the check, addresses, and numbers in the last words.
_PREFIX = re.compile(r"^[IWEF]\d{4} \S+ +\d+ ", re.MULTILINE)
_CALLED = re.compile(r"^called from .*", re.MULTILINE)
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_NUMBER = re.compile(r"\b\d+\b")
#: The checks of this area are named after an op and its element types.
OPS = "ops"
#: If a function works in some checks and hangs in others, the first number is how many checks wait
#: their whole time for it, and the second is how many wait at all.
_SEVERAL, _TOO_MANY = 2, 8
#: An element type is blamed only if at least this many checks used it.
_FEWEST = 5


class Causes:
    """What is known of a plugin's mistakes."""

    def __init__(self) -> None:
        self.broken: dict[str, str] = {}  # What does not work, with the check that found it.
        self.works: set[str] = set()  # What a passed check proved, and what returned in it.
        self._late: dict[str, list[str]] = {}
        self._results: list[Result] = []

    @property
    def hung(self) -> list[str]:
        """Functions that work, but not always: they did not return in several checks."""
        return [function for function, names in self._late.items() if len(names) >= _SEVERAL]

    def learn(self, check: Check, result: Result, returned: Iterable[str] = ()) -> None:
        """Take a new result, and the functions that returned without an error meanwhile."""
        self._results.append(result)
        if result.verdict is Verdict.PASS:
            self.works.update(check.proves, returned)
        if result.cause or not result.verdict.is_defect:
            return
        if check.proves:
            for function in self._to_blame(check, result):
                self.broken.setdefault(function, check.name)
        elif result.verdict is Verdict.TIMEOUT and (function := result.function):
            late = self._late.setdefault(function, [])
            late.append(check.name)
            if function not in self.works or len(late) >= _TOO_MANY:
                self.broken.setdefault(function, late[0])

    def knows(self, result: Result) -> bool:
        """Say whether a result has the same cause as an earlier one."""
        return bool(group([*self._results, result])[-1].cause)

    def _to_blame(self, check: Check, result: Result) -> Collection[str]:
        """Return the functions to blame for the defect of a check that proves functions."""
        if result.function in ("", _MESSENGER) and result.verdict is Verdict.FAIL:
            return check.proves
        if result.function in self.works:  # The function works in other checks.
            return check.proves
        return (result.function,) if result.function else check.proves


def group(results: Sequence[Result]) -> tuple[Result, ...]:
    """Return all results, where a defect names the first one of the same cause, if not itself."""
    types = _broken_types(results)
    first: dict[Hashable, str] = {}
    moved: dict[str, str] = {}
    told: dict[str, tuple[str, ...]] = {}
    for each in results:
        if not each.verdict.is_defect or each.cause or each.area == BASICS:
            continue
        keys = _keys(each, types)
        name = next((first[key] for key in keys if key in first), each.name)
        first |= dict.fromkeys(keys, name)
        if name != each.name:
            moved[each.name] = name
        elif keys and keys[0] in types.values():
            told[name] = (str(keys[0]),)
    return tuple(
        replace(
            each,
            cause=moved.get(each.name) or moved.get(each.cause, each.cause),
            notes=each.notes + told.get(each.name, ()),
        )
        for each in results
    )


def op_and_types(result: Result) -> tuple[str, list[str]]:
    """Return the op and the element types of a result of the area `ops`; a conversion has two."""
    _, op, types, *_ = result.name.split(".")
    return op, types.split("_to_")


def _keys(result: Result, types: dict[str, str]) -> list[Hashable]:
    """Return a result's keys: results of one cause have at least one key in common."""
    function, text = result.function, _ADDRESS.sub("", result.text)
    keys: list[Hashable] = []
    if result.area == OPS:
        op, of = op_and_types(result)
        if broken := [types[each] for each in of if each in types]:
            return [broken[0]]
        if result.verdict is Verdict.FAIL:
            keys.append((function, op, text.partition(":")[0]))
    match result.verdict:
        case Verdict.TIMEOUT if function:
            keys.append((Verdict.TIMEOUT, function))
        case Verdict.CRASH if function:
            said = _CALLED.sub("", _PREFIX.sub("", result.words)).partition("\n")[0]
            keys.append((Verdict.CRASH, result.text, _NUMBER.sub("", _ADDRESS.sub("", said))))
        case Verdict.FAIL if function:
            keys.append((function, text))
    return keys


def _broken_types(results: Iterable[Result]) -> dict[str, str]:
    """Map each type on which most ops fail to a summary, which types that fail alike share."""
    made: Counter[str] = Counter()
    ends: dict[str, list[tuple[str, ...]]] = {}
    for each in results:
        if each.area == OPS and each.verdict not in (Verdict.UNSUPPORTED, Verdict.SKIP):
            op, types = op_and_types(each)
            made.update(types)
            for name in types if each.verdict.is_defect else ():
                ends.setdefault(name, []).append((op, each.verdict, each.function))
    alike: dict[Hashable, list[str]] = {}
    for name, found in ends.items():
        if made[name] >= _FEWEST and 2 * len(found) > made[name]:
            alike.setdefault(frozenset(found), []).append(name)
    return {
        name: f"{' and '.join(names)}: {sum(len(ends[each]) for each in names)} of "
        f"{sum(made[each] for each in names)} checks of ops fail"
        for names in alike.values()
        for name in names
    }
