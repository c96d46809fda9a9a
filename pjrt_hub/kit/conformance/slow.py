"""Work that takes a while: `SLOW`, with as many rounds as that takes on the plugin under test.

Owns no verdicts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from pjrt_hub.kit.conformance.finding import Unsupported, expect
from pjrt_hub.kit.conformance.programs import SLOW, many_products
from pjrt_hub.kit.conformance.subject import Subject

_ROWS = 16
_SECONDS = 0.1
_MOST_ROUNDS = 4**9

#: The counts that `slow_rounds` found, by the address of the plugin's table.
_rounds: dict[int, int] = {}


def slow_program(subject: Subject) -> int:
    """Compile `SLOW`, for plugins without loops as a long list of products."""
    try:
        return subject.compile(SLOW)
    except Unsupported:
        return subject.compile(many_products())


def slow_arguments(subject: Subject, rounds: int = 0) -> list[int]:
    """Make the arguments of `SLOW`: an identity matrix, so that the result is one, and a count."""
    count = np.array(rounds or slow_rounds(subject), np.int32)
    return [subject.put(np.eye(_ROWS, dtype=np.float32)), subject.put(count)]


def slow_rounds(subject: Subject) -> int:
    """Find how many products take a while: few in an interpreter, else thousands."""
    if (known := _rounds.get(subject.api.address)) is not None:
        return known
    executable, rounds = slow_program(subject), 1
    _time(subject, executable, rounds)  # The first run of a program takes longer.
    # One slow run may come from a busy machine, so all three must be slow.
    while rounds < _MOST_ROUNDS and any(
        _time(subject, executable, rounds) < _SECONDS for _ in range(3)
    ):
        rounds *= 4
    return _rounds.setdefault(subject.api.address, rounds)


def _time(subject: Subject, executable: int, rounds: int) -> float:
    arguments = slow_arguments(subject, rounds)
    begin = time.monotonic()
    (result,) = subject.execute(executable, arguments)
    subject.wait(result)
    return time.monotonic() - begin


def slow(subject: Subject, rounds: int = 0) -> int:
    """Run `SLOW`; return its result, most likely still pending."""
    (result,) = subject.execute(slow_program(subject), slow_arguments(subject, rounds))
    return result


def expect_over(subject: Subject, text: str, wait: Callable[[int, int], object]) -> None:
    """Fail with `text` if, three times, work goes on after the plugin said that it has ended.

    `wait(output, complete)` returns once the plugin says that the work has ended.
    """
    executable, arguments = slow_program(subject), slow_arguments(subject)
    expect(not all(_outlasts(subject, executable, arguments, wait) for _ in range(3)), text)


def _outlasts(
    subject: Subject, executable: int, arguments: list[int], wait: Callable[[int, int], object]
) -> bool:
    """Say whether the output is wrong, or reading it takes longer than the run with `wait`.

    If the plugin is right, reading takes microseconds, so a busy machine cannot change the answer.
    """
    begin = time.monotonic()
    ((output,),), (complete,) = subject.launch(executable, [arguments], events=True)
    wait(output, complete)
    said = time.monotonic()
    right = is_identity(subject, output)
    return not right or time.monotonic() - said > max(said - begin, _SECONDS / 4)


def is_identity(subject: Subject, buffer: int) -> bool:
    """Say whether a buffer, once it is ready, holds the result of `SLOW`, an identity matrix."""
    return bool(np.array_equal(subject.get(buffer), np.eye(_ROWS, dtype=np.float32)))
