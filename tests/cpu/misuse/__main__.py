"""The script of a child process that tries cases of misuse and prints a line of JSON for each."""

from __future__ import annotations

import gc
import json
import signal
import sys

from children import IS_CPU, PLATFORM

import pjrt_hub
from misuse import CASES
from misuse.case import Case


def attempt(case, misuse):
    """What a misuse raises (classes and text), whether programs still run, and what it leaks."""
    gc.collect()
    before = case.client._num_children
    signal.alarm(30)  # a process that hangs is killed
    try:
        answer = misuse(case)
        if not IS_CPU and isinstance(answer, pjrt_hub.Buffer):
            answer.ready.wait()  # accelerators raise here, the CPU plugin in the call
    except Exception as exc:
        told = [[kind.__name__ for kind in type(exc).__mro__], str(exc)]
    else:
        told = [["nothing was raised"], repr(answer)]
    answer = None
    signal.alarm(0)
    sums = case.add(case.f, case.f).tolist()
    gc.collect()
    return [*told, sums, case.client._num_children - before]


shared = Case(pjrt_hub.load(PLATFORM, offline=True))
for chosen in sys.argv[1:]:
    print(json.dumps(attempt(shared, CASES[int(chosen)][0])), flush=True)
