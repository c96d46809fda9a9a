"""The memory of files: their hashes by identity, and answers at first contact by content.

Owns small JSON files below the cache root. Losing one costs a second, never correctness, so nothing
here raises for a disk that is full or read-only. Must not probe.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from pjrt_hub.base import digest
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import CacheError
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.cache.layout import LAYOUT


class Memo:
    """A directory of answers, each a JSON object; the first write creates it."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder

    def sha256(self, path: Path) -> str:
        """Return the sha256 of a file; do not hash one with a known identity again."""
        known = self.known_sha256(path)
        if known is None:
            name = digest.identity(path)  # A change during the hashing makes another identity.
            known = digest.of_file(path)
            self.write(name, {"sha256": known})
        return known

    def keep(self, path: Path, sha256: str) -> None:
        """Remember the sha256 of a file that was hashed while it was written."""
        with suppress(OSError):
            self.write(digest.identity(path), {"sha256": sha256})

    def known_sha256(self, path: Path) -> str | None:
        """Return the sha256 like `sha256`, but None for a file that was not hashed before."""
        answer = self.read(digest.identity(path))
        sha256 = answer.get("sha256") if answer else None
        return sha256 if isinstance(sha256, str) else None

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the answer of that name, or None if none can be read and trusted."""
        try:
            answer = json.loads(disk.read(self._root, self._folder / f"{name}.json"))
        except (OSError, ValueError, RecursionError, CacheError):
            return None
        return answer if isinstance(answer, dict) else None

    def write(self, name: str, answer: dict[str, Any]) -> None:
        """Store an answer, if possible."""
        path, text = self._folder / f"{name}.json", json.dumps(answer).encode()
        with suppress(OSError, CacheError):
            disk.make(self._root, self._folder)
            with disk.open_folder(self._root, self._folder) as folder:
                disk.replace(path, text, folder=folder, mode=0o644, sync=False)


class Probes:
    """Answers of first contacts, by the sha256 of the library."""

    def __init__(self, root: Path) -> None:
        self._files = Memo(root, root / LAYOUT / "memo")
        self._answers = Memo(root, root / LAYOUT / "probes")

    def recall(self, library_path: Path) -> dict[str, Any] | None:
        """Return the remembered answer for the present bytes of `library_path`, or None.

        A file that was never hashed is not hashed for this, and the result is None.
        """
        sha256 = self._files.known_sha256(library_path)
        return self._answers.read(sha256) if sha256 else None

    def recall_content(self, library_path: Path) -> dict[str, Any] | None:
        """Recall like `recall`, but hash a file that was not seen before."""
        return self._answers.read(self.sha256(library_path))

    def api_version(self, library_path: Path) -> ApiVersion | None:
        """Return the PJRT API version that was remembered for a library, or None."""
        answer = self.recall(library_path)
        try:
            return ApiVersion.parse(answer["api_version"]) if answer else None
        except (KeyError, TypeError, AttributeError, ValueError):  # Another program wrote it.
            return None

    def remember(self, library_path: Path, answer: dict[str, Any]) -> None:
        """Remember an answer for the present bytes of `library_path`."""
        self._answers.write(self.sha256(library_path), answer)

    def recall_crash(self, library_path: Path) -> dict[str, Any] | None:
        """Return what was remembered of a contact that ended badly, or None."""
        return self._answers.read(f"{self.sha256(library_path)}-crash")

    def remember_crash(self, library_path: Path, crash: dict[str, Any]) -> None:
        """Remember how a contact with a library's present bytes ended badly; `{}` forgets that."""
        self._answers.write(f"{self.sha256(library_path)}-crash", crash)

    def sha256(self, library_path: Path) -> str:
        """Return the digest of a library; hash it only if its file was not seen before."""
        return self._files.sha256(library_path)
