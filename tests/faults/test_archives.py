"""Hostile archives are refused with a reason, bombs in little memory; vendors' wheels are not."""

import gzip
import io
import os
import stat
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path

import pytest
import wheels

from pjrt_hub.errors import ArchiveError
from pjrt_hub.finding.store.archive.archive import measure, unpack
from pjrt_hub.finding.store.catalog import Catalog, shipped_registry

Table = dict[str, tuple[Callable[[], bytes], str]]
Tally = Callable[[str], None]
MEMBERS = wheels.contents(5000)
WHEEL = wheels.build(MEMBERS)
SMALL = wheels.build({"a.so": b"x"}, stored=True)
PINNED = wheels.pin(WHEEL, MEMBERS).members


def also(name: str, attributes: int = 0, body: bytes = b"x") -> bytes:
    out = io.BytesIO(WHEEL)
    with zipfile.ZipFile(out, "a") as archive:
        info = zipfile.ZipInfo("placeholder")
        info.filename = name  # the constructor would rewrite it
        info.external_attr = attributes
        archive.writestr(info, body)
    return out.getvalue()


def kind(mode: int) -> int:
    return (mode | 0o666) << 16


def directory(wheel: bytes) -> int:
    return wheel.index(b"PK\x01\x02")


def end(wheel: bytes) -> int:
    return wheel.rindex(b"PK\x05\x06")


def start(_: bytes) -> int:
    return 0


def put(value: bytes, at: int, place: Callable[[bytes], int] = start, zip_: bytes = WHEEL) -> bytes:
    """A zip with other bytes, `at` bytes after the start, the directory or the end record."""
    at += place(zip_)
    return zip_[:at] + value + zip_[at + len(value) :]


def both(value: bytes, local: int, central: int) -> bytes:
    """Other bytes in the first local header and in the first entry of the directory."""
    return put(value, central, directory, put(value, local))


def inserted(data: bytes, at: int, wheel: bytes = WHEEL) -> bytes:
    """The wheel with bytes inserted; its end record has the new place of the directory."""
    wheel = wheel[:at] + data + wheel[at:]
    return put(struct.pack("<I", directory(wheel)), 16, end, wheel)


def longer_directory(data: bytes, wheel: bytes = WHEEL) -> bytes:
    wheel = wheel[: end(wheel)] + data + wheel[end(wheel) :]
    return put(struct.pack("<I", end(wheel) - directory(wheel)), 12, end, wheel)


def wide(value: bytes, at: int, place: Callable[[bytes], int]) -> bytes:
    """The wheel with ZIP64 records at its end, and other bytes in one of them."""
    whole = end(WHEEL)
    entries, nbytes, begin = struct.unpack_from("<HII", WHEEL, whole + 10)
    record = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, entries, entries, nbytes, begin)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, whole, 1)
    small = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 65535, 65535, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return put(value, at, place, WHEEL[:whole] + record + locator + small)


def end_64(wheel: bytes) -> int:
    return wheel.index(b"PK\6\6")


def with_extra(extra: bytes) -> bytes:
    """The wheel with an extra field in the last entry of its directory."""
    wheel = also("more.so")
    last = wheel.rindex(b"PK\x01\x02")
    return longer_directory(extra, put(struct.pack("<H", len(extra)), 30 + last, zip_=wheel))


def commented(comment: bytes) -> bytes:
    """A zip whose last entry has a comment."""
    length = struct.pack("<H", len(comment))
    return longer_directory(comment, put(length, 32, directory, SMALL))


def far(offset: int) -> bytes:
    """A zip whose second member is said to begin far beyond its end, to which the first extends."""
    entry = SMALL[directory(SMALL) : end(SMALL)].replace(b"a.so", b"b.so")
    entry = put(b"\xff" * 4, 42, zip_=put(b"\x0c", 30, zip_=entry))
    whole = longer_directory(entry + struct.pack("<2HQ", 1, 8, offset), SMALL)
    sizes = struct.pack("<2I", *[len(whole) - 34] * 2)
    return put(sizes, 20, directory, put(sizes, 18, zip_=put(b"\2\0\2\0", 8, end, whole)))


def hidden_zip64() -> bytes:
    """A zip whose sizes are marks, and whose ZIP64 field lies within another field."""
    wheel = inserted(struct.pack("<4H2Q", 0xCAFE, 20, 1, 16, 1, 1), 34, SMALL)
    return put(b"\xff" * 8, 18, zip_=put(b"\x18", 28, zip_=wheel))


def overlap() -> bytes:
    """A zip in which one member, with its header, lies in the bytes of another."""
    inner = wheels.build({"inner.so": b"x" * 50}, stored=True)
    record = inner[: directory(inner)]
    wheel = wheels.build({"outer": record, "inner.so": b"x" * 50}, stored=True)
    entry = wheel.index(b"PK\x01\x02", directory(wheel) + 4)
    return put(struct.pack("<L", 30 + len("outer")), 42 + entry, zip_=wheel)


def crowd() -> bytes:
    return wheels.build({f"{number}": b"" for number in range(10_001)}, stored=True)


def crc_of_both() -> bytes:
    crc = struct.pack("<L", zipfile.crc32(MEMBERS[wheels.LIBRARY]))
    return WHEEL.replace(crc, b"\1\2\3\4")


def twice() -> bytes:
    """Two zips, one after the other; the second one counts its offsets from the first."""
    first, second = wheels.build({"evil.so": b"x"}), WHEEL
    return first + put(struct.pack("<I", len(first) + directory(second)), 16, end, second)


def ends_twice() -> bytes:
    """The wheel with two end records: the second one is the comment of the first."""
    return put(b"\x16\0", 20, end) + WHEEL[end(WHEEL) :]


DIFFERENT = "has a name that readers understand differently"
OUTSIDE = "points outside of the archive"
LOCAL = "has a local header that differs from the directory"
ODD_ZIP64 = "has a ZIP64 field that does not fit its header"
BETWEEN = "is followed by bytes of no member"
END = "end does not fit its 4 members"
NO_ZIP = "is not a plain zip file"
NEEDLESS = "has a header that it does not need"
KIND = "is no file or folder, its type is"
MISSING = "is pinned and not in it"
LARGER = "has 4999 bytes, the pin says 5000"
MANY = "has more than 10000 members"
AFTER_END = "has bytes after its end"
FOLLOWED = "is followed by other bytes"

#: An end record of no members whose comment takes in the 22 bytes of the true one.
ENDING = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0, 0, 0, 0, 22)

ZIPS: Table = {
    "parent": (lambda: also("../evil.so"), f"'../evil.so' {OUTSIDE}"),
    "inner parent": (lambda: also("a/../../evil.so"), OUTSIDE),
    "absolute": (lambda: also("/evil.so"), f"'/evil.so' {OUTSIDE}"),
    "backslash": (lambda: also("a\\evil.so"), DIFFERENT),
    "parent by backslash": (lambda: also("..\\evil.so"), DIFFERENT),
    "drive": (lambda: also("C:evil.so"), DIFFERENT),
    "stream of NTFS": (lambda: also("evil.so:x"), DIFFERENT),
    "nul": (lambda: also("evil#so").replace(b"evil#so", b"evil\0so"), DIFFERENT),
    "line feed": (lambda: also("evil\n.so"), DIFFERENT),
    "final dot": (lambda: also("evil.so."), DIFFERENT),
    "final space": (lambda: also("evil /x.so"), DIFFERENT),
    "not text": (lambda: also("evil#so").replace(b"evil#so", b"evil\xffso"), DIFFERENT),
    "device name": (lambda: also("lib/nul.so"), "has the name of a device"),
    "console": (lambda: also("CON"), "has the name of a device"),
    "empty part": (lambda: also("a//evil.so"), "has no plain name"),
    "dot": (lambda: also("./evil.so"), "has no plain name"),
    "no name": (lambda: also(""), "has no plain name"),
    "long name": (lambda: also("evil/" * 300), "of more than 1024 bytes"),
    "deep name": (lambda: also("a/" * 64 + "evil.so"), "lies deeper than 64 folders"),
    "symlink": (lambda: also("evil.so", kind(stat.S_IFLNK), b"/x"), "'evil.so' is a link"),
    "device": (lambda: also("evil", kind(stat.S_IFCHR)), "is not a plain file"),
    "fifo": (lambda: also("evil", kind(stat.S_IFIFO)), "is not a plain file"),
    "socket": (lambda: also("evil", kind(stat.S_IFSOCK)), "is not a plain file"),
    "folder as a file": (lambda: also("evil", kind(stat.S_IFDIR)), "is not a plain file"),
    "file as a folder": (lambda: also("evil/", kind(stat.S_IFREG)), "is not a plain file"),
    "folder with content": (lambda: also("evil/"), "is a folder with content"),
    "duplicate": (lambda: also(wheels.LIBRARY), "appears twice"),
    "case twin": (lambda: also(wheels.LIBRARY.upper()), f"(also as {wheels.LIBRARY!r})"),
    "Unicode twin": (lambda: also(wheels.LIBRARY.replace("lib", "ˡib")), "appears twice"),
    "below a file": (lambda: also(wheels.LIBRARY + "/x"), "lies below the file"),
    "file for a folder": (lambda: also("toy_plugin/lib"), "below the file 'toy_plugin/lib'"),
    "folder for a file": (lambda: also(wheels.LIBRARY + "/", body=b""), "appears twice"),
    "encrypted": (lambda: both(b"\x01\0", 6, 8), "is encrypted"),
    "strongly encrypted": (lambda: both(b"\x40\0", 6, 8), "is encrypted"),
    "patch": (lambda: both(b"\x20\0", 6, 8), "is a patch"),
    "bzip2": (lambda: both(b"\x0c\0", 8, 10), "is compressed by method 12"),
    "lzma": (lambda: both(b"\x0e\0", 8, 10), "is compressed by method 14"),
    "zstd": (lambda: both(b"\x5d\0", 8, 10), "is compressed by method 93"),
    "deflated as stored": (lambda: both(b"\0\0", 8, 10), "stored in another size"),
    "local name": (lambda: put(b"T", 30), LOCAL),
    "local method": (lambda: put(b"\0\0", 8), LOCAL),
    "local flags": (lambda: put(b"\x01\0", 6), LOCAL),
    "local size": (lambda: put(b"\1\0\0\0", 22), LOCAL),
    "local packed size": (lambda: put(b"\1\0\0\0", 18), LOCAL),
    "local CRC": (lambda: put(b"\1\2\3\4", 14), LOCAL),
    "no local header": (lambda: put(b"XX", 0), LOCAL),
    "header in the middle": (lambda: put(b"\1\0\0\0", 42, directory), "before its first member"),
    "header beyond": (lambda: put(b"\xf0\xff\xff\0", 42, directory), "before its first member"),
    "local name too long": (lambda: put(b"\xff\xff", 26), LOCAL),
    "local extra too long": (lambda: put(b"\xff\xff", 28), ""),
    "CRC of both": (crc_of_both, "has another size or CRC-32 than it declares"),
    "larger than it declares": (lambda: both(b"\x87\x13\0\0", 22, 24), LARGER),
    "damaged stream": (lambda: put(b"\xff" * 8, 30 + len(wheels.LIBRARY)), "cannot be inflated"),
    "gap": (lambda: inserted(b"\0" * 9, directory(WHEEL)), BETWEEN),
    "hidden descriptor": (lambda: inserted(b"PK\7\x08" + bytes(12), directory(WHEEL)), BETWEEN),
    "polyglot head": (lambda: b"#!/bin/sh\n" + WHEEL, "or it has bytes of none"),
    "known polyglot head": (lambda: inserted(b"#!/bin/sh\n", 0), LOCAL),
    "trailing bytes": (lambda: WHEEL + b"trailing", END),
    "trailing zeros": (lambda: WHEEL + bytes(512), END),
    "comment too long": (lambda: put(b"\5\0", 20, end), END),
    "two zips": (lambda: WHEEL + wheels.build({"evil.so": b"x"}), "or it has bytes of none"),
    "two zips by the numbers": (twice, LOCAL),
    "two end records": (ends_twice, NO_ZIP),
    "bytes before the end": (lambda: longer_directory(bytes(7)), NO_ZIP),
    "fewer members": (lambda: put(b"\1\0\1\0", 8, end), END),
    "more members": (lambda: put(b"\x09\0\x09\0", 8, end), END),
    "two counts": (lambda: put(b"\1\0", 10, end), END),
    "no members": (lambda: put(bytes(4), 8, end), END),
    "second end in a comment": (lambda: commented(ENDING), "it has two ends"),
    "locator in a comment": (lambda: commented(b"PK\6\7" + bytes(16)), "its ZIP64 end"),
    "beyond the end": (lambda: far(1 << 44), "overlaps another member"),
    "beyond all numbers": (lambda: far(1 << 63), "overlaps another member"),
    "local name not text": (
        lambda: put(b"\xf0\x90\x80", 30, zip_=wheels.build({"\ufffd": b""})),
        LOCAL,
    ),
    "ZIP64 in another field": (hidden_zip64, LOCAL),
    "second disk": (lambda: put(b"\1\0", 4, end), END),
    "member of a second disk": (lambda: put(b"\1\0", 34, directory), "another part"),
    "no directory": (lambda: put(bytes(8), 12, end), "or it has bytes of none"),
    "directory beyond": (lambda: put(b"\xff\xff\xff\x7f", 16, end), "or it has bytes of none"),
    "huge directory": (lambda: longer_directory(bytes(17 << 20)), "its directory has 178"),
    "overlap": (overlap, "overlaps another member"),
    "crowd": (crowd, MANY),
    "second name": (lambda: with_extra(b"up\x09\0\1\0\0\0\0evil"), "has a second name"),
    "cut extra field": (lambda: with_extra(b"\1\0\x08\0"), NO_ZIP),
    "ZIP64 differs": (lambda: with_extra(struct.pack("<HHQ", 1, 8, 7)), ODD_ZIP64),
    "ZIP64 twice": (lambda: with_extra(b"\1\0\0\0" * 2), ODD_ZIP64),
    "ZIP64 of 4 bytes": (lambda: with_extra(b"\1\0\4\0abcd"), ODD_ZIP64),
    "ZIP64 missing": (lambda: put(b"\xff" * 4, 24, directory), "is a bomb"),
    "local ZIP64 missing": (lambda: put(b"\xff" * 4, 22), LOCAL),
    "ZIP64 end elsewhere": (lambda: wide(b"\1", 56 + 8, end_64), END),
    "ZIP64 end damaged": (lambda: wide(b"PK\6\5", 0, end_64), NO_ZIP),
    "ZIP64 end differs": (lambda: wide(b"\1\0\1\0", 8, end), END),
    "ZIP64 end extended": (lambda: wide(b"\x30", 4, end_64), END),
    "cut": (lambda: WHEEL[:-100], NO_ZIP),
    "cut in the end record": (lambda: WHEEL[:-1], NO_ZIP),
    "page": (lambda: b"<html>", NO_ZIP),
    "empty": (lambda: b"", NO_ZIP),
    "tar in the name of a wheel": (lambda: tarred(), NO_ZIP),
}


PAX = tarfile.PAX_FORMAT
RECORD = b"16 path=evil.so\n"
TWO_NAMES = "it gives a member two names"


def member(name: str, body: bytes = b"x", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(body)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, body


def tar(
    *more: tuple[tarfile.TarInfo, bytes],
    form: int = tarfile.USTAR_FORMAT,
    before: bool = False,
    **options: object,
) -> bytes:
    """The toy plugin as a tar file, with members before it or after."""
    ours = [member(name, body) for name, body in MEMBERS.items()]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, **options) as archive:
        for info, body in (*more, *ours) if before else (*ours, *more):
            archive.addfile(info, io.BytesIO(body) if info.isreg() else None)
    return out.getvalue()


def tarred(*more: tuple[tarfile.TarInfo, bytes], **options: object) -> bytes:
    return gzip.compress(tar(*more, **options))


def one(kind_: bytes, **fields: object) -> bytes:
    return tarred(member("evil.so", b"", type=kind_, **fields))


def pax(**headers: str) -> bytes:
    return tarred(member("evil.so", pax_headers=headers), form=PAX)


def changed(at: int, value: bytes, *, checked: bool = True) -> bytes:
    """The tarball with other bytes in its first header, and the checksum that fits them."""
    data = bytearray(tar())
    data[at : at + len(value)] = value
    if checked:
        data[148:156] = b" " * 8
        data[148:156] = f"{sum(data[:512]):06o}\0 ".encode()
    return gzip.compress(bytes(data))


def raw(name: str, kind_: bytes, body: bytes = b"x") -> bytes:
    """A member with any content, as tar lays it out."""
    header = bytearray(member(name, body)[0].tobuf(tarfile.GNU_FORMAT))
    header[156:157] = kind_
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header) + body + bytes(-len(body) % 512)


def named(name: bytes) -> bytes:
    """A header that gives another name to the member after it."""
    return raw("x", b"L", name + b"\0")


def first(*blocks: bytes) -> bytes:
    return gzip.compress(b"".join(blocks) + tar())


TARS: Table = {
    "parent": (lambda: tarred(member("../evil.so")), f"'../evil.so' {OUTSIDE}"),
    "parent after a dot": (lambda: tarred(member("./../evil.so")), OUTSIDE),
    "absolute": (lambda: tarred(member("/evil.so")), f"'/evil.so' {OUTSIDE}"),
    "absolute after a dot": (lambda: tarred(member(".//evil.so")), OUTSIDE),
    "backslash": (lambda: tarred(member("a\\evil.so")), DIFFERENT),
    "drive": (lambda: tarred(member("C:evil.so")), DIFFERENT),
    "device name": (lambda: tarred(member("aux")), "has the name of a device"),
    "not text": (lambda: changed(0, b"\xff"), "is not a plain tar.gz file"),
    "after the NUL": (lambda: changed(0, b"evil\0x"), DIFFERENT),
    "no name": (lambda: changed(0, bytes(100)), "has no plain name"),
    "link": (partial(one, tarfile.SYMTYPE, linkname="/etc/passwd"), KIND),
    "hard link": (partial(one, tarfile.LNKTYPE, linkname=wheels.LIBRARY), KIND),
    "character device": (partial(one, tarfile.CHRTYPE), KIND),
    "block device": (partial(one, tarfile.BLKTYPE), KIND),
    "pipe": (partial(one, tarfile.FIFOTYPE), KIND),
    "contiguous": (partial(one, tarfile.CONTTYPE), KIND),
    "unknown kind": (partial(one, b"Z"), KIND),
    "sparse": (partial(one, tarfile.GNUTYPE_SPARSE), KIND),
    "sparse by pax": (lambda: pax(**{"GNU.sparse.major": "1"}), "sets 'GNU.sparse.major'"),
    "size by pax": (lambda: pax(size="1"), "sets 'size'"),
    "link by pax": (lambda: pax(linkpath="/etc"), "sets 'linkpath'"),
    "charset by pax": (lambda: pax(hdrcharset="BINARY"), "sets 'hdrcharset'"),
    "parent by pax": (lambda: pax(path="../evil.so"), f"'../evil.so' {OUTSIDE}"),
    "NUL by pax": (lambda: pax(path="evil\0.so"), DIFFERENT),
    "path for everyone": (lambda: tarred(form=PAX, pax_headers={"path": "evil.so"}), "sets 'path'"),
    "twice in pax": (lambda: first(raw("x", b"x", b"10 path=a\n10 path=b\n")), "'path' twice"),
    "pax without a length": (lambda: first(raw("x", b"x", b"path=a\n")), ""),
    "pax too long": (lambda: first(raw("x", b"x", b"99 path=a\n")), ""),
    "pax of zero": (lambda: first(raw("x", b"x", b"0 path=a\n")), "is not a plain tar.gz file"),
    "huge pax": (lambda: first(raw("x", b"x", b"9" * 70_000)), "a header has 70656 bytes"),
    "parent by a long name": (
        lambda: first(named(b"../evil" + b"/x" * 60), raw("a", b"0")),
        OUTSIDE,
    ),
    "many headers": (lambda: first(*[raw("x", b"g", b"")] * 2000), "a header has 16896 bytes"),
    "two long names": (lambda: first(named(b"evil.so"), named(b"b")), TWO_NAMES),
    "long name and pax": (lambda: first(named(b"evil" * 30), raw("x", b"x", RECORD)), TWO_NAMES),
    "two of pax": (lambda: first(*[raw("x", b"x", RECORD)] * 2), TWO_NAMES),
    "bytes after a long name": (lambda: first(named(b"evil" * 30 + b"\0x")), "after its end"),
    "bytes after pax": (lambda: first(raw("x", b"x", RECORD + b"\0")), "pax header is malformed"),
    "folder by pax": (lambda: first(raw("x", b"x", b"11 path=a/\n")), "the name of a folder"),
    "long name of a link": (lambda: first(raw("x", b"K", b"/etc\0")), KIND),
    "name of nothing": (lambda: gzip.compress(tar()[:-10240] + named(b"evil") + bytes(1024)), ""),
    "duplicate": (lambda: tarred(member(wheels.LIBRARY)), "appears twice"),
    "duplicate before": (lambda: tarred(member(wheels.LIBRARY), before=True), ""),
    "dotted twin": (lambda: tarred(member("./" + wheels.LIBRARY)), "appears twice"),
    "case twin": (lambda: tarred(member(wheels.LIBRARY.upper())), "appears twice"),
    "below a file": (lambda: tarred(member(wheels.LIBRARY + "/x")), "lies below the file"),
    "file for a folder": (lambda: tarred(member("toy_plugin")), "below the file 'toy_plugin'"),
    "folder with content": (lambda: changed(156, b"5"), "is a folder with content"),
    "checksum": (lambda: changed(0, b"T", checked=False), "bad checksum"),
    "old form": (lambda: changed(257, bytes(8)), "a header is of an unknown form"),
    "negative size": (lambda: changed(124, b"-0000000001\0"), "has the size b'-0000000001"),
    "size in base 256": (lambda: changed(124, b"\x80" + bytes(10) + b"\5"), "has the size b"),
    "size beyond the end": (lambda: changed(124, b"00000777777\0"), ""),
    "size of zero": (lambda: changed(124, b"00000000000\0"), ""),
    "terabytes": (lambda: changed(124, b"77777777777\0"), "is a bomb"),
    "bytes between members": (lambda: gzip.compress(put(b"x", 512 + 5001, zip_=tar())), "between"),
    "bytes after the end": (lambda: gzip.compress(tar() + b"x" * 512), AFTER_END),
    "second tar after the end": (lambda: gzip.compress(tar() + tar()), AFTER_END),
    "no end": (lambda: gzip.compress(tar().rstrip(b"\0") + bytes(200)), "is cut"),
    "one block of end": (lambda: gzip.compress(tar()[:-10240].rstrip(b"\0")), "is cut"),
    "zeros without an end": (lambda: gzip.compress(tar() + bytes(2 << 20)), AFTER_END),
    "two gzip members": (lambda: tarred() + gzip.compress(b""), FOLLOWED),
    "two tarballs": (lambda: tarred() + tarred(), FOLLOWED),
    "trailing bytes": (lambda: tarred() + b"trailing", FOLLOWED),
    "trailing zeros": (lambda: tarred() + bytes(512), FOLLOWED),
    "gzip cut": (lambda: tarred()[:-1], "ends early"),
    "gzip cut in the middle": (lambda: tarred()[:2000], "ends early"),
    "gzip CRC": (lambda: put(b"\1\2\3\4", len(tarred()) - 8, zip_=tarred()), "cannot be inflated"),
    "gzip length": (lambda: put(b"\1\2", len(tarred()) - 4, zip_=tarred()), "cannot be inflated"),
    "not gzip": (lambda: tar(), "cannot be inflated"),
    "wheel in the name of a tarball": (lambda: WHEEL, "cannot be inflated"),
    "page": (lambda: b"<html></html>", ""),
    "empty": (lambda: b"", "ends early"),
    "empty gzip": (lambda: gzip.compress(b""), "is cut"),
    "bomb of zeros": (lambda: tarred(member("evil.so", bytes(64 << 20))), "is a bomb"),
    "bomb in the padding": (lambda: gzip.compress(tar() + bytes(64 << 20)), ""),
    "crowd": (lambda: tarred(*(member(str(n), b"") for n in range(10_001))), MANY),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(("name", "table"), [("toy.whl", ZIPS), ("toy.tar.gz", TARS)])
def test_hostile_archives_are_refused(tmp_path, tally: Tally, name: str, table: Table) -> None:
    wrong = {}
    for case, (make, told) in table.items():
        out = tmp_path / case
        out.mkdir()
        archive = make()
        assert (name, archive) != ("toy.whl", WHEEL), case
        (tmp_path / "archive").write_bytes(archive)
        try:
            unpack(tmp_path / "archive", PINNED, out, name=name)
            wrong[case] = "accepted"
        except ArchiveError as exc:
            if told not in str(exc) or name not in str(exc):
                wrong[case] = str(exc)
        written = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
        if not written <= {wheels.LIBRARY, wheels.SIBLING}:
            wrong[case] = f"wrote {written}"
    assert wrong == {}
    assert not list(tmp_path.rglob("evil*"))
    tally(f"hostile {name.partition('.')[2]}: {len(table)} of {len(table)} refused, 0 accepted")


MEASURE = """
import re, sys
from pathlib import Path
from pjrt_hub.errors import ArchiveError
from pjrt_hub.finding.store.archive import tarball, zip_reader
from pjrt_hub.finding.store.archive.archive import unpack
from pjrt_hub.finding.store.catalog import Member
archive, out, name, size = sys.argv[1:]
def peak():  # not ru_maxrss, which a child inherits
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
try:
    unpack(Path(archive), [Member("toy.so", int(size), "0" * 64)], Path(out), name=name)
except ArchiveError as exc:
    print(peak() - before)
    print(exc)
"""


def lying_zip(body: bytes) -> bytes:
    """A zip whose headers declare a small member and whose bytes are a bomb."""
    wheel = wheels.build({"toy.so": body})
    return wheel.replace(struct.pack("<L", len(body)), struct.pack("<L", 1000))


def bomb_tar(body: bytes) -> bytes:
    return gzip.compress(raw("toy.so", b"0", body) + bytes(10240), 1)


BOMBS: dict[str, tuple[str, int, Callable[[bytes], bytes]]] = {
    "a zip that declares it": ("toy.whl", 300 << 20, lambda body: wheels.build({"toy.so": body})),
    "a zip that hides it": ("toy.whl", 1000, lying_zip),
    "a tarball": ("toy.tar.gz", 300 << 20, bomb_tar),
}


@pytest.mark.parametrize("case", BOMBS)
def test_a_bomb_takes_little_memory_and_disk(tmp_path: Path, tally: Tally, case: str) -> None:
    name, size, make = BOMBS[case]
    archive, out = tmp_path / "archive", tmp_path / "out"
    archive.write_bytes(make(bytes(300 << 20)))
    out.mkdir()
    command = [sys.executable, "-c", MEASURE, str(archive), str(out), name, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert not done.stderr
    kilobytes, told = done.stdout.split("\n", 1)
    assert "bomb" in told or "more than it declares" in told
    assert int(kilobytes) < 64 << 10
    written = sum(path.stat().st_size for path in out.rglob("*"))
    assert written <= size + (1 << 20)
    tally(f"bombs, {case}: 300 MiB refused with {int(kilobytes) >> 10} MiB more memory")


ROWS = {row.file_name: row for row in Catalog([shipped_registry()]).rows()}


@pytest.fixture(scope="module")
def vendors(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The pinned wheels: those in `TESTED_WHEELS`, or of the packages that are installed here."""
    if named := os.environ.get("TESTED_WHEELS"):
        return [path for path in sorted(Path(named).glob("*.whl")) if path.name in ROWS]
    folder = tmp_path_factory.mktemp("wheels")
    for row in ROWS.values():
        with suppress(metadata.PackageNotFoundError):
            if metadata.version(row.package) == row.version:
                command = ["pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
                command += ["--dest", str(folder), f"{row.package}=={row.version}"]
                subprocess.run([sys.executable, "-m", *command], check=False, timeout=240)
    return [path for path in sorted(folder.glob("*.whl")) if path.name in ROWS]


@pytest.mark.network
def test_no_wheel_of_a_vendor_is_refused(vendors: list[Path], tally: Tally) -> None:
    if not vendors:
        tally("wheels of the vendors: 0 read, none is installed here")
        pytest.skip("no wheel of a vendor is here")
    for path in vendors:
        wanted = {member.path for member in ROWS[path.name].members}
        assert set(measure(path, wanted.__contains__)) == set(ROWS[path.name].members)
    tally(f"wheels of the vendors: {len(vendors)} read, 0 refused")
