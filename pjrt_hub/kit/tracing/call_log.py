"""The call log: a line of text for each call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pjrt_hub.kit.tracing.arguments import as_text, inputs, results
from pjrt_hub.kit.tracing.call import Call
from pjrt_hub.kit.tracing.recording import Recording


def lines(recording: Recording, calls: Iterable[Call]) -> Iterator[str]:
    """Yield a line for each call: time, thread, arguments, results, duration.

    Args:
        recording: the recording that has the calls.
        calls: the calls to show.
    """
    processes = len({thread.pid for thread in recording.threads})
    for call in calls:
        where = f"{call.thread.pid}." if processes > 1 else ""
        yield (
            f"{call.start_ns / 1e6:12.3f} ms  {where}{call.thread.number}  #{call.number} "
            f"{call.function}({as_text(inputs(call))}){outcome(recording, call)}"
        )


def outcome(recording: Recording, call: Call) -> str:
    """Describe the outcome of a call: ` -> buffer=0x..., 12.3 us`.

    Args:
        recording: the recording that has the call.
        call: one of its calls.
    """
    if call.duration_ns is None:
        return " did not return"
    took = duration(call.duration_ns)
    if call.answered:
        return f" -> answered by the validation layer, {took}"
    if call.error:
        return f" -> {call.status}, {took}"
    made = as_text(results(call, recording.minor(call)))
    return f" -> {made}, {took}" if made else f", {took}"


def duration(nanoseconds: float) -> str:
    """Format a time: "12.3 us".

    Args:
        nanoseconds: the time.
    """
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"
