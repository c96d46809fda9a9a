"""Random use of a client, checked by a model of numpy arrays; also runs as a script.

`python -m usage STEPS` makes at least STEPS steps, in sequences of at most a hundred.
"""

from __future__ import annotations

import contextlib
import gc
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from children import PLATFORM, PROGRAMS, device_count
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import pjrt_hub
from pjrt_hub import HostBufferSemantics
from pjrt_hub.errors import ClosedError, InvalidArgumentError, PjrtError, PluginInternalError

WHICH = st.integers(0, 99)
NUMBER = st.integers(-9, 9)
MOST = 24

#: A function that gives a buffer's content: an array, an error, or None while it is pending.
Value = Callable[[], "np.ndarray | PjrtError | None"]


def sum_of(a: Value, b: Value, earlier: list[Value]) -> Value:
    """The sum that a program gives once its arguments are ready and earlier runs have ended.

    The XLA CPU plugin runs programs one by one: a program that waits for arguments delays the rest.
    """

    def value():
        values = a(), b()
        if any(value is None for value in values) or any(run() is None for run in earlier):
            return None
        failures = [value for value in values if isinstance(value, PjrtError)]
        return failures[0] if failures else values[0] + values[1]

    return value


@dataclass
class Held:
    """A buffer and what the model knows about it."""

    buffer: pjrt_hub.Buffer
    value: Value
    far: bool = False
    gone: bool = False
    users: list[Value] = field(default_factory=list)

    @property
    def free(self):
        """Whether no pending program uses the buffer, so that a donation need not wait."""
        return all(value() is not None for value in self.users)


class Promised:
    """The future content of an alias or a transfer."""

    def __init__(self, giver):
        self.giver = giver
        self.given = None

    def __call__(self):
        return self.given() if callable(self.given) else self.given


def on_held(**given):
    """A rule that runs only if buffers are held; the number `which` picks one of them."""
    return lambda step: precondition(lambda self: self.held)(rule(which=WHICH, **given)(step))


class Usage(RuleBasedStateMachine):
    """All ways of using the two devices of a client, in random order."""

    plugin = pjrt_hub.load(PLATFORM, offline=True)
    saved: dict[str, bytes] = {}
    count = 0

    def __init__(self):
        super().__init__()
        self.arrays = []
        self.open()

    def open(self):
        """Make a new client without buffers."""
        self.client = self.plugin.client(device_count(2))
        if not self.saved:
            for name in ("add", "donate"):
                executable = self.client.compile(PROGRAMS / f"{name}.mlir")
                self.saved[name] = executable.serialize()
        self.executables = {name: self.client.load(code) for name, code in self.saved.items()}
        self.held: list[Held] = []
        self.promises: list[Promised] = []
        self.events = []
        self.references = []
        self.waiting: list[Value] = []

    def waits(self):
        """Whether some program waits for its arguments and thus delays later ones."""
        return any(run() is None for run in self.waiting)

    def hold(self, buffer, value, far=False):
        self.held.append(Held(buffer, value, far))
        if len(self.held) > MOST:
            self.held.pop(0)

    def pick(self, which):
        return self.held[which % len(self.held)]

    def settled(self, which):
        """A buffer that is not deleted and not pending, or None."""
        held = self.pick(which)
        return None if held.gone or held.value() is None else held

    @staticmethod
    def refused(held, error, use):
        try:
            use()
        except error:
            return
        raise AssertionError(f"{use} was not refused by {error}: {held}")

    def reads(self, held, read):
        """Check that reading a buffer gives its value, its error, or the error of a deletion."""
        expected = held.value()
        if not held.gone and expected is not None:
            with contextlib.suppress(PjrtError):
                held.buffer.ready.wait(10)  # a value that never comes would hang silently
        if held.gone:
            self.refused(held, ClosedError, read)
        elif isinstance(expected, PjrtError):
            self.refused(held, type(expected), read)
        elif expected is not None:
            np.testing.assert_array_equal(read(), expected)

    @rule(number=NUMBER, semantics=st.sampled_from(HostBufferSemantics), far=st.booleans())
    def put(self, number, semantics, far):
        array = pjrt_hub.empty_aligned((8,))
        array[:] = np.arange(number, number + 8)
        where = self.client.devices[far]
        mutable = semantics is HostBufferSemantics.MUTABLE_ZERO_COPY
        expected = array.copy() if mutable else array
        buffer = self.client.buffer_from_host(array, semantics=semantics, device=where)
        if semantics is HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL:
            expected = array.copy()
            array[:] = -1
        self.hold(buffer, lambda: expected, far)

    @on_held(other=WHICH, rows=st.booleans())
    def add(self, which, other, rows):
        a, b = self.pick(which), self.pick(other)
        executable = self.executables["add"]

        def run():
            if rows:
                return executable.execute([[a.buffer, b.buffer]])[0][0]
            return executable(a.buffer, b.buffer)

        if a.gone or b.gone:  # deletion is checked after the device
            self.refused((a, b), (ClosedError, ValueError) if a.far or b.far else ClosedError, run)
        elif a.far or b.far:
            self.refused((a, b), ValueError, run)
        else:
            self.waiting = [run for run in self.waiting if run() is None]
            value = sum_of(a.value, b.value, self.waiting)
            self.hold(run(), value)
            self.waiting = [*self.waiting, value]
            for held in (a, b):
                held.users.append(value)

    @on_held(other=WHICH)
    def donate(self, which, other):
        a, b = self.settled(which), self.settled(other)
        if not a or not b or a.far or b.far or self.waits():
            return
        if isinstance(a.value(), PjrtError) or isinstance(b.value(), PjrtError):
            return  # the plugin later undoes such a donation
        run = self.executables["donate"]
        if a is b:
            self.refused(a, InvalidArgumentError, lambda: run(a.buffer, a.buffer))
            self.reads(a, a.buffer.to_numpy)
            return
        result = sum_of(a.value, b.value, [])()
        self.hold(run(a.buffer, b.buffer), lambda: result)
        a.gone = a.buffer.is_deleted  # borrowed memory is not donated
        if not a.gone:
            self.reads(a, a.buffer.to_numpy)

    @on_held(keep=st.booleans())
    def read(self, which, keep):
        held = self.pick(which)
        if held.gone or held.value() is not None:
            self.reads(held, held.buffer.to_numpy)
            if keep and not held.gone and isinstance(held.value(), np.ndarray):
                self.arrays.append((held.buffer.to_numpy(), held.value().copy()))
                del self.arrays[:-MOST]

    @on_held()
    def look(self, which):
        """Looking never waits and never raises."""
        held = self.pick(which)
        assert repr(held.buffer)
        assert held.buffer.is_deleted == held.gone
        assert (held.buffer.shape, held.buffer.nbytes) == ((8,), 32)

    @on_held()
    def view(self, which):
        held = self.pick(which)
        if held.gone or held.value() is not None:
            self.reads(held, lambda: np.frombuffer(memoryview(held.buffer), np.float32))

    @on_held()
    def raw_copy(self, which):
        held = self.pick(which)

        def read():
            destination = np.empty(8, np.float32)
            held.buffer.copy_raw_to_host(destination).wait()
            return destination

        if held.gone or held.value() is not None:
            self.reads(held, read)

    @on_held()
    def pickles(self, which):
        held = self.pick(which)
        if held.gone or held.value() is not None:
            self.reads(held, lambda: pickle.loads(pickle.dumps(held.buffer)))

    @on_held()
    def lend_and_borrow(self, which):
        """Pass a buffer to numpy and back by DLPack, which shares the memory."""
        held = self.settled(which)
        if held and isinstance(held.value(), np.ndarray):
            array = np.from_dlpack(held.buffer)
            np.testing.assert_array_equal(array, held.value())
            expected = held.value().copy()
            device = self.client.devices[0]
            self.hold(self.client.from_dlpack(array, device=device), lambda: expected)

    @on_held(far=st.booleans(), memory=st.booleans())
    def copy(self, which, far, memory):
        held = self.pick(which)
        device = self.client.devices[far]

        def make():
            if memory:
                return held.buffer.copy_to_memory(device.default_memory)
            return held.buffer.copy_to_device(device)

        if held.gone:
            self.refused(held, ClosedError, make)
        elif held.value() is not None:
            self.hold(make(), held.value, far)

    @on_held()
    def delete(self, which):
        held = self.pick(which)
        held.buffer.delete()
        held.gone = True

    @on_held()
    def forget(self, which):
        self.held.pop(which % len(self.held))

    @on_held(callback=st.booleans())
    def ready(self, which, callback):
        held = self.pick(which)
        if held.gone:
            self.refused(held, ClosedError, lambda: held.buffer.ready)
            return
        event = held.buffer.ready
        if callback:
            event.add_done_callback(repr)
        if held.value() is None:
            assert not event.is_ready()
            self.refused(held, TimeoutError, lambda: event.wait(0))
            self.events = [*self.events[-MOST:], event]
        elif isinstance(held.value(), PjrtError):
            self.refused(held, type(held.value()), event.wait)
        else:
            event.wait()

    @on_held()
    def refer(self, which):
        held = self.settled(which)
        if held and isinstance(held.value(), np.ndarray):
            reference = pjrt_hub.ExternalReference(held.buffer)
            assert reference.pointer
            self.references = [*self.references[-MOST:], reference]

    @precondition(lambda self: self.references)
    @rule(which=WHICH)
    def give_back(self, which):
        self.references.pop(which % len(self.references)).release()

    @rule()
    def promise(self):
        alias = pjrt_hub.Alias(self.client, (8,))
        value = Promised(alias)
        self.promises.append(value)
        self.hold(alias.buffer, value)

    @precondition(lambda self: self.promises and self.held)
    @rule(which=WHICH, other=WHICH)
    def fulfill(self, which, other):
        promise = self.promises[which % len(self.promises)]
        held = self.settled(other)
        if not held or held.far or not held.free:
            return
        if held.buffer._is_lent:
            self.refused(held, BufferError, lambda: promise.giver.fulfill(held.buffer))
            return
        promise.given = held.value()
        promise.giver.fulfill(held.buffer)
        self.promises.remove(promise)
        held.gone = held.buffer.is_deleted
        self.refused(held, (ClosedError, ValueError), lambda: promise.giver.fulfill(held.buffer))

    @precondition(lambda self: self.promises)
    @rule(which=WHICH)
    def break_promise(self, which):
        promise = self.promises.pop(which % len(self.promises))
        promise.given = PluginInternalError("on purpose")
        promise.giver.fail(promise.given)

    @rule(number=NUMBER, early=st.booleans())
    def transfer(self, number, early):
        """Transfer two buffers in parts; the second one fails."""
        array = np.arange(number, number + 8, dtype=np.float32)
        with pjrt_hub.Transfer(self.client, [((8,), "f32")] * 2) as transfer:
            buffers = [transfer.retrieve_buffer(index) for index in (0, 1)] if early else []
            transfer.transfer_data(0, array[4:], offset=16)
            transfer.transfer_data(0, array[:4], is_last=True)
            failure = PluginInternalError("on purpose")
            transfer.set_buffer_error(1, failure)
            buffers = buffers or [transfer.retrieve_buffer(index) for index in (0, 1)]
        self.hold(buffers[0], lambda: array)
        self.hold(buffers[1], lambda: failure)

    @rule(number=NUMBER)
    def borrow_memory(self, number):
        memory = pjrt_hub.empty_aligned((8,))
        memory[:] = number
        expected = memory.copy()
        self.hold(self.client.create_view_of_device_buffer(memory, (8,)), lambda: expected)

    @rule(name=st.sampled_from(("add", "donate")))
    def reload(self, name):
        old = self.executables[name]
        assert old.serialize() == self.saved[name]
        self.executables[name] = self.client.load(self.saved[name])
        old.close()
        self.refused(old, ClosedError, old)

    @rule(chance=st.integers(0, 9))
    def close(self, chance):
        if chance:
            return
        gc.collect()
        self.client.close()
        for held in self.held:
            held.gone = True
            self.reads(held, held.buffer.to_numpy)
        for event in self.events:
            self.refused(event, ClosedError, event.wait)
        self.refused(self.client, ClosedError, lambda: self.client.buffer_from_host([1.0]))
        self.open()

    @invariant()
    def counted(self):
        Usage.count += 1

    def teardown(self):
        """Check that arrays read earlier are unchanged and buffers still hold their values."""
        for array, expected in self.arrays:
            np.testing.assert_array_equal(array, expected)
        for held in self.held:
            if held.gone or held.value() is not None:
                self.reads(held, held.buffer.to_numpy)
        self.client.close()
        for array, expected in self.arrays:
            np.testing.assert_array_equal(array, expected)


if __name__ == "__main__":
    wanted = int(sys.argv[1])
    while Usage.count < wanted:
        run_state_machine_as_test(
            Usage,
            settings=settings(
                max_examples=20,
                stateful_step_count=100,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    print(Usage.count)
