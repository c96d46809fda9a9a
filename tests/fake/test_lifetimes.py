"""Lifetimes: closed in any order, used after its end, nothing leaked and nothing destroyed twice.

The stub aborts at a second destroy, at a use after destroy and at a client that dies before its
children, so a script that ends well had none of these.
"""

from __future__ import annotations

import gc
import random
import time

import numpy as np
import pytest
from stubbed import ONE_TO_FOUR, begin, destroys, everything, func, live, path, raises, with_stub

from pjrt_hub import errors
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin

EVERYTHING = "plugin, client, a, b, exe, out, event, device = everything()\n"

#: Every use of every object, with the names of EVERYTHING.
USES = {
    "client": [
        "client.buffer_from_host(ONE_TO_FOUR)",
        "client.compile(func('add'))",
        "client.load(b'x')",
        "client.platform_version",
        "client.process_index",
        "client.memories",
    ],
    "device": ["device.kind", "device.memory_stats()", "device.default_memory"],
    "buffer": [
        "a.to_numpy()",
        "np.asarray(a)",
        "a.ready",
        "a.memory",
        "a.on_device_nbytes",
        "a.copy_to_device(device)",
        "a.tolist()",
        "str(a)",
        "float(a)",
        "bool(a)",
    ],
    "event": [
        "event.wait()",
        "event.wait(0)",
        "event.is_ready()",
        "event.add_done_callback(print)",
        "next(event.__await__())",
    ],
    "executable": [
        "exe(a, b)",
        "exe(b, b)",
        "exe(b, b, simplify=False)",
        "exe.execute([[b, b]])",
        "exe.name",
        "exe.fingerprint",
        "exe.cost_analysis()",
        "exe.memory_stats()",
        "exe.serialize()",
        "exe.optimized_program()",
    ],
}

REFUSE = """
for use in USES:
    error = raises(errors.ClosedError, eval, use, globals())
    assert str(error), use
del error
"""


def refuses(*kinds: str) -> str:
    return f"USES = {[use for kind in kinds for use in USES[kind]]!r}" + REFUSE


def test_after_the_client_is_closed_everything_refuses(stub, check) -> None:
    check(
        stub(),
        EVERYTHING
        + "client.close()\nclient.close()\nassert client.closed\nassert live() == {}, live()\n"
        + refuses(*USES)
        + """
assert a.is_deleted and exe.closed
a.delete()
exe.close()
reprs = [repr(each) for each in (client, device, a, event, exe)]
assert reprs == [
    "<Client cpu closed>",
    "<Device closed>",
    "<Buffer deleted [closed client f32[4]]>",
    "<Event closed>",
    "<LoadedExecutable closed>",
], reprs
del a, b, out, event, exe, client
gc.collect()
assert live() == {}, live()
""",
    )


def test_after_a_buffer_is_deleted_it_refuses(stub, check) -> None:
    check(
        stub(),
        EVERYTHING
        + "a.delete()\na.delete()\nassert a.is_deleted\n"
        + refuses("buffer")
        + """
error = raises(errors.ClosedError, exe, a, b)
assert "argument 0" in error.message, error
assert out.tolist() == [11, 22, 33, 44]
assert exe(b, b).tolist() == [20, 40, 60, 80]
del error
client.close()
assert live() == {}, live()
""",
    )


def test_after_an_executable_is_closed_it_refuses(stub, check) -> None:
    check(
        stub(),
        EVERYTHING
        + "exe.close()\nexe.close()\nassert exe.closed\nassert 'executable' not in live()\n"
        + refuses("executable")
        + """
assert out.tolist() == [11, 22, 33, 44]
client.close()
assert live() == {}, live()
""",
    )


@with_stub()
def test_arrays_outlive_everything():
    plugin, client, a, b, exe, out, event, device = everything()
    views = [out.to_numpy(), out.to_numpy(), np.asarray(out)[1:3]]
    out.delete()
    assert views[0].tolist() == [11, 22, 33, 44]
    client.close()
    assert live() == {"buffer": 1, "client": 1}, live()
    raises(errors.ClosedError, out.to_numpy)
    del a, b, exe, event, client, plugin, device
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
    event = client.compile(func("identity later"))(client.buffer_from_host(ONE_TO_FOUR)).ready
    assert live() == {"client": 1, "event": 1}, live()
    assert not event.is_ready()
    assert repr(event) == "<Event pending>"
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
def test_any_order_of_everything(stub, check, platform: str, seed: int) -> None:
    """Two clients, random steps; what the stub counts is what Python still refers to."""
    check(stub(f'PLATFORM="{platform}"'), take_random_steps, seed)


def take_random_steps(seed):
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
    with Plugin(load(path)).client() as client:
        exe = client.compile(func("add"))
        a = client.buffer_from_host(ONE_TO_FOUR)
        for _ in range(1000):
            a = exe(a, a) if a.tolist()[0] < 1e6 else client.buffer_from_host(ONE_TO_FOUR)
        assert live()["buffer"] == 1, live()
    assert live() == {}, live()
    assert destroys() - before > 1000


FORK = """
before = destroys()
pid = os.fork()
if pid == 0:
    for use in USES:
        error = raises(errors.ClosedError, eval, use, globals())
        assert "fork" in str(error), (use, str(error))
    for each in (client, a, exe, event, device, client.plugin):
        repr(each)
    a.is_deleted, exe.close(), client.close()
    assert kept.tolist() == [11, 22, 33, 44]
    del client, a, b, exe, out, event, device, kept, error, plugin
    gc.collect()
    assert destroys() == before, "something native was destroyed in the child"
    sys.exit(0)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert a.tolist() == [1, 2, 3, 4] and exe(a, b).tolist() == [11, 22, 33, 44]
client.close()
"""


def test_after_a_fork_everything_refuses(stub, check) -> None:
    uses = [use for kind in USES.values() for use in kind]
    uses += ["plugin.client()", "Plugin(load(path)).client()", "a.delete()"]
    check(stub(), EVERYTHING + f"kept = out.to_numpy()\nUSES = {uses!r}\n" + FORK)
