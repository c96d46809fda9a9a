"""The C function that a process is in, which another process can read, even after its death.

Must not know what any function is for.
"""

from __future__ import annotations

import mmap
import signal
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pjrt_hub.kit.conformance.finding import Hidden

if TYPE_CHECKING:
    from pjrt_hub.running.capi.library import Api, Extension

_NBYTES = 256
#: Seconds that a function that hung before has to return; on a slow plugin it has more.
HURRY = 2.0


class CallProgress:
    """The name of the C function that is being called, in memory that processes share."""

    def __init__(self, descriptor: int = -1) -> None:
        """Map the memory as `share` does; by default no other process reads it."""
        self.share(descriptor)
        self.broken: Collection[str] = ()  # Functions and forms that are known not to work.
        self.works: Collection[str] = ()  # Functions and forms of programs that are known to work.
        self.hung: Collection[str] = ()  # These end this process unless they return within `hurry`.
        self.hurry = HURRY
        self.returned: set[str] = set()  # The functions that returned without an error.

    def share(self, descriptor: int) -> None:
        """Map the memory of a file that `open_file` made."""
        self._memory = mmap.mmap(descriptor, _NBYTES)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only `broken` and `works`."""
        return CallProgress, (), {"broken": self.broken, "works": self.works}

    @property
    def function(self) -> str:
        """The name of the function that is being called; empty between calls."""
        return self._memory[:].partition(b"\0")[0].decode("ascii", "replace")

    def enter(self, function: str) -> None:
        """Note that a function is called, or raise Hidden if it is known not to work."""
        if function in self.broken:
            raise Hidden(function)
        name = function.encode("ascii")[: _NBYTES - 1] + b"\0"
        self._memory[: len(name)] = name

    def leave(self) -> None:
        """Note that the function returned."""
        self._memory[:1] = b"\0"


@contextmanager
def open_file() -> Iterator[int]:
    """Make a file for `CallProgress`, without a name, and give its descriptor."""
    with tempfile.TemporaryFile() as file:
        file.truncate(_NBYTES)
        yield file.fileno()


class Watched:
    """A stand-in for an `Api` or an `Extension` that notes its calls in a `CallProgress`."""

    def __init__(self, functions: Api | Extension, progress: CallProgress) -> None:
        self._functions = functions
        self._progress = progress

    def call(self, function: str, **fields: Any) -> Any:
        """Call a C function by its name, as `Api.call`."""
        progress = self._progress
        progress.enter(function)
        if function in progress.hung:
            signal.setitimer(signal.ITIMER_REAL, progress.hurry)
        try:
            answer = self._functions.call(function, **fields)
            progress.returned.add(function)
            return answer
        finally:
            progress.leave()
            if function in progress.hung:
                signal.setitimer(signal.ITIMER_REAL, 0)

    def function(self, name: str) -> Any:
        """Return a function to be called by others, as `Api.function`."""
        self._progress.enter(name)
        return self._functions.function(name)

    def extension(self, name: str) -> Any:
        """Return a node of the chain, as `Api.extension`."""
        return Watched(self._functions.extension(name), self._progress)  # type: ignore[union-attr]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._functions, name)
