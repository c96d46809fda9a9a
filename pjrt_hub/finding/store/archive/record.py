"""A wheel's RECORD: the list of its files that the wheel itself carries.

Owns its comparison with the archive. A RECORD pins nothing, because the wheel's maker wrote it.
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterable

from pjrt_hub.errors import ArchiveError
from pjrt_hub.finding.store.archive.unpacking import Files
from pjrt_hub.finding.store.catalog import Member

_MOST_BYTES = 16 << 20
#: The suffixes of RECORD itself and of its signatures, which RECORD cannot list with a hash.
_UNLISTED = ("", ".jws", ".p7s")


def difference(files: Files, members: Iterable[Member]) -> str:
    """Return how a wheel's RECORD differs from the wheel, or an empty string.

    Every file must be listed with a hash; a sha256 is compared for `members` only, sizes if listed.
    """
    sizes, own = {}, []
    for path, nbytes, content in files:
        sizes[path] = nbytes
        if path.endswith(".dist-info/RECORD") and path.count("/") == 1:
            own.append(path)
            parts = content
    if len(own) != 1:
        return f"it has {len(own)} RECORD files"
    if sizes[own[0]] > _MOST_BYTES:
        return f"its RECORD has {sizes[own[0]]} bytes"
    try:
        text = b"".join(parts).decode("utf-8")
        listed = {row[0]: row[1:] for row in csv.reader(io.StringIO(text), strict=True) if row}
    except (ArchiveError, ValueError, csv.Error) as exc:
        return f"its RECORD cannot be read: {exc}"
    signatures = {own[0] + ending for ending in _UNLISTED}
    for name in sorted(sizes.keys() - listed.keys() - signatures):
        return f"its RECORD does not list {name!r}"
    for name in sorted(listed.keys() - sizes.keys()):
        return f"its RECORD lists {name!r}, which is not there"
    known = {member.path: member.sha256 for member in members}
    for name in sorted(listed.keys() - signatures):
        row, sha256 = listed[name], known.get(name, "")
        hashed, size = (*row, "", "")[:2]
        algorithm, _, value = hashed.partition("=")
        digest = base64.urlsafe_b64encode(bytes.fromhex(sha256)).decode().rstrip("=")
        other = digest and algorithm == "sha256" and value.rstrip("=") != digest
        if len(row) != 2 or not value or other or size not in ("", str(sizes[name])):
            there = f"{sizes[name]} bytes" + f" and sha256={digest}" * bool(digest)
            return f"its RECORD has {row} for {name!r}, a file of {there}"
    return ""
