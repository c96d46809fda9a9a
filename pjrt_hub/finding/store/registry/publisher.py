"""The publisher's side of a signed registry: keys, and a TUF repository of rows.

Owns the files that a publisher keeps and serves: `registry.toml` is the draft, `publish` signs it.
Reading one back, and whom to trust, is reader.py and remote.py.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner
from tuf.api.exceptions import RepositoryError, UnsignedMetadataError
from tuf.api.metadata import (
    Metadata,
    MetaFile,
    Root,
    Signed,
    Snapshot,
    TargetFile,
    Targets,
    Timestamp,
)

from pjrt_hub.base import digest
from pjrt_hub.errors import ManifestError, RegistryError
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.catalog import Artifact, Catalog, read_rows, write_rows
from pjrt_hub.finding.store.registry.reader import TARGET

ROLES = (Root.type, Targets.type, Snapshot.type, Timestamp.type)
_HEAD = "# The draft of a signed registry: `pjrt-hub registry add` and `publish`.\n\n"


@dataclass(frozen=True, slots=True)
class Days:
    """The validity of signatures, in days."""

    root: int = 365
    targets: int = 90
    snapshot: int = 90
    timestamp: int = 14


@dataclass(frozen=True, slots=True)
class Published:
    """The state that is now served.

    Attributes:
        folder: of the repository.
        rows: how many rows it signs.
        versions: of each role's metadata.
        expires: when each role's signatures expire.
    """

    folder: Path
    rows: int
    versions: dict[str, int]
    expires: dict[str, datetime]


class KeyRing:
    """The available private keys: ed25519, a PEM file each, readable by its owner only.

    Args:
        folders: where they lie.
        passphrase: of those that are encrypted.

    Raises:
        RegistryError: one cannot be read, or others may read it.
    """

    def __init__(self, folders: Sequence[Path], passphrase: bytes | None = None) -> None:
        self.folders = tuple(folders)
        self._passphrase = passphrase
        self.signers: dict[str, CryptoSigner] = {}
        for path in (path for folder in folders for path in sorted(folder.glob("*.pem"))):
            signer = self._load(path)
            self.signers[signer.public_key.keyid] = signer

    def create(self, role: str) -> CryptoSigner:
        """Make a key and write it to the first folder."""
        private = Ed25519PrivateKey.generate()
        signer = CryptoSigner(private)
        folder = self.folders[0]
        path = folder / f"{role}-{signer.public_key.keyid[:8]}.pem"
        guard = (
            serialization.BestAvailableEncryption(self._passphrase)
            if self._passphrase
            else serialization.NoEncryption()
        )
        pem = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, guard
        )
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with open(os.open(path, flags, 0o600), "wb") as file:
                file.write(pem)
                os.fsync(file.fileno())
        except OSError as exc:
            raise _keys(folder, f"{path} cannot be written: {exc.strerror}") from None
        self.signers[signer.public_key.keyid] = signer
        return signer

    def _load(self, path: Path) -> CryptoSigner:
        try:
            if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise _keys(path, "others may read it", f"`chmod 600 {path}`")
            pem = digest.content(path)
            is_encrypted = b"ENCRYPTED" in pem.partition(b"\n")[0]
            private = serialization.load_pem_private_key(
                pem, self._passphrase if is_encrypted else None
            )
            return CryptoSigner(private)
        except OSError as exc:
            raise _keys(path, f"it cannot be read: {exc.strerror}") from None
        except (ValueError, TypeError) as exc:
            hint = "give the passphrase of your keys: --passphrase-file"
            raise _keys(path, f"it cannot be used: {exc}", hint) from exc


class Repository:
    """The folder that is served: `metadata/`, `targets/`, and beside them the draft.

    Args:
        folder: its path.
        now: the time that signatures are made at.
    """

    def __init__(self, folder: Path, now: datetime | None = None) -> None:
        self.folder = folder
        self.draft = folder / TARGET
        self._metadata = folder / "metadata"
        self._now = (now or datetime.now(UTC)).replace(microsecond=0)

    def init(
        self, keys: KeyRing, *, threshold: int = 1, root_keys: int = 2, days: Days | None = None
    ) -> Path:
        """Make keys and the first root metadata.

        Args:
            keys: is given the new ones.
            threshold: how many keys must sign the root, and how many the rows.
            root_keys: how many there are for the root, the spare ones included.
            days: how long signatures count.

        Returns:
            The file of root metadata that users must be given.

        Raises:
            RegistryError: there is a registry already.
        """
        if (self._metadata / "1.root.json").exists():
            raise _unmade(self.folder, "there is a registry already")
        if not 1 <= threshold <= root_keys:
            raise _unmade(self.folder, f"{threshold} of {root_keys} root keys cannot sign")
        for folder in (self._metadata, self.folder / "targets"):
            folder.mkdir(parents=True, exist_ok=True)
        root = Root(consistent_snapshot=True)
        for role, count in (
            (Root.type, root_keys), (Targets.type, threshold),
            (Snapshot.type, 1), (Timestamp.type, 1),
        ):  # fmt: skip
            for _ in range(count):
                root.add_key(keys.create(role).public_key, role)
        root.roles[Root.type].threshold = root.roles[Targets.type].threshold = threshold
        self._write_root(root, None, keys, days or Days())
        if not self.draft.exists():
            self.draft.write_text(_HEAD, "utf-8")
        return self.folder / "root.json"

    def add(self, rows: Sequence[Artifact]) -> tuple[Artifact, ...]:
        """Add rows to the draft, in place of those of the same file names; return them all."""
        old = read_rows(self.draft) if self.draft.exists() else ()
        names = {row.file_name for row in rows}
        every = (*(row for row in old if row.file_name not in names), *rows)
        ordered = sorted(every, key=lambda row: (row.platform, row.plugin, row.file_name))
        disk.replace(self.draft, (_HEAD + write_rows(ordered)).encode())
        return tuple(ordered)

    def publish(self, keys: KeyRing, days: Days | None = None) -> Published:
        """Sign the draft, or renew the signatures of the same rows.

        The root is signed anew once half of its time is over, if its keys are at hand.

        Raises:
            RegistryError: too few keys are at hand, or there is no registry.
            ManifestError: a row of the draft is malformed.
        """
        days = days or Days()
        root = self._root()
        late = self._now + timedelta(days=days.root / 2)
        if root.signed.expires < late and self._signs(root.signed, Root.type, keys):
            self._write_root(root.signed, root.signed, keys, days)
            root = self._root()
        if root.signed.expires <= self._now:
            raise _keys(self.folder, "the root has expired, and too few of its keys are here")
        for role in ROLES[1:]:
            if not self._signs(root.signed, role, keys):
                wanted = root.signed.roles[role]
                raise _keys(
                    self.folder,
                    f"{wanted.threshold} of these keys must sign the {role}: "
                    + ", ".join(keyid[:8] for keyid in wanted.keyids),
                )
        rows = Catalog([self.folder]).rows()
        if not self.draft.exists():
            raise ManifestError(f"there is no {self.draft}")
        targets = Targets(targets={TARGET: self._place_target()})
        meta = self._sign(targets, root.signed, keys, days.targets)
        snapshot = Snapshot(meta={"targets.json": meta})
        timestamp = Timestamp(snapshot_meta=self._sign(snapshot, root.signed, keys, days.snapshot))
        self._sign(timestamp, root.signed, keys, days.timestamp)
        states: tuple[Signed, ...] = (root.signed, targets, snapshot, timestamp)
        return Published(
            self.folder,
            len(rows),
            {each.type: each.version for each in states},
            {each.type: each.expires for each in states},
        )

    def rotate(
        self,
        role: str,
        keys: KeyRing,
        *,
        revoked: Sequence[str] = (),
        threshold: int | None = None,
        days: Days | None = None,
    ) -> Published:
        """Replace keys of a role by new ones, and publish.

        Args:
            role: "root", "targets", "snapshot" or "timestamp".
            keys: must hold enough root keys; is given the new ones.
            revoked: the beginnings of the key ids that go; all of the role's by default.
            threshold: how many must sign from now on.
            days: how long signatures count.

        Raises:
            RegistryError: too few root keys are at hand, or there are no such keys.
        """
        before, after = self._root().signed, self._root().signed
        old = [
            keyid
            for keyid in before.roles[role].keyids
            if not revoked or keyid.startswith(tuple(revoked))
        ]
        if not old:
            raise _keys(self.folder, f"the {role} has no key {', '.join(revoked)}")
        if not self._signs(before, Root.type, keys):
            raise _keys(self.folder, "too few of the root's keys are here")
        for keyid in old:
            after.revoke_key(keyid, role)
            after.add_key(keys.create(role).public_key, role)
        if threshold is not None:
            after.roles[role].threshold = threshold
        self._write_root(after, before, keys, days or Days())
        return self.publish(keys, days)

    def _root(self) -> Metadata[Root]:
        numbers = [int(p.name.partition(".")[0]) for p in self._metadata.glob("*.root.json")]
        if not numbers:
            raise _unmade(self.folder, "there is none")
        return Metadata[Root].from_file(os.fspath(self._metadata / f"{max(numbers)}.root.json"))

    def _write_root(self, root: Root, before: Root | None, keys: KeyRing, days: Days) -> None:
        """Sign the next root with its own keys and those of the one before."""
        root.version = before.version + 1 if before else 1
        root.expires = self._now + timedelta(days=days.root)
        metadata = Metadata(root)
        keyids = dict.fromkeys(
            keyid
            for each in (before, root)
            if each is not None
            for keyid in each.roles[Root.type].keyids
        )
        for keyid in keyids:
            if keyid in keys.signers:
                metadata.sign(keys.signers[keyid], append=True)
        for each in (before, root):
            if each is not None:
                self._require_signed(each, Root.type, metadata)
        content = metadata.to_bytes()
        disk.replace(self._metadata / f"{root.version}.root.json", content)
        disk.replace(self.folder / "root.json", content)

    def _signs(self, root: Root, role: str, keys: KeyRing) -> bool:
        known = root.roles[role]
        return sum(keyid in keys.signers for keyid in known.keyids) >= known.threshold

    def _sign(self, signed: Signed, root: Root, keys: KeyRing, days: int) -> MetaFile:
        role = signed.type
        signed.version = self._version(role) + 1
        signed.expires = self._now + timedelta(days=days)
        metadata: Metadata[Any] = Metadata(signed)
        for keyid in root.roles[role].keyids:
            if keyid in keys.signers:
                metadata.sign(keys.signers[keyid], append=True)
        self._require_signed(root, role, metadata)
        content = metadata.to_bytes()
        is_timestamp = role == Timestamp.type
        name = f"{role}.json" if is_timestamp else f"{signed.version}.{role}.json"
        disk.replace(self._metadata / name, content)
        hashes = {"sha256": hashlib.sha256(content).hexdigest()}
        return MetaFile(signed.version, len(content), hashes)

    def _version(self, role: str) -> int:
        """Return the highest version ever written: a version that was seen is never used again."""
        names = (path.name for path in self._metadata.glob(f"*.{role}.json"))
        written = [int(name.partition(".")[0]) for name in names]
        path = self._metadata / f"{role}.json"
        if path.exists():
            written.append(Metadata.from_file(os.fspath(path)).signed.version)
        return max(written, default=0)

    def _place_target(self) -> TargetFile:
        content = self.draft.read_bytes()
        target = TargetFile.from_data(TARGET, content, ["sha256"])
        disk.replace(self.folder / "targets" / f"{target.hashes['sha256']}.{TARGET}", content)
        return target

    def _require_signed(self, root: Root, role: str, metadata: Metadata[Any]) -> None:
        try:
            root.verify_delegate(role, metadata.signed_bytes, metadata.signatures)
        except (UnsignedMetadataError, RepositoryError) as exc:
            raise _keys(self.folder, str(exc)) from exc


def _keys(where: Path, what: str, hint: str = "") -> RegistryError:
    return RegistryError(
        f"the registry cannot be signed: {where}: {what}",
        url=where,
        fault="keys",
        hint=hint or "name every folder of keys that is needed: --keys FOLDER --keys FOLDER",
    )


def _unmade(folder: Path, what: str) -> RegistryError:
    return RegistryError(
        f"no registry is made in {folder}: {what}",
        url=folder,
        fault="malformed",
        hint="`pjrt-hub registry init DIR --keys KEYDIR` makes one in an empty folder",
    )
