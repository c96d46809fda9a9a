"""What a plugin waits for: kept once, broken once, and given up where nobody keeps it."""

from __future__ import annotations


def test_an_event_is_set_once(stub, check) -> None:
    check(
        stub(),
        """
client = Plugin(load(path)).client()
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
""",
    )


def test_a_raw_copy_waits_for_its_destination(stub, check) -> None:
    check(
        stub(),
        """
client = Plugin(load(path)).client()
a = client.buffer_from_host(ONE_TO_FOUR)
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
""",
    )
