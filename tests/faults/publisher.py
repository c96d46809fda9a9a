"""A signed registry whose every file a test can replace, and a client that reads it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from loopback import Answer, Loopback, Request
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import Metadata, MetaFile

from pjrt_hub.finding.store.catalog import Artifact
from pjrt_hub.finding.store.registry.publisher import Days, KeyRing, Repository
from pjrt_hub.finding.store.registry.remote import Reading, Remote, Trust
from pjrt_hub.finding.store.transfer.transport import Patience


class Publisher:
    """A repository that has been published once, its keys, its server and one client.

    Attributes:
        folder: what is served, at the time of each request.
        overrides: answers in place of files, by their paths.
    """

    def __init__(self, server: Loopback, folder: Path, rows: list[Artifact]) -> None:
        self.folder, self._server = folder / "served", server
        self.keys = KeyRing([folder / "keys"])
        self.overrides: dict[str, Answer] = {}
        self.repository().init(self.keys, root_keys=2)
        self.root = (self.folder / "root.json").read_bytes()
        self.publish(rows)
        self.url = server.url("/r")
        self.remote = self.client(folder / "cache")
        server.routes = _Everything(self._answer)

    def repository(self, now: datetime | None = None) -> Repository:
        return Repository(self.folder, now)

    def publish(
        self, rows: list[Artifact] | None = None, *, now: datetime | None = None, **days: int
    ) -> None:
        repository = self.repository(now)
        if rows is not None:
            repository.add(rows)
        repository.publish(self.keys, Days(**days))

    def client(self, cache: Path, **more: Any) -> Remote:
        return Remote(Trust(self.url, self.root), cache, **more)

    def refresh(self, shipped: tuple[Artifact, ...] = ()) -> Reading:
        limits = Patience(tries=2, sleep=lambda _: None, read_seconds=5, overall_seconds=20)
        return self.remote.refresh({}, shipped, patience=limits)

    def path(self, name: str) -> Path:
        return self.folder / "metadata" / name

    def metadata(self, name: str) -> Metadata[Any]:
        return Metadata.from_bytes(self.path(name).read_bytes())

    def versions(self) -> dict[str, int]:
        """The highest version of each role."""
        found = {"timestamp": self.metadata("timestamp.json").signed.version}
        for role in ("root", "snapshot", "targets"):
            numbers = [int(p.name.split(".")[0]) for p in self.folder.rglob(f"*.{role}.json")]
            found[role] = max(numbers)
        return found

    def newest(self, role: str) -> str:
        """The file name of a role's newest metadata."""
        return f"{role}.json" if role == "timestamp" else f"{self.versions()[role]}.{role}.json"

    def signers(self, role: str) -> list[CryptoSigner]:
        keyids = self.metadata(self.newest("root")).signed.roles[role].keyids
        return [self.keys.signers[keyid] for keyid in keyids if keyid in self.keys.signers]

    def forge(
        self,
        name: str,
        change: Callable[[Any], object] = lambda signed: None,
        *,
        signers: list[CryptoSigner] | None = None,
        to: str | None = None,
    ) -> MetaFile:
        """Changes signed metadata, and signs it as its role, or as somebody else."""
        metadata = self.metadata(name)
        change(metadata.signed)
        metadata.signatures.clear()
        role = name.removesuffix(".json").rpartition(".")[2]
        for signer in self.signers(role) if signers is None else signers:
            metadata.sign(signer, append=True)
        self.path(to or name).write_bytes(metadata.to_bytes())
        return MetaFile(metadata.signed.version)

    def name_targets(self, meta: MetaFile) -> None:
        """A new snapshot that names these targets, and a new timestamp that names it."""
        number = self.versions()["snapshot"] + 1

        def snapshot(signed: Any) -> None:
            signed.version, signed.meta["targets.json"] = number, meta

        self.name_snapshot(
            self.forge(self.newest("snapshot"), snapshot, to=f"{number}.snapshot.json")
        )

    def name_snapshot(self, meta: MetaFile) -> None:
        """A new timestamp that names this snapshot."""

        def timestamp(signed: Any) -> None:
            signed.version, signed.snapshot_meta = signed.version + 1, meta

        self.forge("timestamp.json", timestamp)

    def kept(self, name: str) -> Callable[[], object]:
        """Gives what puts a file back as it is now."""
        old = self.path(name).read_bytes()
        return lambda: self.path(name).write_bytes(old)

    def copy(self, name: str, to: str) -> None:
        shutil.copyfile(self.path(name), self.path(to))

    def _answer(self, request: Request) -> Answer:
        path = request.path.removeprefix("/r/")
        if path in self.overrides:
            return self.overrides[path]
        file = self.folder / path
        return Answer(file.read_bytes()) if file.is_file() else Answer(b"", "404 Not Found")


class _Everything(dict[str, Any]):
    """One handler for every path."""

    def __init__(self, handler: Callable[[Request], Answer]) -> None:
        super().__init__()
        self._handler = handler

    def get(self, key: str, default: object = None) -> Any:
        return self._handler
