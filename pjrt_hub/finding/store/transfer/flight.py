"""One fetch for all threads of a process that ask at once.

Threads wait for the one that fetches, not for a lock file. Must not fetch anything itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from typing import TypeVar

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import PjrtHubError

T = TypeVar("T")

_flights: dict[Hashable, Future[object]] = {}
_changing = Lock()


def share(key: Hashable, work: Callable[[], T], *, patience_seconds: float) -> T:
    """Return the result of `work`, done once for all threads that ask for `key` meanwhile.

    All of them get a PjrtHubError of `work`; if something else ended it, such as Ctrl-C, the next
    thread starts over. A thread that has waited for `patience_seconds` does the work as well.
    """
    while True:
        with _changing:
            flight = _flights.get(key)
            if flight is None:
                mine = _flights[key] = Future()
        if flight is None:
            return _fly(key, mine, work)
        try:
            return flight.result(patience_seconds)  # type: ignore[return-value]
        except Late:
            return work()
        except _Ended:
            continue


class _Ended(Exception):
    """The working thread was stopped; its result is unknown."""


def _fly(key: Hashable, flight: Future[object], work: Callable[[], T]) -> T:
    try:
        value = work()
    except BaseException as exc:
        _land(key, flight)
        flight.set_exception(exc if isinstance(exc, PjrtHubError) else _Ended())
        raise
    _land(key, flight)
    flight.set_result(value)
    return value


def _land(key: Hashable, flight: Future[object]) -> None:
    with _changing:
        if _flights.get(key) is flight:  # A forked child has forgotten the flight.
            del _flights[key]


def _after_fork() -> None:
    """Forget the work of the parent's threads, which do not exist in the child."""
    _flights.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
