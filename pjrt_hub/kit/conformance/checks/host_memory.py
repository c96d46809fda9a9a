"""Host memory: arrays with strides, and when the caller may use the memory again."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Unsupported, equal, expect, raise_as
from pjrt_hub.kit.conformance.slow import is_identity, slow_arguments, slow_program
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.array.host_array import empty_aligned

# The numbers are those of PJRT_HostBufferSemantics.
_DURING_CALL, _UNTIL_TRANSFER, _IMMUTABLE, _MUTABLE = range(4)

_ARRAY = np.arange(24, dtype=np.float32).reshape(4, 6)
_STRIDED: dict[str, tuple[str, np.ndarray[Any, Any]]] = {
    "by_columns": ("by columns", np.asfortranarray(_ARRAY)),
    "padded_rows": ("with room behind each row", _ARRAY[:, :4]),
    "every_other": ("that skips every other column", _ARRAY[:, ::2]),
    "backwards": ("backwards, with a negative stride", _ARRAY[::-1]),
    "repeated": ("of one row, three times", np.broadcast_to(_ARRAY[1], (3, 6))),
}


def _strided_put(subject: Subject, array: np.ndarray[Any, Any]) -> None:
    with raise_as(Unsupported, "it takes no such strides:"):
        buffer = subject.put(array, data=array.ctypes.data, byte_strides=array.strides)
    equal(subject.get(buffer).tolist(), array.tolist(), "the values")


for _name, (_words, _array) in _STRIDED.items():
    check(
        area="transfers",
        number=95,
        name=f"strides_{_name}",
        title=f"Put an array {_words} -> the values come back by rows.",
    )(partial(_strided_put, array=_array))


_LONG = np.arange(1 << 16, dtype=np.float32)


class _Put(NamedTuple):
    """An array on its way, and the memory that it comes from."""

    memory: np.ndarray[Any, Any]
    buffer: int
    done: int


def _put(subject: Subject, semantics: int, array: np.ndarray[Any, Any] = _LONG) -> _Put:
    memory = empty_aligned(array.shape)
    memory[:] = array
    buffer, done = subject.send(memory, host_buffer_semantics=semantics)
    return _Put(memory, buffer, subject.own("Event", done))


def _has_values(subject: Subject, put: _Put) -> None:
    found = subject.get(put.buffer)
    expect(np.array_equal(found, _LONG), "the buffer has other values than were put")


def _expect_done(subject: Subject, put: _Put, of: str = "") -> None:
    """Fail unless the memory is free within seconds."""
    fired = subject.is_ready_within(put.done, 10)
    expect(fired, f"done_with_host_buffer{of}: expected to fire, found pending")


@check(area="transfers", number=96)
def memory_only_during_call(subject: Subject) -> None:
    """Put with ImmutableOnlyDuringCall, overwrite the memory at once -> the old values."""
    put = _put(subject, _DURING_CALL)
    put.memory[:] = -1
    _has_values(subject, put)
    _expect_done(subject, put)


@check(area="transfers", number=96)
def memory_until_transfer(subject: Subject) -> None:
    """Put with ImmutableUntilTransferCompletes, await done, overwrite -> the old values."""
    put = _put(subject, _UNTIL_TRANSFER)
    _expect_done(subject, put)
    put.memory[:] = -1
    _has_values(subject, put)


def _zero_copy(subject: Subject, semantics: int) -> None:
    put = _put(subject, semantics)
    _has_values(subject, put)
    if not subject.call("PJRT_Event_IsReady", event=put.done):
        subject.note("the memory is shared: its event waits for the buffer's end")
    subject.destroy(put.buffer)
    _expect_done(subject, put, " of a destroyed buffer")


@check(area="transfers", number=96)
def memory_immutable_zero_copy(subject: Subject) -> None:
    """Put with ImmutableZeroCopy, destroy the buffer -> the values; done fires by then."""
    _zero_copy(subject, _IMMUTABLE)


@check(area="transfers", since=48, number=96)
def memory_mutable_zero_copy(subject: Subject) -> None:
    """Put with MutableZeroCopy, destroy the buffer -> the values; done fires by then."""
    _zero_copy(subject, _MUTABLE)


@check(area="transfers", number=96)
def memory_of_running_work(subject: Subject) -> None:
    """Run on a zero-copy buffer, destroy it, overwrite the memory when done fires -> old values."""
    identity, rounds = slow_arguments(subject)
    put = _put(subject, _IMMUTABLE, subject.get(identity))
    (output,) = subject.execute(slow_program(subject), [put.buffer, rounds])
    subject.destroy(put.buffer)
    _expect_done(subject, put)
    put.memory[:] = -1
    expect(is_identity(subject, output), "the output is another value than computed")
