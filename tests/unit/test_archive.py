"""Honest archives of every kind give exactly the pinned members, and altered ones are refused."""

import hashlib
import io
import logging
import os
import random
import runpy
import stat
import struct
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest
import wheels

from pjrt_hub.errors import ArchiveError
from pjrt_hub.finding.store.archive import unpacking
from pjrt_hub.finding.store.archive.archive import measure, unpack
from pjrt_hub.finding.store.catalog import Artifact, Member
from pjrt_hub.finding.store.transfer.fetch import obtain

MEMBERS = wheels.contents(5000)
WHEEL = wheels.build(MEMBERS)
PINNED = wheels.pin(WHEEL, MEMBERS).members


def tarball(
    form: int = tarfile.PAX_FORMAT, prefix: str = "", members: dict[str, bytes] = MEMBERS
) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=form) as archive:
        folder = tarfile.TarInfo(f"{prefix}toy_plugin")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, body in members.items():
            info = tarfile.TarInfo(prefix + name)
            info.size, info.mode, info.mtime = len(body), 0o6777, 1
            archive.addfile(info, io.BytesIO(body))
    return out.getvalue()


def unpacked(archive, tmp_path: Path, members=PINNED, name="toy.whl") -> Path:
    path, destination = tmp_path / "archive", tmp_path / "out"
    path.write_bytes(archive)
    destination.mkdir()
    unpack(path, members, destination, name=name)
    return destination


def pin_of(name: str, body: bytes) -> Member:
    return Member(name, len(body), hashlib.sha256(body).hexdigest())


def files(destination: Path) -> dict[str, bytes]:
    found = (path for path in destination.rglob("*") if path.is_file())
    return {path.relative_to(destination).as_posix(): path.read_bytes() for path in found}


TAKEN = {name: MEMBERS[name] for name in (wheels.LIBRARY, wheels.SIBLING)}
ARCHIVES = {"toy.whl": WHEEL, "toy.tar.gz": tarball(tarfile.GNU_FORMAT)}
of_each_kind = pytest.mark.parametrize("name", ARCHIVES)


def zipped(
    members: dict[str, bytes], out: io.BytesIO, *, wide: bool = False, comment: bytes = b""
) -> bytes:
    """An uncompressed zip with equal dates, and with mode bits that must not be kept."""
    with zipfile.ZipFile(out, "w") as archive:
        archive.comment = comment
        for name, body in members.items():
            info = zipfile.ZipInfo(name, (2021, 7, 7, 3, 3, 4))
            info.external_attr = (stat.S_IFREG | 0o6777) << 16
            with archive.open(info, "w", force_zip64=wide) as file:
                file.write(body)
    return out.getvalue()


@pytest.fixture(params=[0o000, 0o077, 0o777], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@of_each_kind
def test_only_pinned_members_with_fixed_modes(tmp_path, caplog, name):
    tmp_path.chmod(0o755)
    path = tmp_path / name
    path.write_bytes(ARCHIVES[name])
    path.chmod(0o600)
    destination = tmp_path / "out"
    destination.mkdir()
    destination.chmod(0o755)
    unpack(path, PINNED, destination)
    assert files(destination) == TAKEN
    modes = {stat.S_IMODE((destination / name).stat().st_mode) for name in TAKEN}
    assert modes == {0o444}
    folders = {stat.S_IMODE(p.stat().st_mode) for p in destination.rglob("*") if p.is_dir()}
    assert folders == {0o755}
    assert measure(path, TAKEN.__contains__) == PINNED
    assert caplog.messages == []  # the wheel's RECORD is right


def test_times_before_1980_and_mode_bits_do_not_matter(tmp_path):
    members = wheels.recorded(MEMBERS)
    wheel = zipped(members, io.BytesIO())
    stamp = struct.pack("<HH", 3 << 11 | 3 << 5 | 2, 41 << 9 | 7 << 5 | 7)
    assert wheel.count(stamp) == 2 * len(members)
    # Month 0 and day 0 of 1980 are before the first date that the zip format can express.
    destination = unpacked(wheel.replace(stamp, bytes(4)), tmp_path)
    assert files(destination) == TAKEN
    assert {p.stat().st_mode & 0o7777 for p in destination.rglob("*.so")} == {0o444}


def with_zip64(limit: str) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zipfile, limit, 1)
        wheel = wheels.build(MEMBERS)
    assert b"PK\x06\x06" in wheel
    assert b"PK\x06\x07" in wheel
    return wheel


class Pipe(io.BytesIO):
    """An unseekable file, in which a zip has sizes and CRCs behind its members."""

    def tell(self) -> int:
        raise OSError


NESTED = {**MEMBERS, "inner.zip": wheels.build({"x": b"x"}, stored=True)}
HONEST = {
    "a comment": zipped(NESTED, io.BytesIO(), comment=b"made for a test"),
    "ZIP64 in the directory": with_zip64("ZIP64_LIMIT"),
    "ZIP64 at the end": with_zip64("ZIP_FILECOUNT_LIMIT"),
    "ZIP64 fields of small members": zipped(NESTED, io.BytesIO(), wide=True),
    "written to a pipe": zipped(NESTED, Pipe()),
    "written to a pipe, with ZIP64 fields": zipped(NESTED, Pipe(), wide=True),
}


@pytest.mark.parametrize("archive", HONEST.values(), ids=HONEST)
def test_what_writers_make_is_read(tmp_path, archive):
    assert files(unpacked(archive, tmp_path, name="toy.zip")) == TAKEN


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("prefix", ["", "./"])
@pytest.mark.parametrize("folder", ["", "long/" * 25])
def test_every_form_of_tar_is_read(tmp_path, form, prefix, folder):
    pins = tuple(pin._replace(path=folder + pin.path) for pin in PINNED)
    archive = tarball(form, prefix + folder)
    taken = {folder + name: body for name, body in TAKEN.items()}
    assert files(unpacked(archive, tmp_path, pins, "toy.tar.gz")) == taken


def test_a_library_is_its_own_archive(tmp_path):
    body = MEMBERS[wheels.LIBRARY]
    pin = pin_of("toy.so", body)
    assert files(unpacked(body, tmp_path, (pin,), "toy.so")) == {"toy.so": body}
    assert measure(tmp_path / "archive", lambda path: True, name="toy.so") == (pin,)
    (tmp_path / "archive").write_bytes(body[:-1] + b"#")
    with pytest.raises(ArchiveError, match="the pin says"):
        unpack(tmp_path / "archive", (pin,), tmp_path, name="toy.so")


@pytest.mark.parametrize("name", ["toy.whl", "toy.zip", "toy-1.0.tar.gz", "libtoy.so"])
def test_every_kind_of_archive_is_fetched_and_published(tmp_path, cache, name):
    archive, members = tarball() if "tar" in name else WHEEL, PINNED
    if name == "libtoy.so":
        archive = MEMBERS[wheels.LIBRARY]
        members = (pin_of(name, archive),)
    row = wheels.pin(archive, MEMBERS, file_name=name)
    row = row._replace(members=members, library=members[0].path)
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / name).write_bytes(archive)
    row = Artifact.from_row(row.as_row(), "test")
    entry = obtain(row, cache, env={"PJRT_HUB_MIRRORS": str(tmp_path / "mirror")})
    assert entry.library_path.read_bytes() == MEMBERS[wheels.LIBRARY]
    assert cache.lookup(row) is not None


def other(*, remove: str = "", add: str = "", **record: str) -> bytes:
    """The wheel with members that its RECORD does not list, or with another RECORD."""
    members = wheels.recorded(MEMBERS)
    text = members[LIST].decode().replace(record.get("old", ""), record.get("new", ""))
    members[LIST] = (text + record.get("more", "")).encode()
    members |= {add: b"x"} if add else {}
    if remove:
        del members[remove]
    return zipped(members, io.BytesIO())


LIST = "toy_plugin-1.0.dist-info/RECORD"
RECORDS: dict[str, bytes] = {
    "it has 0 RECORD files": other(remove=LIST),
    "it has 2 RECORD files": other(add="a.dist-info/RECORD"),
    "does not list 'more.so'": other(add="more.so"),
    f"lists {wheels.SIBLING + 'x'!r}, which is not there": other(
        old=wheels.SIBLING, new=wheels.SIBLING + "x", more=f"{wheels.SIBLING},sha256=x,6000\n"
    ),
    "'6000'] for 'toy_plugin/lib/toy.so', a file of 5000 bytes": other(old=",5000", new=",6000"),
    "has ['sha256=AAA": other(old="sha256=", new="sha256=AAA"),
    "has ['": other(old="sha256="),
    "'] for": other(old=",5000"),
    "cannot be read": other(more='"'),
}


@pytest.mark.parametrize("told", RECORDS)
def test_a_wrong_record_is_refused_unless_pins_decide(tmp_path, caplog, told):
    with caplog.at_level(logging.WARNING, "pjrt_hub.store"):
        assert files(unpacked(RECORDS[told], tmp_path)) == TAKEN
    (logged,) = caplog.messages
    assert told in logged
    assert logged.startswith("toy.whl: ")
    with pytest.raises(ArchiveError) as caught:
        measure(tmp_path / "archive", TAKEN.__contains__, name="toy.whl")
    assert told in str(caught.value)


@of_each_kind
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"sha256": "0" * 64}, f"the pin says {'0' * 64}"),
        ({"path": "toy_plugin/other.so"}, "'toy_plugin/other.so' is pinned and not in it"),
    ],
)
def test_what_is_not_as_pinned_is_refused(tmp_path, name, changed, told):
    with pytest.raises(ArchiveError, match=told):
        unpacked(ARCHIVES[name], tmp_path, (PINNED[0]._replace(**changed),), name)


def test_zlib_inflates_where_isal_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "isal", None)
    assert runpy.run_path(unpacking.__file__)["zlib"] is zlib


@pytest.mark.parametrize("tool", ["zlib", "isal"])
@pytest.mark.parametrize("name", ["toy.zip", "toy.tar.gz"])
def test_every_inflate_gives_the_same(tmp_path, monkeypatch, tool, name):
    module = zlib if tool == "zlib" else pytest.importorskip("isal.isal_zlib")
    monkeypatch.setattr(unpacking, "zlib", module)
    rng = random.Random(1)
    mixed = b"".join(rng.randbytes(1000) + bytes(rng.randrange(9000)) for _ in range(900))
    members = {"mixed.so": mixed, "zeros.so": bytes(5 << 20)}
    path = tmp_path / name
    path.write_bytes(tarball(members=members) if "tar" in name else wheels.build(members))
    assert measure(path, members.__contains__) == tuple(map(pin_of, members, members.values()))
    damaged = bytearray(path.read_bytes())
    damaged[1000] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(ArchiveError, match=r"cannot be inflated|than it declares|is not a plain"):
        measure(path, members.__contains__)
