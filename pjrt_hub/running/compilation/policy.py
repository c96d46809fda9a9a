"""Policies: what whoever found a plugin decides for it, which the plugin itself cannot tell.

Owns what holds of a library that nobody described; the door's knows manifests and caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.base.frozen import frozen
from pjrt_hub.running.capi.values import NamedValue
from pjrt_hub.running.device.device import DeviceClient
from pjrt_hub.running.program.compile_flags import CompileFlags
from pjrt_hub.running.program.option import Flag


class CompileCache(Protocol):
    """Keeps serialized executables; may forget any of them, and never raises for want of space."""

    def get(self, key: str) -> bytes | None:
        """Return what was put under a key, or None."""

    def put(self, key: str, value: bytes) -> None:
        """Keep a value; an equal key has an equal value."""


@frozen
class Workplace:
    """Where a plugin compiles outside of this process.

    Attributes:
        env: the variables that the plugin was loaded with.
        preload: the libraries that are loaded before it.
        seconds: how long a compilation may take.
    """

    env: Mapping[str, str]
    preload: Sequence[Path]
    seconds: float


class Policy:
    """Decides nothing: options pass as they are, nothing is tried first, cached or isolated.

    Attributes:
        name: what the plugin was chosen as; None is its file's name.
        compile_cache: what `Client.compile(cache=True)` uses, or None.
        caches_by_default: whether `Client.compile` uses it unasked.
        isolates_by_default: whether `Client.compile` compiles in a process of its own unasked.
        reload: loads the same plugin in another process, or None; must be picklable.
    """

    compile_cache: CompileCache | None = None
    caches_by_default = False
    isolates_by_default = False
    reload: Callable[[], Any] | None = None

    def __init__(self, name: str | None = None) -> None:
        self.name = name

    def check_create_options(
        self, options: Mapping[str, NamedValue], version: ApiVersion
    ) -> Mapping[str, NamedValue]:
        """Check a user's create options for a plugin of that version; return those to send."""
        return options

    def check_topology_options(
        self, name: str, options: Mapping[str, NamedValue], version: ApiVersion
    ) -> tuple[str, Mapping[str, NamedValue]]:
        """Check a machine's name and its topology options; return those to send."""
        return name, options

    def takes_option(self, name: str) -> bool:
        """Return whether there is a create option of that name."""
        return True

    def try_client(self, options: Mapping[str, NamedValue]) -> None:
        """Raise where making a client with these checked options would end this process."""

    def compile_flags(
        self, given: Mapping[str, Flag], version: ApiVersion, code: bytes
    ) -> Mapping[str, Flag]:
        """Return the flags to compile a program with, beside those that the user gave."""
        return {}

    def sha256(self) -> str | None:
        """Return the library's digest where it is known; None has the file hashed."""
        return None

    def workplace(self) -> Workplace | None:
        """Return where isolated compilations run; None isolates nothing."""
        return None


class CompilingClient(DeviceClient):
    """A client as a compilation sees it.

    Attributes:
        policy: its plugin's.
        compile_flags: its plugin's own flags, less those that were refused.
        options: the create options that it was asked for with.
    """

    policy: Policy
    compile_flags: CompileFlags
    options: Mapping[str, Any]
    #: Why no other process could have a client as this one; empty where none was tried, or could.
    _not_isolated = ""
