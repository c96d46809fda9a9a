"""Key-value stores: how the processes of one job find each other.

Owns what a store must offer, and two stores that need only this machine or a shared disk; the
compiled call path owns the callbacks that a plugin calls.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pjrt_hub.errors import PjrtHubError, UnsupportedByPluginError
from pjrt_hub.running.capi import hotpath, table

if TYPE_CHECKING:
    from pjrt_hub.running.device.device import DeviceClient

_CODES = table.ENUMS["PJRT_Error_Code"]
_NOT_FOUND = _CODES["PJRT_Error_Code_NOT_FOUND"]
_INTERNAL = _CODES["PJRT_Error_Code_INTERNAL"]
#: Seconds between two reads of a store that cannot notify; they double up to the longest.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


class KeyValueStore(Protocol):
    """A store that the processes of a job share; its methods are called from any thread.

    An exception becomes the plugin's error. A value that was put under a key is visible to every
    process from then on; a second one replaces it.
    """

    def get(self, key: str, timeout: float) -> bytes:
        """Wait for a value.

        Args:
            key: the key that the value was or will be put under.
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: no value was put.
        """

    def try_get(self, key: str) -> bytes | None:
        """Return the value at once, or None if there is none yet.

        Args:
            key: the key that the value was put under.
        """

    def put(self, key: str, value: bytes) -> None:
        """Make a value visible to all processes.

        Args:
            key: the key under which they find it; plugins choose the keys.
            value: any bytes.
        """


KeyValueStore.__module__ = "pjrt_hub"  # Inside the class, this would become a member.


class InMemoryStore:
    """A store for clients of one process, as in tests."""

    __module__ = "pjrt_hub"

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def get(self, key: str, timeout: float) -> bytes:
        """See `KeyValueStore`."""
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, timeout):
                raise TimeoutError(f"nobody put {key!r} within {timeout} seconds")
            return self._values[key]

    def try_get(self, key: str) -> bytes | None:
        """See `KeyValueStore`."""
        with self._changed:
            return self._values.get(key)

    def put(self, key: str, value: bytes) -> None:
        """See `KeyValueStore`."""
        with self._changed:
            self._values[key] = bytes(value)
            self._changed.notify_all()


class DirectoryStore:
    """A store in a directory that all processes see, a file for each key.

    The directory is for one job only: values that an earlier job left would be taken for new ones.

    Args:
        path: of the directory, which is made if it is missing.
    """

    __module__ = "pjrt_hub"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    def get(self, key: str, timeout: float) -> bytes:
        """See `KeyValueStore`."""
        return look_until(lambda: self.try_get(key), key, timeout)

    def try_get(self, key: str) -> bytes | None:
        """See `KeyValueStore`."""
        try:
            return self._file(key).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, key: str, value: bytes) -> None:
        """See `KeyValueStore`."""
        file = self._file(key)
        partial = file.with_name(f".{file.name}.{os.urandom(8).hex()}")  # Only this call uses it.
        try:
            partial.write_bytes(value)
            partial.replace(file)  # Readers see the whole value or none.
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def _file(self, key: str) -> Path:
        return self.path / hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def look_until(look: Callable[[], bytes | None], key: str, timeout: float) -> bytes:
    """Poll for a value, for stores that cannot notify.

    Args:
        look: returns the value, or None if there is none yet.
        key: the key of the value, for the error message.
        timeout: seconds to look at most.

    Raises:
        TimeoutError: there was no value within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    pause = _SHORTEST_PAUSE
    while (value := look()) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"nobody put {key!r} within {timeout} seconds")
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)
    return value


@dataclass(frozen=True, slots=True)
class Distributed:
    """The place of this process in a job of several, each with a client of its own.

    Attributes:
        num_processes: the number of processes in the job.
        process_id: the number of this process, from 0.
        store: the store that they share.
    """

    __module__ = "pjrt_hub"
    num_processes: int
    process_id: int
    store: KeyValueStore

    def __post_init__(self) -> None:
        """Refuse values that no plugin could make sense of."""
        for name in ("num_processes", "process_id"):
            if type(getattr(self, name)) is not int:
                raise TypeError(f"{name} is {getattr(self, name)!r}; it must be an int")
        if not 0 <= self.process_id < self.num_processes:
            raise ValueError(
                f"process_id is {self.process_id}; of {self.num_processes} processes it must be "
                f"from 0 to {self.num_processes - 1}"
            )
        for method in ("get", "try_get", "put"):
            if not callable(getattr(self.store, method, None)):
                raise TypeError(f"the store {self.store!r} has no method {method}")

    def create_options(self, takes: Callable[[str], bool]) -> dict[str, int]:
        """Return the create options for several processes, without those that the plugin lacks.

        Args:
            takes: says whether the plugin takes an option of that name.
        """
        told = {"node_id": self.process_id, "num_nodes": self.num_processes}
        return {name: value for name, value in told.items() if takes(name)}

    def check(self, client: DeviceClient, exchange: Exchange) -> None:
        """Raise an error if a client did not join the others.

        Args:
            client: the client that was made with this object.
            exchange: what the plugin was given to reach the store.

        Raises:
            PjrtHubError: the plugin made a client of this process alone, or of another number.
        """
        try:
            index = client.process_index
            processes = {device.process_index for device in client.all_devices}
        except UnsupportedByPluginError:
            return
        alone = len(processes) == 1 and not exchange.used
        if self.num_processes > 1 and (index != self.process_id or alone):
            raise PjrtHubError(
                f"process {self.process_id} of {self.num_processes} did not join the others: the "
                f"client of {client.platform_name!r} is of process {index}, its devices are of "
                f"{len(processes)}",
                hint="this plugin does not join processes, or wants other create options for it",
            )


class Exchange:
    """A store as `PJRT_Client_Create` takes it; `used` tells whether a plugin has called it."""

    def __init__(self, store: KeyValueStore) -> None:
        self.used = False
        self._store = store

    def arguments(self) -> dict[str, int]:
        """Return the call's callback fields; plugins drop a store that lacks one of the three."""
        *functions, user_arg = hotpath.kv_store(self._get, self._try_get, self._put)
        names = ("kv_get", "kv_try_get", "kv_put")
        members = {f"{name}_callback": at for name, at in zip(names, functions, strict=True)}
        return members | {f"{name}_user_arg": user_arg for name in names}

    # These methods return what C expects: a value, None for "not yet" or "done", or (code, text).

    def _get(self, key: bytes, milliseconds: int) -> object:
        return self._answer(lambda: self._store.get(_text(key), milliseconds / 1000))

    def _try_get(self, key: bytes) -> object:
        answer = self._answer(lambda: self._store.try_get(_text(key)))
        return (_NOT_FOUND, b"no value under the key yet") if answer is None else answer

    def _put(self, key: bytes, value: bytes) -> object:
        return self._answer(lambda: self._store.put(_text(key), value))

    def _answer(self, ask: Callable[[], bytes | None]) -> object:
        self.used = True
        try:
            value = ask()
        except TimeoutError:
            return None
        except BaseException as exc:  # No exception may reach the plugin.
            return _INTERNAL, f"{type(exc).__name__}: {exc}".encode("utf-8", "replace")
        if value is None or isinstance(value, bytes):
            return value
        return _INTERNAL, f"the store gave {type(value).__name__} instead of bytes".encode()


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")
