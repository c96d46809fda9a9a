"""A signed registry: one reading of a TUF repository, by the client of `tuf`.

Owns the requests to its server and the names of faults; imported only where the network may
be used. Which keys count and what becomes of the rows is remote.py's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import IO

from tuf.api import exceptions
from tuf.api.metadata import Metadata, Root
from tuf.ngclient import FetcherInterface, Updater, UpdaterConfig

from pjrt_hub.errors import RegistryError
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.transfer.credentials import redact
from pjrt_hub.finding.store.transfer.transport import Endless, Refused, Transport

#: The one file that a registry signs: rows, as registry/README.md describes them.
TARGET = "registry.toml"
_LARGEST_TARGET = 8 << 20
_ROLES = ("root", "timestamp", "snapshot", "targets")
#: What a fault is, in a sentence about the file that showed it.
_SPOKEN = {
    "unreachable": "{} cannot be had",
    "endless": "{} is longer than it may be",
    "expired": "it is out of date: nobody has renewed it, or somebody hides that",
    "rollback": "{} is older than what was seen before",
    "mix-and-match": "{} is of another state of the registry than what names it",
    "digest": "{} is not what was signed",
    "signature": "{} is not signed by enough of the keys that are trusted",
    "malformed": "{} cannot be understood",
}
_HINTS = {
    "unreachable": "check the address, the network and the proxy; plugins that are in the cache go "
    "on working",
    "expired": "ask who publishes it to run `pjrt-hub registry publish`; if they did, a mirror or "
    "proxy sends old files, or this machine's clock is wrong",
    "signature": "ask who publishes it whether its keys were replaced; new root keys are trusted "
    "by `pjrt-hub registry trust`, after you have compared them",
}
_HINT = "nothing of it was kept; ask who publishes it, and whether a mirror or proxy alters files"


def read(
    url: str, root: bytes, metadata: Path, scratch: Path, transport: Transport
) -> tuple[Path, datetime]:
    """Read a registry's newest state, with every check of TUF's client.

    Args:
        url: of the repository, which holds `metadata/` and `targets/`.
        root: the root metadata that is trusted.
        metadata: the folder of what was seen before, which must not be older afterwards.
        scratch: an empty folder.
        transport: how its server is asked.

    Returns:
        The file of rows, in `scratch`, and when the first of the signatures on it expires.

    Raises:
        RegistryError: it cannot be had, or must not be trusted; `.fault` says which.
        OSError: a folder cannot be written.
    """
    fetcher = _Fetcher(transport)
    # Rows are signed by the registry's own keys, and never by somebody it delegates to.
    config = UpdaterConfig(max_delegations=0, prefix_targets_with_hash=True)
    try:
        updater = Updater(
            os.fspath(metadata),
            f"{url}/metadata/",
            os.fspath(scratch),
            f"{url}/targets/",
            fetcher=fetcher,
            config=config,
            bootstrap=root,
        )
        updater.refresh()
        target = updater.get_targetinfo(TARGET)
        if target is None:
            raise exceptions.RepositoryError(f"it does not sign the file {TARGET}")
        if target.length > _LARGEST_TARGET:
            raise exceptions.DownloadLengthMismatchError(
                f"{TARGET} has {target.length:,} bytes, and {_LARGEST_TARGET:,} are the most"
            )
        path = Path(updater.download_target(target))
    except (exceptions.RepositoryError, exceptions.DownloadError) as exc:
        fault = _fault(exc, fetcher)
        where = fetcher.asked or "the trusted root"
        raise RegistryError(
            f"the registry {redact(url)} is not used: {_SPOKEN[fault].format(where)} ({exc})",
            url=redact(url),
            fault=fault,
            hint=_HINTS.get(fault, _HINT),
        ) from exc
    _sync(metadata)
    return path, min(_expiry(metadata / f"{role}.json") for role in _ROLES)


def check_root(root: bytes) -> Root:
    """Read root metadata that somebody is about to trust.

    Raises:
        RegistryError: it is malformed, or not signed by the keys that it names itself.
    """
    try:
        metadata = Metadata[Root].from_bytes(root)
        if not isinstance(metadata.signed, Root):
            raise exceptions.RepositoryError(f"it is {metadata.signed.type} metadata")
        metadata.signed.verify_delegate(Root.type, metadata.signed_bytes, metadata.signatures)
    except (exceptions.RepositoryError, ValueError) as exc:
        raise RegistryError(
            f"this is not the root metadata of a registry: {exc}",
            url="",
            fault="malformed",
            hint="take the root.json that `pjrt-hub registry init` wrote",
        ) from exc
    return metadata.signed


class _Fetcher(FetcherInterface):
    """Sends requests by our transport, and remembers the last answer for the verdict."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.asked, self.came = "", b""

    @contextmanager
    def download_file(self, url: str, max_length: int) -> Iterator[IO[bytes]]:
        """Download the file of an address, of at most `max_length` bytes."""
        self.asked, self.came = url.rpartition("/")[2], b""
        try:
            self.came = self._transport.page(url, accept="*/*", most_nbytes=max_length).content
        except Endless as exc:
            raise exceptions.DownloadLengthMismatchError(str(exc)) from exc
        except Refused as exc:
            if exc.status is not None:
                raise exceptions.DownloadHTTPError(str(exc), exc.status) from exc
            raise exceptions.DownloadError(str(exc)) from exc
        yield BytesIO(self.came)

    def _fetch(self, url: str) -> Iterator[bytes]:
        raise NotImplementedError("download_file, which has a limit, is what is called")

    @property
    def versions(self) -> tuple[int, int]:
        """The version in the last file's name, and the one that it says; zeros without any."""
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            return int(self.asked.partition(".")[0]), int(
                json.loads(self.came)["signed"]["version"]
            )
        return 0, 0


def _fault(exc: Exception, fetcher: _Fetcher) -> str:
    named, said = fetcher.versions
    is_root = fetcher.asked.endswith(".root.json")
    match exc:
        case exceptions.DownloadLengthMismatchError():
            return "endless"
        case exceptions.DownloadError():
            return "unreachable"
        case exceptions.ExpiredMetadataError():
            return "expired"
        case exceptions.UnsignedMetadataError():
            return "signature"
        case exceptions.BadVersionNumberError() if is_root and said < named:
            return "rollback"
        case exceptions.LengthOrHashMismatchError() | exceptions.BadVersionNumberError() if (
            named != said
        ):
            return "mix-and-match"
        case exceptions.LengthOrHashMismatchError():
            return "digest"
        case exceptions.BadVersionNumberError():
            return "rollback"
        case _:
            return "malformed"


def _expiry(path: Path) -> datetime:
    return Metadata.from_file(os.fspath(path)).signed.expires


def _sync(folder: Path) -> None:
    """Sync what was seen to disk: an older state is recognized by it after a power cut."""
    for path in folder.rglob("*.json"):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    disk.sync_directory(folder)
