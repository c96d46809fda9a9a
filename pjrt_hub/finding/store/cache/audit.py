"""The audit of entries: every byte is compared with its pin.

Owns the comparison of members with their pins; changes nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pjrt_hub.base import digest
from pjrt_hub.base.abi import Verdict
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.cache.layout import CacheEntry, CacheLayout, read_row
from pjrt_hub.finding.store.cache.memo import Memo
from pjrt_hub.finding.store.catalog import Member


class Audit(NamedTuple):
    """The result of `Cache.verify` for one entry."""

    root: Path
    entry: CacheEntry | None  # None if the entry's row cannot be read.
    verdict: Verdict  # Whether every byte is as pinned; the reason names the first difference.


def verify(layout: CacheLayout) -> tuple[Audit, ...]:
    """Hash every member of every entry, whatever was verified before."""
    return tuple(_audit(root) for root in layout.roots())


def _audit(root: Path) -> Audit:
    row = read_row(root)
    if isinstance(row, str):
        return Audit(root, None, Verdict(False, row))
    try:
        reason = difference(root, row.members)
    except OSError as exc:
        path = Path(exc.filename or root)
        name = path.relative_to(root) if path.is_relative_to(root) else path
        reason = f"{name} cannot be read: {exc.strerror}"
    return Audit(root, CacheEntry(row, root), Verdict(not reason, reason))


def difference(root: Path, members: Sequence[Member], memo: Memo | None = None) -> str:
    """Return how a member differs from its pin, or an empty string.

    `memo` knows the digests of files that were hashed before, and keeps new ones.
    """
    for member in members:
        if reason := _shape(root, member):
            return reason
    known = [memo and memo.known_sha256(root / member.path) for member in members]
    unknown = [
        root / member.path for member, sha256 in zip(members, known, strict=True) if not sha256
    ]
    hashed = iter(_hash(unknown, memo))
    for member, sha256 in zip(members, known, strict=True):
        if (actual := sha256 or next(hashed)) != member.sha256:
            return f"{member.path} has sha256 {actual}, the pin says {member.sha256}"
    return ""


def _shape(root: Path, member: Member) -> str:
    """Return a difference that shows without reading the content, or an empty string."""
    try:
        found = os.lstat(root / member.path)
    except (FileNotFoundError, NotADirectoryError):
        return f"{member.path} is missing"
    if not stat.S_ISREG(found.st_mode):
        return f"{member.path} is not a plain file"
    if found.st_size != member.size:
        return f"{member.path} has {found.st_size} bytes, the pin says {member.size}"
    if what := disk.oddity(found):
        return f"{member.path} {what}"
    return ""


def _hash(paths: Sequence[Path], memo: Memo | None) -> list[str]:
    sha256 = memo.sha256 if memo else digest.of_file
    if len(paths) < 2:
        return [sha256(path) for path in paths]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2, "pjrt-hub hash") as pool:  # Hashing releases the GIL.
        return list(pool.map(sha256, paths))
