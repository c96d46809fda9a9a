"""Events: waiting, callbacks, events that the caller makes, and early destruction."""

from __future__ import annotations

import math
from typing import Any

from pjrt_hub.errors import DataLossError, PjrtError
from pjrt_hub.kit.conformance import separate_process
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Failed, Unsupported, equal, expect, raise_as
from pjrt_hub.kit.conformance.programs import NUMBERS
from pjrt_hub.kit.conformance.slow import expect_over, is_identity, slow, slow_rounds
from pjrt_hub.kit.conformance.subject import GIVEN_ERROR, GIVEN_ERROR_AND_MORE, Subject
from pjrt_hub.kit.conformance.threads import at_once
from pjrt_hub.running.capi.call_counter import CallCounter, take_error


@check(number=114)
def ready(subject: Subject) -> None:
    """Await a buffer's ready event twice -> success; IsReady is true and Error is NULL."""
    event = subject.ready(subject.put(NUMBERS))
    for _ in range(2):
        subject.call("PJRT_Event_Await", event=event)
    subject.expect_ready(event, "after Await")
    subject.call("PJRT_Event_Error", event=event)


@check(number=114)
def becomes_ready(subject: Subject) -> None:
    """Await the event of running work -> the work is done, and IsReady is true."""
    buffer = slow(subject)
    event = subject.ready(buffer)
    if subject.call("PJRT_Event_IsReady", event=event):
        subject.note("the work was done before it was asked for: execution is not asynchronous")
    subject.call("PJRT_Event_Await", event=event)
    subject.expect_ready(event, "after Await")
    expect(is_identity(subject, buffer), "a ready buffer has another value than computed")


@check(number=114)
def await_is_not_early(subject: Subject) -> None:
    """Await the ready event of running work, then read the output -> it is there at once."""
    text = "after Await: expected the output, found work that goes on"
    expect_over(subject, text, lambda output, _: subject.wait(output))


@check(number=114)
def is_ready_is_not_early(subject: Subject) -> None:
    """Poll IsReady of running work, then read the output -> it is there at once."""
    text, poll = "IsReady: expected false during work, found true", subject.is_ready_within
    expect_over(subject, text, lambda output, _: poll(subject.ready(output), math.inf))


@check(number=115)
def callback_is_not_early(subject: Subject) -> None:
    """Wait for a callback of running work, then read the output -> it is there at once."""
    text = "the callback: expected after the work, found during it"
    tell = subject.on_ready
    expect_over(subject, text, lambda output, _: tell(subject.ready(output)).wait_first())


def _errors_of_callback(subject: Subject, event: int) -> list[PjrtError | None]:
    """Return the errors of all calls of one callback on an event."""
    calls = subject.on_ready(event).wait()
    return [take_error(subject.api.address, error) for error in calls]


@check(number=115)
def callback_after_completion(subject: Subject) -> None:
    """Call OnReady on a ready event -> one call, with a NULL error."""
    event = subject.ready(subject.put(NUMBERS))
    equal(_errors_of_callback(subject, event), [None], "the errors of the callback's calls")


@check(number=115)
def callback_before_completion(subject: Subject) -> None:
    """Call OnReady on the event of running work -> one call, with a NULL error."""
    event = subject.ready(slow(subject))
    equal(_errors_of_callback(subject, event), [None], "the errors of the callback's calls")


@check(number=115)
def several_callbacks(subject: Subject) -> None:
    """Call OnReady three times on one event -> each callback is called once."""
    event = subject.ready(slow(subject))
    called = [subject.on_ready(event) for _ in range(3)]
    equal([len(each.wait()) for each in called], [1, 1, 1], "how often each callback came")


@check(number=115)
def callback_outlives_its_event(subject: Subject) -> None:
    """Call OnReady, then destroy the pending event -> the callback is still called once."""
    event = subject.ready(slow(subject))
    called = subject.on_ready(event)
    subject.destroy(event)
    equal(len(called.wait()), 1, "how often the callback came")


@check(number=115, seconds=60)
def callback_uses_its_event(subject: Subject) -> None:
    """Query, await, destroy an event in its callback, register another callback -> all work."""
    rounds = slow_rounds(subject)
    for when, what in {"a ready event": 0, "running work": rounds}.items():
        words = f"a callback of {when} that uses its event: the process"
        with raise_as(Failed, words, separate_process.Died):
            separate_process.run(subject, uses_its_event, what, seconds=20)


def uses_its_event(subject: Subject, rounds: int) -> None:
    """Call an event's functions in its callback, in a process that may hang.

    The event is that of work of so many `rounds`, or of a ready buffer if `rounds` is 0.
    """
    call, nested, done = subject.api.call, CallCounter(), []

    def use() -> None:
        done.append(call("PJRT_Event_IsReady", event=event))
        call("PJRT_Event_Await", event=event)
        call("PJRT_Event_OnReady", event=event, callback=nested.address, user_arg=0)
        call("PJRT_Event_Destroy", event=event)

    buffer = slow(subject, rounds) if rounds else subject.put(NUMBERS)
    event = subject.disown(subject.ready(buffer))
    called = CallCounter(use)
    if not rounds:
        subject.call("PJRT_Event_Await", event=event)
    call("PJRT_Event_OnReady", event=event, callback=called.address, user_arg=0)
    equal(len(called.wait()), 1, "how often the callback came")
    equal(len(nested.wait()), 1, "how often the callback came that the callback registered")
    equal(done, [True], "IsReady inside the callback")


@check(since=89, number=116)
def created_is_pending(subject: Subject) -> None:
    """Create an event, set it to OK -> not ready before, ready without an error after."""
    event = subject.own("Event", subject.call("PJRT_Event_Create"))
    subject.expect_ready(event, "before Set", False)
    subject.call("PJRT_Event_Set", event=event, error_code=0, error_message="")
    subject.expect_ready(event, "after Set")
    subject.await_(event)


@check(since=89, number=116)
def created_fails(subject: Subject) -> None:
    """Create an event, set it to an error -> Await returns its code and text."""
    event = _failed_event(subject)
    subject.expect_given_error(lambda: subject.await_(event), "awaiting it", DataLossError.code)


@check(since=89, number=116)
def created_fails_in_words(subject: Subject) -> None:
    """Set an event to an error whose text goes on past its size -> Await's text does not."""
    event = _failed_event(subject, GIVEN_ERROR_AND_MORE)
    subject.expect_given_error(lambda: subject.await_(event), "awaiting it")


@check(since=89, number=115)
def callback_of_a_failure(subject: Subject) -> None:
    """Call OnReady on a failed event -> one call, with an error of the event's code."""
    errors = _errors_of_callback(subject, _failed_event(subject))
    codes = [None if error is None else error.code for error in errors]
    equal(codes, [DataLossError.code], "the codes of the callback's errors")


def _failed_event(subject: Subject, error: dict[str, Any] = GIVEN_ERROR) -> int:
    event = subject.own("Event", subject.call("PJRT_Event_Create"))
    subject.call("PJRT_Event_Set", event=event, **error)
    return event


@check(number=117)
def destroyed_while_pending(subject: Subject) -> None:
    """Destroy the event of running work -> the work is completed."""
    buffer = slow(subject)
    subject.destroy(subject.ready(buffer))
    expect(is_identity(subject, buffer), "the buffer has another value than computed")


@check(number=118)
def awaited_by_threads(subject: Subject) -> None:
    """Await the same buffer in 4 threads, 100 times each -> no error."""
    buffer = slow(subject)

    def wait() -> None:
        for _ in range(100):
            event = subject.api.call("PJRT_Buffer_ReadyEvent", buffer=buffer)
            subject.api.call("PJRT_Event_Await", event=event)
            subject.api.call("PJRT_Event_Destroy", event=event)

    if not subject.api.has("PJRT_Event_Await"):
        raise Unsupported("the plugin lacks PJRT_Event_Await")
    equal(at_once([wait] * 4), [None] * 4, "the errors of 4 times 100 awaits")
