"""Misuse of a real plugin, which itself would run f32 code on an s32 buffer without an error.

Every case runs in a child process and must raise an exception that names the mistake, change
nothing and leak nothing. If the child dies, the case that started last is to blame.
"""

import json
import re

import pytest
from misuse import CASES, memory
from misuse.case import NUMBERS

pytestmark = pytest.mark.devices(2)


@pytest.fixture(scope="module")
def outcomes(script):
    """The exception's classes and text in each case, from as few child processes as possible."""
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
    """Every public member of forty objects, some of them closed or uninitialized, gets junk."""
    child = script("sweep")
    last = child.stderr.splitlines()[-1:]  # the last call before the end
    assert child.returncode == 0, last
    count, strays = json.loads(child.stdout)
    assert strays == []
    assert count > 30_000
