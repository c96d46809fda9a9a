"""Records of long work, saved at once, so that they survive an interrupt or kill -9.

Must not know what is recorded. A journal that cannot be written or trusted, or that another process
writes, only causes more work after an interrupt, never an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TextIO

from pjrt_hub.errors import CacheError
from pjrt_hub.finding.store import disk, lock
from pjrt_hub.finding.store.cache.layout import LAYOUT

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_APPEND | disk.NOFOLLOW


class Journal:
    """A file of JSON objects below the cache directory, one on each line.

    `records` are the complete records that were in the file before.
    """

    def __init__(self, root: Path, name: str, *, resume: bool) -> None:
        """Open the journal; `name` identifies the work, and all that its results depend on.

        Without `resume`, the records that are there are discarded.
        """
        self._path = root / LAYOUT / "journals" / f"{name}.jsonl"
        self.records: list[dict[str, Any]] = []
        self._file: TextIO | None = None
        self._mine = ExitStack()
        with suppress(OSError, CacheError):
            disk.make(root, self._path.parent)
            with disk.open_folder(root, self._path.parent) as folder:
                path = self._path.with_suffix(".lock")
                if self._mine.enter_context(lock.acquire(path, folder=folder)).state != "taken":
                    self._open(root, folder, resume)

    def _open(self, root: Path, folder: int | None, resume: bool) -> None:
        if resume:
            with suppress(OSError, CacheError):
                self._read(disk.read(root, self._path))
        place = self._path if folder is None else self._path.name
        how = _WRITE if self.records else _WRITE | os.O_TRUNC
        file = os.open(place, how, 0o600, dir_fd=folder)
        self._file = open(file, "a", encoding="utf-8")  # noqa: SIM115 - `close` closes it

    def _read(self, content: bytes) -> None:
        for line in content.splitlines():
            with suppress(ValueError, RecursionError):  # The last record may be cut short.
                record = json.loads(line)
                if isinstance(record, dict):
                    self.records.append(record)

    def add(self, record: Mapping[str, Any]) -> None:
        """Append a record."""
        if self._file is None:
            return
        line = json.dumps(record, default=str)
        with suppress(OSError):
            # The line break ends an earlier record that was cut short.
            self._file.write(f"\n{line}" if self._file.tell() else line)
            self._file.flush()

    def close(self, *, finished: bool) -> None:
        """Close the journal, and remove it if the work is done."""
        with self._mine:
            if self._file is None:
                return
            with suppress(OSError):
                self._file.close()
            if finished:
                with suppress(OSError):
                    self._path.unlink()
