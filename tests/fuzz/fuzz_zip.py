"""A zip: any bytes are refused, or mean the same to the standard library."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from io import BytesIO

import wheels
from files import emptied, written

from pjrt_hub.errors import ArchiveError
from pjrt_hub.finding.store.archive.archive import measure, unpack

EMPTY = b"PK\5\6" + bytes(18)
MEMBERS = {
    "a/lib.so": b"library" * 9,
    "a/b/c.so": b"c",
    "a-1.dist-info/METADATA": b"Name: a\n",
}


def seeds() -> Iterator[bytes]:
    """The same members in every form that writers make."""
    yield wheels.build(MEMBERS)
    yield wheels.build(MEMBERS, stored=True)
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = b"comment"
        archive.mkdir("a")
        for name, body in MEMBERS.items():
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as file:
                file.write(body)
    yield out.getvalue()
    at = out.getvalue().rindex(b"PK\5\6")
    yield out.getvalue()[:at] + b"PK\6\6" + bytes(52) + b"PK\6\7" + bytes(16) + EMPTY


#: A directory without members; one that only a newer reader understands.
FINDINGS = (EMPTY, wheels.build(MEMBERS).replace(b"PK\1\2\x14\3\x14", b"PK\1\2\x14\3\x95"))


def one(data: bytes) -> None:
    """Read one input as a zip and as a wheel."""
    path = written(data, "toy.zip")
    try:
        members = measure(path, lambda path: True)
    except ArchiveError:
        return
    with zipfile.ZipFile(path) as archive:
        theirs = [(info.filename, len(archive.read(info))) for info in archive.infolist()]
        ours = [(member.path, member.size) for member in members]
        assert sorted(ours) == sorted(each for each in theirs if each[0][-1] != "/")
    unpack(path, members, emptied("out"), name="toy.whl")
