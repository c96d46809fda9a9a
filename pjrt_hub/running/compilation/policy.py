"""Policies: decisions about a plugin that are made by the code that found it, not by the plugin.

Owns the policy for a library without a manifest; the one in `door` knows manifests and caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pjrt_hub.base import log
from pjrt_hub.running.device.device import DeviceClient

if TYPE_CHECKING:
    from pjrt_hub.base.abi import ApiVersion
    from pjrt_hub.errors import PjrtError
    from pjrt_hub.running.capi.values import NamedValue
    from pjrt_hub.running.program.compile_options import CompileOptions
    from pjrt_hub.running.program.option import Flag


class CompileCache(Protocol):
    """A store of serialized executables; may forget any, and never raises for lack of space."""

    def get(self, key: str) -> bytes | None:
        """Return what was put under a key, or None."""

    def put(self, key: str, value: bytes) -> None:
        """Keep a value; an equal key always has an equal value."""


class Workplace(NamedTuple):
    """The settings with which a plugin compiles in another process."""

    env: Mapping[str, str]  # The environment variables that the plugin was loaded with.
    preload: Sequence[Path]  # The libraries to load before the plugin.
    seconds: float  # The limit for one compilation.


class DefaultFlags:
    """The flags that one plugin's compilations get if their options do not set them.

    XLA drops and renames its flags between versions, and no table of a plugin says which ones it
    has: a flag that was refused once is not tried again. `choose` takes the flags of a user's
    options and a program.
    """

    def __init__(self, choose: Callable[[Mapping[str, Flag], bytes], Mapping[str, Flag]]) -> None:
        self._choose = choose
        self._refused: set[str] = set()

    def beside(self, given: Mapping[str, Flag], code: bytes = b"") -> dict[str, Flag]:
        """Return the flags to add to the flags `given`, for a program."""
        chosen = self._choose(given, code).items()
        taken = self._refused | given.keys()
        return {name: value for name, value in chosen if name not in taken}

    def over(self, options: CompileOptions, code: bytes) -> CompileOptions:
        """Return `options` with the default flags added that apply, for a program."""
        added = self.beside(options.flags, code)
        if not added:
            return options
        from dataclasses import replace

        return replace(options, flags={**added, **options.flags})

    def leave_out(
        self, refused: str, given: CompileOptions, sent: CompileOptions, error: PjrtError
    ) -> bool:
        """Send a refused flag no more; return False if it was not one of the default flags.

        The user's own flags, in `given`, are never left out; `sent` are the options with the flag.
        """
        if refused not in sent.flags or refused in given.flags:
            return False
        self._refused.add(refused)
        text = f"compiling without the default flag {refused}: {error.message}"
        log.warn("pjrt_hub.compile_flags", text)
        return True


class Policy:
    """A policy that decides nothing: it passes options on, and tries, caches, isolates nothing."""

    compile_cache: CompileCache | None = None  # The cache for `Client.compile(cache=True)`.
    caches_by_default = False  # Whether `Client.compile` caches by default.
    isolates_by_default = False  # Whether it compiles in another process by default.
    reload: Callable[[], Any] | None = None  # A picklable function that loads the plugin.
    default_flags = DefaultFlags(lambda _given, _code: {})  # This leaves out refused flags.

    def __init__(self, name: str | None = None) -> None:
        self.name = name  # The name by which the plugin was chosen; None means its file's name.

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
        """Return whether the plugin takes a create option of that name."""
        return True

    def try_client(self, options: Mapping[str, NamedValue]) -> None:
        """Raise if making a client with these checked options would end this process."""

    def compile_flags(
        self, given: Mapping[str, Flag], version: ApiVersion, code: bytes
    ) -> Mapping[str, Flag]:
        """Return the flags to compile a program with, beside those that the user gave."""
        return {}

    def compile_hint(self, error: PjrtError) -> str:
        """Return the next step after an error of the compiler, if it is known here; else ""."""
        return ""

    def sha256(self) -> str | None:
        """Return the library's digest if it is known; if it is None, the file is hashed."""
        return None

    def workplace(self) -> Workplace | None:
        """Return the settings for isolated compilations; None isolates nothing."""
        return None


class CompilingClient(DeviceClient):
    """A client as a compilation sees it."""

    options: Mapping[str, Any]  # The create options that the caller gave.
    _policy: Policy
    #: Why no other process could make such a client; empty if one could, or none has tried.
    _why_not_isolated = ""
