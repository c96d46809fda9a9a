"""A remote registry: the keys that it is trusted by, and the rows that were read last.

Only `refresh` uses the network, and only for what is not here yet. Owns which names such a
registry may give rows for: those of the shipped one only where the user says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pjrt_hub.base import digest, log
from pjrt_hub.errors import ManifestError, RegistryError
from pjrt_hub.finding.store import disk, lock
from pjrt_hub.finding.store.cache.cache import LAYOUT
from pjrt_hub.finding.store.catalog import Artifact, read_rows
from pjrt_hub.finding.store.transfer.credentials import redact

if TYPE_CHECKING:
    from pjrt_hub.finding.store.transfer.transport import Patience

VARIABLE = "PJRT_HUB_REGISTRY"
ROOT_VARIABLE = "PJRT_HUB_REGISTRY_ROOT"
#: A registry that was read within that time is not read again.
FRESH_SECONDS = 6 * 3600
#: For one reading of a few small files.
_PATIENCE_SECONDS = 120.0
MAX_ROOT_NBYTES = 512_000


@dataclass(frozen=True, slots=True)
class Trust:
    """The keys by which a registry is trusted.

    Attributes:
        url: its address.
        root: its root metadata, which names the keys.
        platforms: names that it may take over from the registry that is shipped.
    """

    url: str
    root: bytes
    platforms: tuple[str, ...] = ()

    def write(self, folder: Path) -> Path:
        """Write this to the user's configuration, which nobody else can read or write.

        Raises:
            RegistryError: it cannot be written.
        """
        path = _trust_path(self.url, folder)
        value = {"url": redact(self.url), "platforms": list(self.platforms)}
        text = json.dumps({**value, "root": self.root.decode("utf-8")}, indent=1)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            disk.replace(path, text.encode(), 0o600)
        except OSError as exc:
            raise _trust_error(self.url, f"{path} cannot be written: {exc.strerror}") from None
        return path


def read_trust(env: Mapping[str, str], folder: Path) -> Trust | None:
    """Return the registry that `PJRT_HUB_REGISTRY` names, or None.

    Args:
        env: `PJRT_HUB_REGISTRY_ROOT` names the file of its root metadata.
        folder: the user's configuration, which knows it otherwise.

    Raises:
        RegistryError: its root keys are not known.
    """
    url = env.get(VARIABLE, "").rstrip("/")
    if not url:
        return None
    path = _trust_path(url, folder)
    known = _read_trust(url, path) if path.exists() else None
    if named := env.get(ROOT_VARIABLE):
        root = _read_ours(url, Path(named).expanduser())
        return Trust(url, root, known.platforms if known else ())
    if known is None:
        raise _trust_error(url, "its root keys are not known")
    return known


def _read_trust(url: str, path: Path) -> Trust:
    try:
        value = json.loads(_read_ours(url, path))
        platforms = tuple(map(str, value["platforms"]))
        return Trust(url, value["root"].encode("utf-8"), platforms)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise _trust_error(url, f"{path} is malformed: {exc}") from None


def _read_ours(url: str, path: Path) -> bytes:
    """Read a file that nobody but this user and root can write."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            ours = sys.platform == "win32" or found.st_uid in (0, os.geteuid())
            if not ours or found.st_mode & stat.S_IWOTH:
                raise _trust_error(url, f"others may have written {path}")
            return digest.content_of(file, MAX_ROOT_NBYTES)
    except OSError as exc:
        raise _trust_error(url, f"{path} cannot be read: {exc.strerror}") from None


def _trust_path(url: str, folder: Path) -> Path:
    name = hashlib.sha256(redact(url).rstrip("/").encode()).hexdigest()[:32]
    return folder / "registries" / f"{name}.json"


def _trust_error(url: str, what: str) -> RegistryError:
    hint = (
        f"run `pjrt-hub registry trust {redact(url)} --root root.json` with the file that "
        f"its publisher gave you, or unset {VARIABLE}"
    )
    return _error(url, "untrusted", what, hint)


def _error(url: str, fault: str, what: str, hint: str) -> RegistryError:
    text = f"the registry {redact(url)} is not used: {what}"
    return RegistryError(text, url=redact(url), fault=fault, hint=hint)


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading a registry; times are in seconds of the epoch.

    Attributes:
        rows: its rows.
        checked: when it was read.
        expires: until when its signatures count.
    """

    rows: tuple[Artifact, ...]
    checked: float
    expires: float


class Remote:
    """A trusted registry, and its last reading in the cache.

    Args:
        trust: whose signatures count.
        root: of the cache.
        now: the time in seconds of the epoch.
    """

    def __init__(self, trust: Trust, root: Path, *, now: Callable[[], float] = time.time) -> None:
        self.trust = trust
        self._now = now
        self._root = root
        # Other root keys are another registry: its versions may begin anew.
        key = hashlib.sha256(f"{redact(trust.url)}\0".encode() + trust.root).hexdigest()
        self.folder = root / LAYOUT / "registry" / key[:32]

    @property
    def name(self) -> str:
        """Its address, as messages may show it."""
        return redact(self.trust.url)

    def last_reading(self) -> Reading | None:
        """Return the result of the last refresh; None if there is none or it is damaged.

        Raises:
            CacheError: somebody else could have written it.
        """
        try:
            disk.require_safe(self._root, self.folder)
            value = json.loads(digest.content(self.folder / "reading.json"))
            rows = tuple(
                Artifact.from_row(row, f"{self.name}, row {i}")
                for i, row in enumerate(value["rows"], 1)
            )
            return Reading(rows, float(value["checked"]), float(value["expires"]))
        except FileNotFoundError:
            return None
        except (OSError, ManifestError, ValueError, KeyError, TypeError, RecursionError) as exc:
            log.step("store", "what was read of %s is damaged: %s", self.name, exc)
            return None

    def is_fresh(self, reading: Reading | None) -> bool:
        """Check whether a reading need not be repeated."""
        if reading is None:
            return False
        # A reading from the future is one from before the clock was set back.
        age = self._now() - reading.checked
        return 0 <= age < FRESH_SECONDS and not self.has_expired(reading)

    def has_expired(self, reading: Reading) -> bool:
        """Check whether its signatures have expired."""
        return self._now() >= reading.expires

    def beside(self, shipped: Iterable[Artifact], reading: Reading | None) -> tuple[Artifact, ...]:
        """Merge the rows of both registries, each name's from the one that owns it.

        Raises:
            RegistryError: the remote one has rows for a name that is not its own.
        """
        given = tuple(shipped)
        mine = set(self.trust.platforms)
        kept = tuple(row for row in given if not mine & {row.plugin, row.platform})
        rows = reading.rows if reading else ()
        owners = {name: row for row in kept for name in (row.plugin, row.platform)}
        for row in rows:
            for name in (row.plugin, row.platform):
                if name in owners:
                    raise self._takes(name, row, owners[name])
        return kept + rows

    def _takes(self, name: str, row: Artifact, owner: Artifact) -> RegistryError:
        url = self.name
        return RegistryError(
            f"two registries claim the name {name!r}: the shipped one by {owner.package} "
            f"{owner.version}, and {url} by {row.package} {row.version}",
            url=url,
            fault="names",
            hint=f"if {url} is to own it: `pjrt-hub registry trust {url} --root root.json "
            f"--platform {name}`; else ask who publishes it to choose another name",
        )

    def refresh(
        self,
        env: Mapping[str, str],
        shipped: Iterable[Artifact] = (),
        *,
        patience: Patience | None = None,
        notify: Callable[[str], None] | None = None,
    ) -> Reading:
        """Read the registry from its server, and store the result.

        Args:
            env: the variables of proxies, TLS and passwords.
            shipped: the rows that it must not take names from.
            patience: the limits.
            notify: receives messages about waits.

        Raises:
            RegistryError: it cannot be had, or must not be trusted; `.fault` says which. What was
                kept before is left as it is.
            CacheError: the cache cannot be written.
        """
        from pjrt_hub.finding.store.transfer.transport import Patience

        asked = self._now()
        limits = patience or replace(
            Patience.from_env(env), tries=3, overall_seconds=_PATIENCE_SECONDS
        )
        with disk.cache_errors("cannot keep a registry in", self.folder):
            disk.make(self._root, self.folder / "metadata")
            disk.require_safe(self._root, self.folder / "metadata")
            doing = "reads the same registry"
            wait = lock.Wait(_PATIENCE_SECONDS, notify, limits.sleep, limits.clock, doing)
            with lock.acquire(self.folder / "lock", wait):
                before = self.last_reading()
                if before and before.checked > asked and self.is_fresh(before):
                    return before  # another process has read it meanwhile
                reading = self._read(env, limits)
                self.beside(shipped, reading)
                self._keep(reading)
        return reading

    def _read(self, env: Mapping[str, str], limits: Patience) -> Reading:
        from pjrt_hub.finding.store.transfer import installers
        from pjrt_hub.finding.store.transfer.transport import Transport

        url, metadata = self.trust.url, self.folder / "metadata"
        try:
            from pjrt_hub.finding.store.registry import reader
        except ImportError as exc:
            hint = "run `pip install 'pjrt-hub[registry]'`"
            raise _error(url, "packages", str(exc), hint) from exc
        with (
            TemporaryDirectory(dir=self.folder) as scratch,
            Transport(
                env, sources=installers.read_mirror_sources(env), patience=limits.start()
            ) as transport,
        ):
            path, expires = reader.read(url, self.trust.root, metadata, Path(scratch), transport)
            try:
                rows = read_rows(path)
            except ManifestError as exc:
                text = exc.message.replace(os.fspath(path), path.name)
                hint = "ask who publishes it to correct the row; a newer pjrt-hub may know it"
                raise _error(url, "malformed", text, hint) from None
        return Reading(rows, self._now(), expires.timestamp())

    def _keep(self, reading: Reading) -> None:
        rows = [row.as_row() for row in reading.rows]
        times = {"checked": reading.checked, "expires": reading.expires}
        text = json.dumps({**times, "rows": rows})
        disk.replace(self.folder / "reading.json", text.encode(), 0o644)
