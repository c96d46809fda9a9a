"""Misuse of a real plugin, which would run f32 code on an s32 buffer and answer OK.

Every case is tried in a child process and ends in an exception that names what is wrong, changes
nothing, and leaves nothing behind. One that ends the process is found by being the last that began.
"""

import json
import re

import pytest
from misuse import CASES, memory
from misuse.case import NUMBERS

pytestmark = pytest.mark.devices(2)


@pytest.fixture(scope="module")
def outcomes(script):
    """What became of each case: the exception's classes and its text, in as few processes as go."""
    told, left = [], [*map(str, range(len(CASES)))]
    while left:
        child = script("misuse", *left)
        ended = [*map(json.loads, child.stdout.splitlines())]
        told += ended
        left = left[len(ended) :]
        if left:
            last_words = child.stderr.strip().splitlines()[-3:]
            told.append([["the process ended"], f"{child.returncode} {last_words}", None, 0])
            del left[0]
    return told, child.stderr


OF_HOSTS = pytest.mark.cpu("shares memory with the host")


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, id=f"{number} {case[2]}", marks=[OF_HOSTS] * (case in memory.OF_HOSTS))
        for number, case in enumerate(CASES)
    ],
)
def test_misuse_is_refused(outcomes, number):
    _, error, message = CASES[number]
    classes, text, sums, left_behind = outcomes[0][number]
    expected = error if isinstance(error, tuple) else (error,)
    assert {kind.__name__ for kind in expected} & set(classes), (classes, text)
    assert re.search(message, text), text
    assert sums == (2 * NUMBERS).tolist()
    assert left_behind == 0


def test_nothing_is_said_aside(outcomes):
    assert outcomes[1] == ""


def test_junk_for_everything(script):
    """Every public member of forty objects, also closed and unmade ones, called with junk."""
    child = script("sweep")
    last = child.stderr.splitlines()[-1:]  # what was called when it ended
    assert child.returncode == 0, last
    count, strays = json.loads(child.stdout)
    assert strays == []
    assert count > 30_000
