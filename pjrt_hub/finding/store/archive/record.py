"""A wheel's RECORD: the list of its files that the wheel itself carries.

Owns the comparison with what is in the archive. It pins nothing, as the wheel's maker wrote it.
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Collection

from pjrt_hub.errors import ArchiveError
from pjrt_hub.finding.store.archive.zip_reader import Zip
from pjrt_hub.finding.store.catalog import Member

_MOST_BYTES = 16 << 20
#: What it cannot list with a hash: itself and its signatures.
_UNLISTED = ("RECORD", "RECORD.jws", "RECORD.p7s")


def difference(wheel: Zip, members: Collection[Member]) -> str:
    """Return how a wheel's RECORD differs from the wheel, or an empty string.

    Args:
        wheel: the archive, each file of which must be listed with its size.
        members: the files whose sha256 is known.
    """
    own = [
        record
        for record in wheel.records
        if record.name.endswith(".dist-info/RECORD") and record.name.count("/") == 1
    ]
    if len(own) != 1:
        return f"it has {len(own)} RECORD files"
    folder = own[0].name.removesuffix("RECORD")
    if own[0].nbytes > _MOST_BYTES:
        return f"its RECORD has {own[0].nbytes} bytes"
    try:
        text = b"".join(wheel.content(own[0])).decode("utf-8")
        listed = {row[0]: row[1:] for row in csv.reader(io.StringIO(text), strict=True) if row}
    except (ArchiveError, ValueError, csv.Error) as exc:
        return f"its RECORD cannot be read: {exc}"
    there = {record.name: record.nbytes for record in wheel.records if not record.is_folder}
    signatures = {folder + name for name in _UNLISTED}
    for name in sorted(there.keys() - listed.keys() - signatures):
        return f"its RECORD does not list {name!r}"
    for name in sorted(listed.keys() - there.keys()):
        return f"its RECORD lists {name!r}, which is not there"
    known = {member.path: member.sha256 for member in members}
    for name in sorted(listed.keys() - signatures):
        if what := _wrong(listed[name], there[name], known.get(name)):
            return f"its RECORD has {what} for {name!r}"
    return ""


def _wrong(columns: list[str], nbytes: int, sha256: str | None) -> str:
    """Return which of a row's columns, hash and size, is wrong, or an empty string."""
    if len(columns) != 2:
        return f"{len(columns) + 1} columns and not 3"
    hashed, size = columns
    if size not in ("", str(nbytes)):
        return f"the size {size!r} and not {nbytes}"
    algorithm, _, value = hashed.partition("=")
    if not value:
        return "no hash"
    if sha256 is not None and algorithm == "sha256":
        expected = base64.urlsafe_b64encode(bytes.fromhex(sha256)).decode().rstrip("=")
        return "" if value.rstrip("=") == expected else f"the hash {hashed} and not {expected}"
    return ""
