"""A tar.gz: any bytes are refused, or mean the same to the standard library.

The input is packed first unless it is a gzip file, since no fuzzer guesses a CRC.
"""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterator
from io import BytesIO

from files import emptied, written

from pjrt_hub.errors import ArchiveError
from pjrt_hub.finding.store.archive.archive import measure, unpack

MEMBERS = {"a/lib.so": b"library" * 90, "./a/b/c.so": b"c", "long/" * 30 + "d.so": b"d"}


def seeds() -> Iterator[bytes]:
    """The same members in every form of tar."""
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        out = BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=form) as archive:
            folder = tarfile.TarInfo("a")
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
            for name, body in MEMBERS.items():
                info = tarfile.TarInfo(name)
                info.size = len(body)
                archive.addfile(info, BytesIO(body))
        yield out.getvalue()
        yield out.getvalue().rstrip(b"\0") + bytes(2048)
    yield gzip.compress(out.getvalue())


def checked(data: bytes) -> bytes:
    """With right checksums in the blocks that look like headers."""
    blocks = bytearray(data)
    for at in range(0, len(blocks) - 511, 512):
        if blocks[at + 257 : at + 262] == b"ustar":
            blocks[at + 148 : at + 156] = b" " * 8
            blocks[at + 148 : at + 156] = b"%06o\0 " % sum(blocks[at : at + 512])
    return bytes(blocks)


#: A mode and a device that are no numbers, where the standard library's reader ends.
FINDINGS = (
    next(seeds()).replace(b"0000644\0", b"0000x44\0"),
    next(seeds()).replace(b"ustar\x0000" + bytes(64 + 8), b"ustar\x0000" + bytes(64) + b"library"),
)


def one(data: bytes) -> None:
    """Read one input as a tarball."""
    packed = data if data[:2] == b"\x1f\x8b" else gzip.compress(checked(data), 1)
    path = written(packed, "toy.tar.gz")
    try:
        members = measure(path, lambda path: True)
    except ArchiveError:
        return
    with tarfile.open(path) as archive:
        theirs = [(info.name, info.size) for info in archive.getmembers() if info.isfile()]
        assert [(member.path, member.size) for member in members] == [
            (name.removeprefix("./"), size) for name, size in theirs
        ]
    unpack(path, members, emptied("out"))
