"""Inputs of fuzzing, as the files that parsers read; in memory, where there are such files."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import cache
from pathlib import Path


@cache
def folder() -> Path:
    """A private folder of this process."""
    memory = "/dev/shm"
    return Path(tempfile.mkdtemp(prefix="fuzz-", dir=memory if os.path.isdir(memory) else None))


def written(data: bytes, name: str) -> Path:
    """A file of that name with these bytes; the next call replaces it."""
    path = folder() / name
    path.write_bytes(data)
    return path


def emptied(name: str) -> Path:
    """An empty folder of that name."""
    path = folder() / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path
