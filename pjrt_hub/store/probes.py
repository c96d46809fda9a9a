"""What plugins said at first contact (layer 2), remembered for each file's content.

Owns small JSON files beside the cache's entries; must not probe. A memory that cannot be written is
only a slower next start, never an error.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from pjrt_hub.abi import ApiVersion
from pjrt_hub.store import digest
from pjrt_hub.store.cache import LAYOUT


class Probes:
    """Answers of first contacts, by the sha256 of the library.

    A file whose identity (device, inode, size, times) is known is not hashed again.

    Args:
        root: the cache directory.
    """

    def __init__(self, root: Path) -> None:
        self._folder = root / LAYOUT / "probes"

    def recall(self, library_path: Path) -> dict[str, Any] | None:
        """The remembered answer for the bytes that `library_path` has now, or None."""
        if sha256 := self._known_digest(library_path):
            return self._read(self._answer(sha256))
        return None

    def api_version(self, library_path: Path) -> ApiVersion | None:
        """The PJRT API version that was remembered for a library, or None."""
        answer = self.recall(library_path)
        try:
            return ApiVersion.parse(answer["api_version"]) if answer else None
        except (KeyError, TypeError, AttributeError, ValueError):  # not what we wrote
            return None

    def recall_content(self, library_path: Path) -> dict[str, Any] | None:
        """As `recall`, but hashes a file that was not seen before."""
        sha256 = self._known_digest(library_path) or digest.of_file(library_path)
        answer = self._read(self._answer(sha256))
        if answer is not None:
            self._write(self._identity(library_path), {"sha256": sha256})
        return answer

    def remember(self, library_path: Path, answer: dict[str, Any]) -> None:
        """Keeps an answer for the bytes that `library_path` has now."""
        sha256 = self._known_digest(library_path) or digest.of_file(library_path)
        self._write(self._answer(sha256), answer)
        self._write(self._identity(library_path), {"sha256": sha256})

    def sha256(self, library_path: Path) -> str:
        """The digest of a library, hashed only where its file was not seen before."""
        sha256 = self._known_digest(library_path)
        if sha256 is None:
            sha256 = digest.of_file(library_path)
            self._write(self._identity(library_path), {"sha256": sha256})
        return sha256

    def _known_digest(self, library_path: Path) -> str | None:
        known = self._read(self._identity(library_path))
        sha256 = known.get("sha256") if known else None
        return sha256 if isinstance(sha256, str) else None

    def _answer(self, sha256: str) -> Path:
        return self._folder / f"{sha256}.json"

    def _identity(self, library_path: Path) -> Path:
        status = library_path.stat()
        parts = (status.st_dev, status.st_ino, status.st_size)
        times = (status.st_mtime_ns, status.st_ctime_ns)
        return self._folder / f"file-{'-'.join(f'{each:x}' for each in (*parts, *times))}.json"

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            answer = json.loads(path.read_bytes())
        except (OSError, ValueError):
            return None
        return answer if isinstance(answer, dict) else None

    def _write(self, path: Path, answer: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{path.name}.{os.getpid()}")
            partial.write_text(json.dumps(answer))
            partial.replace(path)
