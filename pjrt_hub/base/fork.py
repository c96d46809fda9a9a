"""Locks and cached properties that threads may share, and that still work in a forked child.

A fork copies the locks that are held at that moment, but not the threads that would release them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """A reentrant lock for `with`; it is free in a forked child, even if the parent held it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc_info: object) -> None:
        with contextlib.suppress(RuntimeError):  # A forked child's new lock was never taken.
            self._lock.release()


class _CachedProperty(functools.cached_property[Any]):
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return instance.__dict__.setdefault(self.attrname, self.func(instance))


if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:
    #: This is `functools.cached_property` without the lock that all instances share before
    #: Python 3.12. Several threads may compute a value at once, but all get the first result.
    cached_property = _CachedProperty


def _after_fork() -> None:
    for lock in tuple(_locks):
        lock._lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # Windows has no fork.
    os.register_at_fork(after_in_child=_after_fork)
