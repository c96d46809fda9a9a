"""Calls every public member of every kind of object with junk; also runs as a script.

It prints the number of calls, and each exception that neither Python nor pjrt-hub should raise
for a wrong argument. The last line of its log names a call that ended the process.
"""

from __future__ import annotations

import copy
import gc
import json
import pickle
import signal
import sys
import weakref
from functools import partial

import numpy as np
from children import PLATFORM
from misuse.case import FAILED, NUMBERS, PROGRAMS, Case, Index, Lying, raises

import pjrt_hub
from pjrt_hub.errors import PjrtHubError
from pjrt_hub.extensions import execute_context
from pjrt_hub.running.buffer.device_memory import DmaMapping, ExternalReference, RawCopy
from pjrt_hub.running.buffer.placeholder import Alias
from pjrt_hub.running.buffer.transfer import Transfer
from pjrt_hub.running.device.promise import SettableEvent
from pjrt_hub.running.executable.loaded_executable import BoundCall
from pjrt_hub.running.executable.serialized import Guards

#: Arguments without a required attribute give AttributeError; memoryviews, NotImplementedError.
EXPECTED = (PjrtHubError, ArithmeticError, AttributeError, BufferError, LookupError, MemoryError)
EXPECTED += (NotImplementedError, OSError, TypeError, ValueError)
UNMADE = (pjrt_hub.Client, pjrt_hub.Device, pjrt_hub.Event, pjrt_hub.Executable)
UNMADE += (pjrt_hub.LoadedExecutable, pjrt_hub.Memory, pjrt_hub.Topology, SettableEvent)
UNMADE += (Alias, BoundCall, DmaMapping, ExternalReference, RawCopy, Transfer)
GENERIC = (bool, copy.copy, copy.deepcopy, hash, iter, len, memoryview, np.asarray)
GENERIC += (pickle.dumps, repr, str, weakref.ref)
#: These methods end their object, so they are called last.
ENDING = ("break", "close", "delete", "fail", "fulfill", "release", "stop")


class HungError(BaseException):
    """A call did not return in time."""


def alarmed(*_):
    raise HungError


def objects(case):
    """One object of each kind in three states: open, closed with its client, never initialized."""
    alias = case.alias()
    yield from (case.client, case.f.device, case.f.memory, case.f, case.deleted, case.donated)
    yield from (alias, case.add, case.f.ready, case.client.topology, case.transfer())
    yield from (pjrt_hub.ExternalReference(case.f), execute_context.ExecuteContext(case.client))
    yield case.add.bind(case.f, case.f)
    yield from (case.failed(), case.put(np.float32(1)), case.plugin.ffi, case.add.signature)
    yield from (pjrt_hub.CompileOptions(), pjrt_hub.ExecuteOptions(), Guards.of(case.client))
    yield from (case.late, case.stale, case.stale_add, case.stale_event, case.stale_topology)
    yield from (case.stale_device, case.shut, case.client.topology.device_descriptions[0])
    yield from (kind.__new__(kind) for kind in UNMADE)


def junk(case):
    """Values that are wrong as arguments."""
    yield from (None, True, -1, 0, 2**40, 2**70, float("nan"), "x", b"", b"junk\0\xff", [], {})
    yield from (object(), NUMBERS, (2**40, 2**40), (8,), [[case.f] * 2], case.f, case.deleted)
    yield from (case.foreign, case.client, case.add, case.f.device, case.f.memory, FAILED)
    yield from (raises, Index(0, raises), Lying(raises), np.array([None]), PROGRAMS)


def member(target, name, *arguments):
    return getattr(target, name)(*arguments)


def attempt(call, *arguments):
    signal.setitimer(signal.ITIMER_REAL, 10)
    try:
        call(*arguments)
    except EXPECTED:
        return None
    except BaseException as exc:
        return repr(exc)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def sweep(plugin):
    """Make every call, and return the number of calls and the unexpected exceptions."""
    count, strays = 0, []
    case = Case(plugin)
    for target in list(objects(case)):
        kind = type(target)
        names = [name for name in dir(kind) if not name.startswith("_")]
        names.sort(key=lambda name: name.startswith(ENDING))
        calls = [(each.__name__, each, [(target,)]) for each in GENERIC]
        arguments = [(), *((each,) * number for each in junk(case) for number in (1, 2))]
        for name in [*names, "__call__", "__array__", "__dlpack__", "__exit__", "__float__"]:
            if hasattr(kind, name):
                calls.append((name, partial(member, target, name), arguments))
        for name, call, rows in calls:
            for given in rows:
                print(kind.__name__, name, len(given), file=sys.stderr, flush=True)
                count += 1
                stray = attempt(call, *given)
                if stray:
                    strays.append([kind.__name__, name, stray])
        if case.client.closed or case.f.is_deleted or case.add.closed:
            case = Case(plugin)
    gc.collect()
    return count, strays


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, alarmed)
    print(json.dumps(sweep(pjrt_hub.load(PLATFORM, offline=True))))
