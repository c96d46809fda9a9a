"""Handles: what helpers know of a native object: its address, and how to call functions on it.

Helpers take these types and never `Client`: objects that a client gives out need not know it.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol, Self, TypeVar

from pjrt_hub.base.fork import cached_property
from pjrt_hub.errors import ClosedError, PjrtError
from pjrt_hub.running.capi import hotpath
from pjrt_hub.running.capi.library import Api

#: Every living client of this process, the oldest first.
clients: weakref.WeakValueDictionary[int, ClientHandle] = weakref.WeakValueDictionary()
_numbers = itertools.count()

T = TypeVar("T")

#: The attributes of a class that `compact` must not copy to the class that it makes.
_OWN = frozenset({"__dict__", "__weakref__", "__slots__"})


class Handle(Protocol):
    """A client or a topology."""

    @property
    def api(self) -> Api: ...
    @property
    def address(self) -> int: ...

    def _in_call(self) -> AbstractContextManager[object]: ...


class ExecutableHandle(Protocol):
    """A compiled program, loaded or not."""

    @property
    def api(self) -> Api: ...

    def view(self) -> AbstractContextManager[int]: ...


class ClientHandle(hotpath.Client):
    """A client, without its devices."""

    api: Api
    platform_name: str  # "cpu", "cuda", "tpu", ... (`PJRT_Client_PlatformName`).
    #: The name by which a plugin behind layers was chosen; None without layers.
    _layered_name: str | None = None
    #: What an executable must have been compiled with to be loaded here; None until asked for.
    _guards: Any = None

    @cached_property
    def platform_version(self) -> str:
        """The plugin's description of its version (`PJRT_Client_PlatformVersion`)."""
        return self._ask("PJRT_Client_PlatformVersion").decode()

    def _ask(self, function: str) -> Any:
        return self._call(function, client=self.address)


class Closing:
    """A base that makes a class with `close` a context manager: leaving the block closes it."""

    __slots__ = ()

    def close(self) -> None:
        """Release what the object holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def compiler_platform(client: ClientHandle) -> str:
    """Return a client's platform, or the plugin's own name behind layers, which may rename it."""
    return client._layered_name or client.platform_name


def register(client: ClientHandle) -> None:
    """List a client in `clients`."""
    clients[next(_numbers)] = client


def free_with(owner: object, call: Callable[..., object], function: str, **handle: int) -> None:
    """Free a native object by a C function when its owner dies, except when Python exits."""
    weakref.finalize(owner, free, call, function, **handle).atexit = False


def free(call: Callable[..., object], function: str, **handle: int) -> None:
    """Free a native object, or leave it if that fails: a leak is better than a crash."""
    with suppress(ClosedError, PjrtError):  # Calls in a forked child raise ClosedError.
        call(function, **handle)


def compact(statement: type[T], /) -> type[T]:
    """Remake a class, with instances as small as those of its C base.

    Its functions cannot use `super()` and `__class__`, which mean the original class.
    """
    made = hotpath.compact_type(
        statement.__bases__[0], f"{statement.__module__}.{statement.__qualname__}"
    )
    for name, value in statement.__dict__.items():
        if name not in _OWN:
            setattr(made, name, value)
    return made
