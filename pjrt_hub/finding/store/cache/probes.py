"""Results of first contacts with plugins, stored by each file's content.

Must not probe. A memory that cannot be written is only a slower next start, never an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.finding.store.cache.layout import LAYOUT
from pjrt_hub.finding.store.disk.memo import Memo


class Probes:
    """Answers of first contacts, by the sha256 of the library.

    Args:
        root: the cache directory.
    """

    def __init__(self, root: Path) -> None:
        self._files = Memo(root, root / LAYOUT / "memo")
        self._answers = Memo(root, root / LAYOUT / "probes")

    def recall(self, library_path: Path) -> dict[str, Any] | None:
        """Return the remembered answer for the present bytes of `library_path`, or None.

        A file that was never hashed is not hashed for it.
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
        except (KeyError, TypeError, AttributeError, ValueError):  # not what we wrote
            return None

    def remember(self, library_path: Path, answer: dict[str, Any]) -> None:
        """Remember an answer for the present bytes of `library_path`."""
        self._answers.write(self.sha256(library_path), answer)

    def sha256(self, library_path: Path) -> str:
        """Return the digest of a library; hash it only if its file was not seen before."""
        return self._files.sha256(library_path)
