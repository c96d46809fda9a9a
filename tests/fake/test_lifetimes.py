"""Lifetimes: objects are closed in any order or used after their end; none leaks or dies twice.

The stub aborts at a second destroy, at a use after destroy and at a client that dies before its
children, so a script that ends well had none of these.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
from stubbed import ONE_TO_FOUR, begin, destroys, func, live, path, raises, with_stub

from pjrt_hub import errors
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin
from pjrt_hub.running.device.device import Memory


def everything():
    """A plugin, a client with its device, a memory, two buffers, an executable, and its result."""
    client = begin()
    a, b = (client.buffer_from_host(ONE_TO_FOUR * each) for each in (1, 10))
    exe = client.compile(func("add"))
    out = exe(a, b)
    own = {"plugin": client.plugin, "client": client, "device": client.devices[0]}
    own["memory"] = Memory(client, 1)  # The stub tells of none.
    return SimpleNamespace(a=a, b=b, exe=exe, out=out, event=out.ready, **own)


def asking(name, words):
    """Uses that ask an object for an attribute, or call a method that takes nothing."""

    def ask(word, it):
        found = getattr(getattr(it, name), word)
        return found() if callable(found) else found

    return [partial(ask, word) for word in words.split()]


#: Every use of every object that `everything` makes.
USES = {
    "client": [
        lambda it: it.client.buffer_from_host(ONE_TO_FOUR),
        lambda it: it.client.compile(func("add")),
        lambda it: it.client.load(b"x"),
        *asking("client", "platform_version process_index memories"),
    ],
    "device": asking("device", "kind memory_stats default_memory"),
    "buffer": [
        lambda it: it.a.copy_to_device(it.device),
        *asking("a", "to_numpy ready memory on_device_nbytes tolist"),
        *asking("a", "__array__ __str__ __float__ __bool__"),
    ],
    "event": [
        *asking("event", "wait is_ready"),
        lambda it: it.event.wait(0),
        lambda it: it.event.add_done_callback(print),
        lambda it: next(it.event.__await__()),
    ],
    "executable": [
        lambda it: it.exe(it.a, it.b),
        lambda it: it.exe(it.b, it.b),
        lambda it: it.exe(it.b, it.b, simplify=False),
        lambda it: it.exe.execute([[it.b, it.b]]),
        *asking("exe", "name fingerprint cost_analysis memory_stats serialize optimized_program"),
    ],
}


def refuse(it, *kinds, word=""):
    for kind in kinds:
        for use in USES[kind]:
            error = raises(errors.ClosedError, use, it)
            assert str(error), use
            assert word in str(error), (use, str(error))


@with_stub()
def test_after_the_client_is_closed_everything_refuses():
    it = everything()
    it.client.close()
    it.client.close()
    assert it.client.closed
    assert live() == {}, live()
    refuse(it, *USES)
    assert it.a.is_deleted
    assert it.exe.closed
    it.a.delete()
    it.exe.close()
    told = (it.client, it.device, it.memory, it.a, it.event, it.exe)
    assert str(it.device) == "cpu:0"
    reprs = [repr(each) for each in told]
    assert reprs == [
        "<Client cpu closed>",
        "<Device closed>",
        "<Memory closed>",
        "<Buffer deleted, f32[4] of a closed client>",
        "<Event closed>",
        "<LoadedExecutable closed>",
    ], reprs
    del it, told
    gc.collect()
    assert live() == {}, live()


@with_stub()
def test_after_a_buffer_is_deleted_or_an_executable_closed_it_refuses():
    it = everything()
    for _ in range(2):
        it.a.delete()
    assert it.a.is_deleted
    refuse(it, "buffer")
    error = raises(errors.ClosedError, it.exe, it.a, it.b)
    assert "argument 0" in error.message, error
    assert it.exe(it.b, it.b).tolist() == [20, 40, 60, 80]
    for _ in range(2):
        it.exe.close()
    assert it.exe.closed
    assert "executable" not in live()
    refuse(it, "executable")
    assert it.out.tolist() == [11, 22, 33, 44]
    del error
    it.client.close()
    assert live() == {}, live()


@with_stub()
def test_arrays_outlive_everything():
    it = everything()
    out = it.out
    views = [out.to_numpy(), out.to_numpy(), np.asarray(out)[1:3]]
    out.delete()
    assert views[0].tolist() == [11, 22, 33, 44]
    it.client.close()
    assert live() == {"buffer": 1, "client": 1}, live()
    raises(errors.ClosedError, out.to_numpy)
    del it
    gc.collect()
    assert [view.tolist() for view in views] == [[11, 22, 33, 44]] * 2 + [[22, 33]]
    del out
    assert views.pop(0)[3] == 44
    assert views.pop(0)[0] == 11
    assert live() == {"buffer": 1, "client": 1}, live()
    assert views[0].tolist() == [22, 33]
    raises(ValueError, views[0].__setitem__, 0, 1)
    views.clear()
    gc.collect()
    assert live() == {}, live()


@with_stub()
def test_after_a_fork_everything_refuses():
    it = everything()
    kept = it.out.to_numpy()
    before = destroys()
    pid = os.fork()
    if pid == 0:
        refuse(it, *USES, word="fork")
        for use in (it.plugin.client, Plugin(load(path)).client, it.a.delete):
            assert "fork" in str(raises(errors.ClosedError, use))
        for each in (it.client, it.a, it.exe, it.event, it.device, it.plugin):
            repr(each)
        it.a.is_deleted, it.exe.close(), it.client.close()
        assert kept.tolist() == [11, 22, 33, 44]
        del it, kept, each, use
        gc.collect()
        assert destroys() == before, "something native was destroyed in the child"
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    assert it.a.tolist() == [1, 2, 3, 4]
    assert it.exe(it.a, it.b).tolist() == [11, 22, 33, 44]
    it.client.close()
