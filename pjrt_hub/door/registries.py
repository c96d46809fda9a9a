"""Signed registries: what `pjrt-hub registry` does for who makes one and who reads one.

Rows of archives are measured as `pjrt-hub lock` measures them. Must not decide whom to trust.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pjrt_hub.base import digest
from pjrt_hub.door.process import configuration, environment, remote, say
from pjrt_hub.errors import ManifestError, RegistryError

if TYPE_CHECKING:
    from pjrt_hub.finding.store.catalog import Artifact
    from pjrt_hub.finding.store.registry.publisher import Days, KeyRing, Published, Repository
    from pjrt_hub.finding.store.registry.remote import Reading, Remote


def init(
    folder: Path,
    keys: Path,
    *,
    threshold: int = 1,
    root_keys: int = 2,
    passphrase: bytes | None = None,
) -> Path:
    """Make the keys and the root metadata of a new registry.

    Args:
        folder: what is to be served.
        keys: the folder of private keys, which is never served.
        threshold: how many keys must sign the root, and how many the rows.
        root_keys: how many the root has, spare ones included.
        passphrase: encrypts the keys.

    Returns:
        The file of root metadata that users need.

    Raises:
        RegistryError: there is one already, or a file cannot be written.
    """
    ring = _key_ring([keys], passphrase)
    return _repository(folder).init(ring, threshold=threshold, root_keys=root_keys)


def add(
    folder: Path,
    *sources: str,
    at: str = "",
    allow_look_alike: bool = False,
    trust: Callable[[str], bool] | None = None,
) -> tuple[Artifact, ...]:
    """Add rows to the draft of a registry.

    Args:
        folder: of the registry.
        sources: files of rows (`.toml`, `.lock`), or what `pjrt_hub.lock` takes: archives by path
            or address, "name=archive", "package==version".
        at: the address of the folder that clients get the files of these rows from.
        allow_look_alike: accept a new name that could be mistaken for a known one.
        trust: is asked about each archive that no registry knows; None trusts none.

    Returns:
        The rows that were added.

    Raises:
        ManifestError: a row is malformed, or its name could be mistaken for another.
        LockFileError: an archive is not trusted, or would take a name.
        StoreError: an archive cannot be fetched, or is not a plugin.
    """
    from tempfile import TemporaryDirectory

    from pjrt_hub.door.lock import lock
    from pjrt_hub.finding.store import pins
    from pjrt_hub.finding.store.catalog import Catalog, read_rows

    files = [Path(each) for each in sources if each.endswith((".toml", ".lock"))]
    rows = [
        row
        for path in files
        for row in (pins.read(path).rows if path.suffix == ".lock" else read_rows(path))
    ]
    archives = [each for each in sources if not each.endswith((".toml", ".lock"))]
    if archives:
        with TemporaryDirectory(prefix="pjrt-hub-") as scratch:
            output = Path(scratch, pins.FILE_NAME)
            locked = lock(*archives, output=output, allow_look_alike=allow_look_alike, trust=trust)
            rows += locked.pins.rows
    rows = [replace(row, urls=_urls(row, at)) for row in rows]
    repository = _repository(folder)
    shipped, own = Catalog.read_shipped().rows(), Catalog([folder]).rows()
    for row in rows:
        _require_distinct(row, shipped, own, allow_look_alike)
    repository.add(rows)
    return tuple(rows)


def publish(
    folder: Path,
    keys: Sequence[Path],
    *,
    days: dict[str, int] | None = None,
    passphrase: bytes | None = None,
) -> Published:
    """Sign the draft, or renew the signatures of the same rows.

    Args:
        folder: of the registry.
        keys: folders of private keys.
        days: how long signatures count, by role: "root", "targets", "snapshot", "timestamp".
        passphrase: of encrypted keys.

    Raises:
        RegistryError: too few keys are there.
        ManifestError: a row is malformed.
    """
    return _repository(folder).publish(_key_ring(keys, passphrase), _days(days))


def rotate(
    folder: Path,
    role: str,
    keys: Sequence[Path],
    *,
    revoked: Sequence[str] = (),
    threshold: int | None = None,
    days: dict[str, int] | None = None,
    passphrase: bytes | None = None,
) -> Published:
    """Replace the keys of a role by new ones in the first folder of keys, and publish.

    Args:
        folder: of the registry.
        role: "root", "targets", "snapshot" or "timestamp".
        keys: folders of private keys, enough of the root's among them.
        revoked: the beginnings of the ids of the keys that go; all by default.
        threshold: how many must sign from now on.
        days: as for `publish`.
        passphrase: of encrypted keys.

    Raises:
        RegistryError: too few keys are there, or none is called so.
    """
    ring = _key_ring(keys, passphrase)
    return _repository(folder).rotate(
        role, ring, revoked=revoked, threshold=threshold, days=_days(days)
    )


@dataclass(frozen=True, slots=True)
class Trusted:
    """A registry that a user has agreed to trust.

    Attributes:
        path: where that is kept.
        version: of the root metadata.
        threshold: how many of its keys sign a new root.
        keyids: its keys.
        expires: the time after which there must be a newer root.
    """

    path: Path
    version: int
    threshold: int
    keyids: tuple[str, ...]
    expires: datetime


def trust(url: str, root: Path, *, platforms: Sequence[str] = ()) -> Trusted:
    """Trust the keys of a registry from now on, for this user.

    Args:
        url: its address.
        root: its root metadata, from a way that the registry's server has no part in.
        platforms: names that it may take over from the shipped registry.

    Raises:
        RegistryError: the file is not what it has to be, or the address cannot be asked.
    """
    from pjrt_hub.finding.store.registry.remote import MAX_ROOT_NBYTES, Trust
    from pjrt_hub.finding.store.transfer.credentials import redact
    from pjrt_hub.finding.store.transfer.transport import forbidden

    if reason := forbidden(url):
        raise _trust_error(reason, redact(url), "give the https address")
    try:
        content = digest.content(root, MAX_ROOT_NBYTES)
    except OSError as exc:
        hint = "name the root.json that the registry's publisher gave you"
        raise _trust_error(f"{root} cannot be read: {exc.strerror}", redact(url), hint) from None
    with _needing_tuf(redact(url)):
        from pjrt_hub.finding.store.registry.reader import check_root
    found = check_root(content)
    role = found.roles["root"]
    path = Trust(url, content, tuple(platforms)).write(configuration())
    return Trusted(path, found.version, role.threshold, tuple(role.keyids), found.expires)


def refresh() -> tuple[Remote, Reading]:
    """Read the registry of `PJRT_HUB_REGISTRY` now, however recent the last reading is.

    Raises:
        RegistryError: it cannot be had, or must not be trusted; `.fault` says which.
    """
    from pjrt_hub.finding.store.catalog import Catalog

    env = environment()
    elsewhere = remote(env)
    if elsewhere is None:
        hint = "set PJRT_HUB_REGISTRY to its address"
        raise _trust_error("no signed registry is named", "", hint)
    shipped = Catalog.read_shipped().rows()
    return elsewhere, elsewhere.refresh(env, shipped, notify=say)


def _trust_error(what: str, url: str, hint: str) -> RegistryError:
    return RegistryError(what, url=url, fault="untrusted", hint=hint)


def _urls(row: Artifact, at: str) -> tuple[str, ...]:
    """Return the addresses of a file for clients, never a path of the publisher's machine."""
    from urllib.parse import quote

    public = (url for url in row.urls if not url.startswith("file:"))
    mine = (f"{at.rstrip('/')}/{quote(row.file_name)}",) if at else ()
    return tuple(dict.fromkeys((*mine, *public)))


def _require_distinct(
    row: Artifact, shipped: Sequence[Artifact], own: Sequence[Artifact], allow_look_alike: bool
) -> None:
    """Check that no name is one of the shipped registry's, or looks like another."""
    from pjrt_hub.finding.contract.names import canonical, look_alike

    package = canonical(row.package)
    owners = {name: each for each in (*shipped, *own) for name in (each.plugin, each.platform)}
    mine = {
        name
        for each in (*shipped, *own)
        for name in (each.plugin, each.platform)
        if canonical(each.package) == package
    }
    for name in {row.plugin, row.platform}:
        others = owners.keys() - mine | owners.keys() & {name}
        if not allow_look_alike and (alike := look_alike(name, others)):
            raise ManifestError(
                f"{row.file_name} would be called {name!r}, which could be mistaken for {alike!r} "
                f"of {owners[alike].package}",
                hint="give it another name; or, if that is meant, --allow-look-alike",
            )
    builders = {each.package for each in shipped if each.plugin == row.plugin}
    if builders and package not in map(canonical, builders):
        raise ManifestError(
            f"{row.file_name} would be the plugin {row.plugin!r}, which "
            f"{' and '.join(sorted(builders))} build already",
            hint="give it another plugin name",
        )


def _repository(folder: Path) -> Repository:
    with _needing_tuf(folder):
        from pjrt_hub.finding.store.registry.publisher import Repository
    return Repository(folder)


def _key_ring(folders: Sequence[Path], passphrase: bytes | None) -> KeyRing:
    with _needing_tuf(folders[0]):
        from pjrt_hub.finding.store.registry.publisher import KeyRing
    return KeyRing(folders, passphrase)


def _days(days: dict[str, int] | None) -> Days:
    from pjrt_hub.finding.store.registry.publisher import Days

    return Days(**(days or {}))


@contextmanager
def _needing_tuf(where: object) -> Iterator[None]:
    try:
        yield
    except ImportError as exc:
        raise RegistryError(
            f"signed registries need packages that are not installed: {exc}",
            url=str(where),
            fault="packages",
            hint="run `pip install 'pjrt-hub[registry]'`",
        ) from exc
