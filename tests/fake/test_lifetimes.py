"""Lifetimes: closed in any order, used after its end, nothing leaked and nothing destroyed twice.

The stub aborts at a second destroy, at a use after destroy and at a client that dies before its
children, so a script that ends well had none of these.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from stubbed import ONE_TO_FOUR, begin, destroys, func, live, path, raises, release, with_stub

from pjrt_hub import errors
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin


def everything():
    """A plugin, client, two buffers, executable, result of it, event of that, and device."""
    client = begin()
    a, b = (client.buffer_from_host(ONE_TO_FOUR * each) for each in (1, 10))
    exe = client.compile(func("add"))
    out = exe(a, b)
    own = {"plugin": client.plugin, "client": client, "device": client.devices[0]}
    return SimpleNamespace(a=a, b=b, exe=exe, out=out, event=out.ready, **own)


#: Every use of every object, of `everything`.
USES = {
    "client": [
        lambda it: it.client.buffer_from_host(ONE_TO_FOUR),
        lambda it: it.client.compile(func("add")),
        lambda it: it.client.load(b"x"),
        lambda it: it.client.platform_version,
        lambda it: it.client.process_index,
        lambda it: it.client.memories,
    ],
    "device": [
        lambda it: it.device.kind,
        lambda it: it.device.memory_stats(),
        lambda it: it.device.default_memory,
    ],
    "buffer": [
        lambda it: it.a.to_numpy(),
        lambda it: np.asarray(it.a),
        lambda it: it.a.ready,
        lambda it: it.a.memory,
        lambda it: it.a.on_device_nbytes,
        lambda it: it.a.copy_to_device(it.device),
        lambda it: it.a.tolist(),
        lambda it: str(it.a),
        lambda it: float(it.a),
        lambda it: bool(it.a),
    ],
    "event": [
        lambda it: it.event.wait(),
        lambda it: it.event.wait(0),
        lambda it: it.event.is_ready(),
        lambda it: it.event.add_done_callback(print),
        lambda it: next(it.event.__await__()),
    ],
    "executable": [
        lambda it: it.exe(it.a, it.b),
        lambda it: it.exe(it.b, it.b),
        lambda it: it.exe(it.b, it.b, simplify=False),
        lambda it: it.exe.execute([[it.b, it.b]]),
        lambda it: it.exe.name,
        lambda it: it.exe.fingerprint,
        lambda it: it.exe.cost_analysis(),
        lambda it: it.exe.memory_stats(),
        lambda it: it.exe.serialize(),
        lambda it: it.exe.optimized_program(),
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
    reprs = [repr(each) for each in (it.client, it.device, it.a, it.event, it.exe)]
    assert reprs == [
        "<Client cpu closed>",
        "<Device closed>",
        "<Buffer deleted, f32[4] of a closed client>",
        "<Event closed>",
        "<LoadedExecutable closed>",
    ], reprs
    del it
    gc.collect()
    assert live() == {}, live()


@with_stub()
def test_after_a_buffer_is_deleted_it_refuses():
    it = everything()
    it.a.delete()
    it.a.delete()
    assert it.a.is_deleted
    refuse(it, "buffer")
    error = raises(errors.ClosedError, it.exe, it.a, it.b)
    assert "argument 0" in error.message, error
    assert it.out.tolist() == [11, 22, 33, 44]
    assert it.exe(it.b, it.b).tolist() == [20, 40, 60, 80]
    del error
    it.client.close()
    assert live() == {}, live()


@with_stub()
def test_after_an_executable_is_closed_it_refuses():
    it = everything()
    it.exe.close()
    it.exe.close()
    assert it.exe.closed
    assert "executable" not in live()
    refuse(it, "executable")
    assert it.out.tolist() == [11, 22, 33, 44]
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
def test_an_event_outlives_what_it_is_about():
    client = begin()
    event = client.compile(func("identity held"))(client.buffer_from_host(ONE_TO_FOUR)).ready
    assert live() == {"client": 1, "event": 1}, live()
    assert not event.is_ready()
    assert repr(event) == "<Event pending>"
    release()
    event.wait()
    assert event.is_ready()
    assert repr(event) == "<Event ready>"
    del client
    gc.collect()
    assert live() == {"client": 1, "event": 1}, live()
    del event
    gc.collect()
    assert live() == {}, live()


@with_stub()
def test_a_buffer_alone_keeps_its_client():
    def make():
        client = begin()
        return client.compile(func("identity"))(client.buffer_from_host(ONE_TO_FOUR))

    out = make()
    gc.collect()
    assert live() == {"client": 1, "buffer": 1}, live()
    assert out.tolist() == [1, 2, 3, 4]
    assert out.client.platform_name == "cpu"
    del out
    gc.collect()
    assert live() == {}, live()


@pytest.mark.parametrize("platform", ["cpu", "other"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
@with_stub('PLATFORM="{platform}"')
def test_any_order_of_everything(platform, seed):
    """Two clients, random steps; what the stub counts is what Python still refers to."""
    choose = random.Random(seed)
    plugin = Plugin(load(path))
    clients, buffers, exes, events, views = [], [], [], [], []
    words = ["identity", "add", "donate", "identity later", "identity fails later", "never"]
    words += ["add error=13:words", "identity fails"]
    allowed = (errors.ClosedError, errors.PluginInternalError, TimeoutError, ValueError)
    done = dict.fromkeys(["clients", "buffers", "executed", "views", "closed", "refused"], 0)

    def some(things):
        return choose.choice(things)

    def make_client():
        if len(clients) < 3:
            clients.append(plugin.client())
            done["clients"] += 1

    def put():
        buffers.append(some(clients).buffer_from_host(ONE_TO_FOUR * choose.random()))
        done["buffers"] += 1

    def compile():
        exes.append(some(clients).compile(func(some(words))))

    def execute():
        exe = some(exes)
        own = [each for each in buffers if each.client is exe.client]
        given = own if choose.random() < 0.9 else buffers
        row = [some(given) for _ in exe.signature.parameters]
        buffers.append(exe(*row) if choose.random() < 0.5 else exe.execute([row])[0][0])
        done["executed"] += 1

    def read():
        buffer = some(buffers)
        if buffer.ready.is_ready():
            views.append(buffer.to_numpy())
            assert views[-1].shape == (4,)
            done["views"] += 1

    def watch():
        events.append(some(buffers).ready)

    def wait():
        some(events).wait(0.01)

    def call_back():
        event = some(events)
        if event.is_ready():  # what never fires would hold its event, and be right to
            event.add_done_callback(lambda event: repr(event))

    def name():
        assert some(exes).name == "stub_program"

    def delete():
        some(buffers).delete()

    def close_exe():
        some(exes).close()

    def close_client():
        if choose.random() < 0.3:
            some(clients).close()
            done["closed"] += 1

    def forget():
        things = some([clients, buffers, exes, events, views])
        del things[choose.randrange(len(things))]

    steps = [make_client, compile, watch, wait, call_back, name, delete, close_exe, close_client]
    steps += [put] * 2 + [execute] * 3 + [read] * 2 + [forget] * 2 + [repr]
    for _ in range(3000):
        step = some(steps)
        try:
            repr(some(some([clients, buffers, exes, events]))) if step is repr else step()
        except (IndexError, *allowed) as exc:
            done["refused"] += 1
            del exc
    assert min(done.values()) > 20, done
    for _ in range(3):
        for things in choose.sample([clients, buffers, exes, events, views], 5):
            choose.shuffle(things)
            if choose.random() < 0.5 and things is clients:
                for client in clients:
                    client.close()
            del things[: choose.randrange(len(things) + 1)]
    for things in choose.sample([clients, buffers, exes, events, views], 5):
        things.clear()
    for _ in range(500):  # until the last callbacks ran
        gc.collect()
        if live() == {}:
            break
        time.sleep(0.01)
    assert live() == {}, live()


@with_stub()
def test_the_count_of_destroys_is_the_count_of_creates():
    before = destroys()
    with begin() as client:
        exe = client.compile(func("add"))
        a = client.buffer_from_host(ONE_TO_FOUR)
        for _ in range(1000):
            a = exe(a, a) if a.tolist()[0] < 1e6 else client.buffer_from_host(ONE_TO_FOUR)
        assert live()["buffer"] == 1, live()
    assert live() == {}, live()
    assert destroys() - before > 1000


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
