"""Misuse of a real plugin, which would run f32 code on an s32 buffer and answer OK.

Every case is tried in a child process and ends in an exception that names what is wrong, changes
nothing, and leaves nothing behind. One that ends the process is found by being the last that began.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from misuse import CASES, calls, making, memory
from misuse.case import NUMBERS

pytestmark = pytest.mark.devices(2)
#: Cases of memory that only a host's device lends and borrows.
SHARED = {
    "a deleted buffer's memory",
    "a number of numpy's",
    "a view of what failed",
    "an alias of what is lent",
    "another's deleted buffer",
    "memory askew",
    "to another device",
    "writing through a view",
}


def test_there_are_enough():
    assert len(CASES) == len(calls.CASES) + len(memory.CASES) + len(making.CASES) >= 200


@pytest.fixture(scope="module")
def outcomes(clean_env):
    """What became of each case: the exception's classes and its text, in as few processes as go."""
    told, left = {}, list(CASES)
    while left:
        child = subprocess.run(
            [sys.executable, "-m", "misuse", *left],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=200,
            env=clean_env,
        )
        ended = dict(map(json.loads, child.stdout.splitlines()))
        told |= ended
        left = left[len(ended) :]
        if left:
            last_words = child.stderr.strip().splitlines()[-3:]
            told[left.pop(0)] = [["the process ended"], f"{child.returncode} {last_words}", None, 0]
    told["stderr"] = child.stderr
    return told


def marked(name):
    """A case, where it is one."""
    if name in SHARED:
        return pytest.param(name, marks=pytest.mark.cpu("shares memory with the host"))
    if name == "a type newer than the plugin":
        return pytest.param(name, marks=pytest.mark.api("<0.114", "it has the type"))
    return name


@pytest.mark.parametrize("name", [marked(name) for name in CASES])
def test_misuse_is_refused(outcomes, name):
    _, error, message = CASES[name]
    classes, text, sums, left_behind = outcomes[name]
    expected = error if isinstance(error, tuple) else (error,)
    assert {kind.__name__ for kind in expected} & set(classes), (classes, text)
    assert re.search(message, text), text
    assert sums == (2 * NUMBERS).tolist()
    assert left_behind == 0


def test_nothing_is_said_aside(outcomes):
    assert outcomes["stderr"] == ""


def test_junk_for_everything(clean_env):
    """Every public member of forty objects, also closed and unmade ones, called with junk."""
    child = subprocess.run(
        [sys.executable, "-m", "sweep"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=200,
        env=clean_env,
    )
    last = child.stderr.splitlines()[-1:]  # what was called when it ended
    assert child.returncode == 0, last
    count, strays = json.loads(child.stdout)
    assert strays == []
    assert count > 30_000
