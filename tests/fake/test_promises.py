"""What a plugin waits for: kept once, broken once, and given up where nobody keeps it."""

from __future__ import annotations

import sys

import numpy as np
from stubbed import func, live, raises, with_stub

from pjrt_hub import errors


@with_stub()
def test_an_event_is_set_once(client):
    event = client.create_event()
    assert not event.is_ready()
    event.set()
    assert event.wait(10) is None
    raises(errors.ClosedError, event.set)
    failed = client.create_event()
    failed.set(errors.DataLossError("gone"))
    assert raises(errors.DataLossError, failed.wait).code == 15
    raises(TypeError, client.create_event().set, "bad")
    given_up = client.create_event()
    del given_up
    left = client.create_event()
    client.close()
    raises(errors.ClosedError, left.set)
    del left, event, failed
    assert live() == {}, live()


@with_stub()
def test_a_raw_copy_waits_for_its_destination(client, a):
    copy = a.copy_raw_to_host_future(4, 8)
    assert (copy.nbytes, copy.ready.is_ready()) == (8, False)
    out = np.zeros(2, np.float32)
    raises(ValueError, copy.fulfill, np.zeros(3, np.float32))
    raises(ValueError, copy.fulfill, bytes(8))
    copy.fulfill(out)
    copy.ready.wait(10)
    assert out.tolist() == [2, 3], out
    raises(errors.ClosedError, copy.fulfill, out)
    broken = a.copy_raw_to_host_future()
    broken.fail(errors.AbortedError("no memory"))
    raises(errors.AbortedError, broken.ready.wait)
    raises(ValueError, a.copy_raw_to_host_future, 12, 8)
    forgotten = a.copy_raw_to_host_future()
    ready = forgotten.ready
    del forgotten
    raises(errors.CancelledError, ready.wait)
    left = a.copy_raw_to_host_future()
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
