"""What a plugin waits for: kept once, broken once, and given up where nobody keeps it."""

from __future__ import annotations

import sys

import numpy as np
from stubbed import destroys, func, live, path, raises, soon, with_stub

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin
from pjrt_hub.running.interpose import layers


@with_stub()
def test_an_event_is_set_once(client):
    event = pjrt_hub.SettableEvent(client)
    assert not event.is_ready()
    event.set()
    assert event.wait(10) is None
    raises(errors.ClosedError, event.set)
    failed = pjrt_hub.SettableEvent(client)
    failed.set(errors.DataLossError("gone"))
    assert raises(errors.DataLossError, failed.wait).code == 15
    raises(TypeError, pjrt_hub.SettableEvent(client).set, "bad")
    given_up = pjrt_hub.SettableEvent(client)
    del given_up
    left = pjrt_hub.SettableEvent(client)
    client.close()
    raises(errors.ClosedError, left.set)
    del left, event, failed
    assert live() == {}, live()


@with_stub()
def test_an_event_that_is_set_is_ended_once_behind_a_layer():
    """By whoever made it; the stub ends the process where it is ended again."""
    client = Plugin(load(path, through=layers.read("discrete").wrap)).client()
    assert client.platform_name == "discrete"
    for error in (None, errors.DataLossError("gone")):
        event = pjrt_hub.SettableEvent(client)
        before = destroys()
        event.set(error)
        if error is None:
            assert event.wait(10) is None
        else:
            assert raises(errors.DataLossError, event.wait).code == 15
        assert destroys() == before
        del event
        soon(lambda before=before: destroys() == before + 1)


@with_stub()
def test_a_raw_copy_waits_for_its_destination(client, a):
    copy = pjrt_hub.RawCopy(a, 4, 8)
    assert (copy.nbytes, copy.ready.is_ready()) == (8, False)
    out = np.zeros(2, np.float32)
    raises(ValueError, copy.fulfill, np.zeros(3, np.float32))
    raises(ValueError, copy.fulfill, bytes(8))
    copy.fulfill(out)
    copy.ready.wait(10)
    assert out.tolist() == [2, 3], out
    raises(errors.ClosedError, copy.fulfill, out)
    broken = pjrt_hub.RawCopy(a)
    broken.fail(errors.AbortedError("no memory"))
    raises(errors.AbortedError, broken.ready.wait)
    raises(ValueError, pjrt_hub.RawCopy, a, 12, 8)
    forgotten = pjrt_hub.RawCopy(a)
    ready = forgotten.ready
    del forgotten
    raises(errors.CancelledError, ready.wait)
    left = pjrt_hub.RawCopy(a)
    client.close()
    assert left.closed
    del left, copy, broken, ready, a
    assert live() == {}, live()


@with_stub()
def test_neither_asyncio_nor_trio_is_imported_for_the_other(a):
    assert not {"asyncio", "trio"} & set(sys.modules)
    import asyncio

    async def main():
        await a.client.compile(func("identity later"))(a).ready

    asyncio.run(main())
    assert "trio" not in sys.modules
