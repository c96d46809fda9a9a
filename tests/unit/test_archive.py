"""Honest archives of every kind give exactly the pinned members; other bytes than a pin do not."""

from __future__ import annotations

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
from collections.abc import Callable
from pathlib import Path

import pytest
import wheels

from pjrt_hub.errors import ArchiveError
from pjrt_hub.finding.store.archive import unpacking
from pjrt_hub.finding.store.archive.archive import measure, unpack
from pjrt_hub.finding.store.cache.cache import Cache
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


def unpacked(
    archive: bytes,
    tmp_path: Path,
    members: tuple[Member, ...] = PINNED,
    name: str = "toy.whl",
) -> Path:
    path, destination = tmp_path / "archive", tmp_path / "out"
    path.write_bytes(archive)
    destination.mkdir()
    unpack(path, members, destination, name=name)
    return destination


def files(destination: Path) -> dict[str, bytes]:
    found = (path for path in destination.rglob("*") if path.is_file())
    return {path.relative_to(destination).as_posix(): path.read_bytes() for path in found}


TAKEN = {name: MEMBERS[name] for name in (wheels.LIBRARY, wheels.SIBLING)}


@pytest.fixture(params=[0o000, 0o077, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest):
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("name", ["toy.whl", "toy.tar.gz"])
def test_only_pinned_members_with_fixed_modes(tmp_path: Path, name: str) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / name
    path.write_bytes(WHEEL if name == "toy.whl" else tarball(tarfile.GNU_FORMAT))
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


def test_times_before_1980_and_mode_bits_do_not_matter(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in wheels.recorded(MEMBERS).items():
            info = zipfile.ZipInfo(name, (2021, 7, 7, 3, 3, 4))
            info.external_attr = (stat.S_IFREG | 0o6777) << 16
            archive.writestr(info, body)
    wheel = out.getvalue()
    stamp = struct.pack("<HH", 3 << 11 | 3 << 5 | 2, 41 << 9 | 7 << 5 | 7)
    assert wheel.count(stamp) == 2 * len(wheels.recorded(MEMBERS))
    # No month and no day, in the year 1980: before every time that the format can say.
    destination = unpacked(wheel.replace(stamp, bytes(4)), tmp_path)
    assert files(destination) == TAKEN
    assert {p.stat().st_mode & 0o7777 for p in destination.rglob("*.so")} == {0o444}


@pytest.mark.parametrize("limit", ["ZIP64_LIMIT", "ZIP_FILECOUNT_LIMIT"])
def test_zip64_in_the_directory_and_the_end_is_normal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(zipfile, limit, 1)
    wheel = wheels.build(MEMBERS)
    assert b"PK\x06\x06" in wheel
    assert b"PK\x06\x07" in wheel
    monkeypatch.undo()
    assert files(unpacked(wheel, tmp_path)) == TAKEN


class Pipe(io.BytesIO):
    """What cannot be sought in: sizes and CRCs follow the members."""

    def seekable(self) -> bool:
        return False

    def seek(self, *args: int) -> int:
        raise OSError

    def tell(self) -> int:
        raise OSError


def zipped(out: io.BytesIO, *, wide: bool = False, comment: bytes = b"") -> bytes:
    members = {**MEMBERS, "inner.zip": wheels.build({"x": b"x"}, stored=True)}
    with zipfile.ZipFile(out, "w") as archive:
        archive.comment = comment
        for name, body in members.items():
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=wide) as file:
                file.write(body)
    return out.getvalue()


HONEST: dict[str, Callable[[], bytes]] = {
    "a comment": lambda: zipped(io.BytesIO(), comment=b"made for a test"),
    "ZIP64 fields of small members": lambda: zipped(io.BytesIO(), wide=True),
    "written to a pipe": lambda: zipped(Pipe()),
    "written to a pipe, with ZIP64 fields": lambda: zipped(Pipe(), wide=True),
}


@pytest.mark.parametrize("make", HONEST.values(), ids=HONEST)
def test_what_writers_make_is_read(tmp_path: Path, make: Callable[[], bytes]) -> None:
    assert files(unpacked(make(), tmp_path, name="toy.zip")) == TAKEN


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("prefix", ["", "./"])
@pytest.mark.parametrize("folder", ["", "long/" * 25])
def test_every_form_of_tar_is_read(tmp_path: Path, form: int, prefix: str, folder: str) -> None:
    pins = tuple(pin._replace(path=folder + pin.path) for pin in PINNED)
    archive = tarball(form, prefix + folder)
    taken = {folder + name: body for name, body in TAKEN.items()}
    assert files(unpacked(archive, tmp_path, pins, "toy.tar.gz")) == taken


def test_a_library_is_its_own_archive(tmp_path: Path) -> None:
    body = MEMBERS[wheels.LIBRARY]
    pin = Member("toy.so", len(body), hashlib.sha256(body).hexdigest())
    assert files(unpacked(body, tmp_path, (pin,), "toy.so")) == {"toy.so": body}
    assert measure(tmp_path / "archive", lambda path: True, name="toy.so") == (pin,)
    (tmp_path / "archive").write_bytes(body[:-1] + b"#")
    with pytest.raises(ArchiveError, match="the pin says"):
        unpack(tmp_path / "archive", (pin,), tmp_path, name="toy.so")


@pytest.mark.parametrize("name", ["toy.whl", "toy.zip", "toy-1.0.tar.gz", "libtoy.so"])
def test_every_kind_of_archive_is_fetched_and_published(
    tmp_path: Path, cache: Cache, name: str
) -> None:
    archive, members = WHEEL, PINNED
    if name.endswith(".tar.gz"):
        archive = tarball()
    elif name.endswith(".so"):
        archive = MEMBERS[wheels.LIBRARY]
        members = (Member(name, len(archive), hashlib.sha256(archive).hexdigest()),)
    row = wheels.pin(archive, MEMBERS, file_name=name)
    row = row._replace(members=members, library=members[0].path)
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / name).write_bytes(archive)
    row = Artifact.from_row(row.as_row(), "test")
    entry = obtain(row, cache, env={"PJRT_HUB_MIRRORS": str(tmp_path / "mirror")})
    assert entry.library_path.read_bytes() == MEMBERS[wheels.LIBRARY]
    assert cache.lookup(row) is not None


@pytest.mark.parametrize("name", ["toy.whl", "toy.tar.gz"])
def test_measuring_gives_the_pins(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(WHEEL if name == "toy.whl" else tarball())
    assert measure(tmp_path / name, TAKEN.__contains__) == PINNED


def other(*, remove: str = "", add: str = "", record: Callable[[str], str] = str) -> bytes:
    """The wheel with another RECORD, or with other members than its RECORD lists."""
    members = wheels.recorded(MEMBERS)
    path = next(name for name in members if name.endswith("RECORD"))
    members[path] = record(members[path].decode()).encode()
    members |= {add: b"x"} if add else {}
    if remove:
        del members[remove]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    return out.getvalue()


LIST = "toy_plugin-1.0.dist-info/RECORD"
RECORDS: dict[str, Callable[[], bytes]] = {
    "it has 0 RECORD files": lambda: other(remove=LIST),
    "it has 2 RECORD files": lambda: other(add="a.dist-info/RECORD"),
    "does not list 'more.so'": lambda: other(add="more.so"),
    f"lists {wheels.SIBLING + 'x'!r}, which is not there": lambda: other(
        record=lambda text: (
            text.replace(wheels.SIBLING, wheels.SIBLING + "x") + f"{wheels.SIBLING},sha256=x,6000\n"
        )
    ),
    "'6000'] for 'toy_plugin/lib/toy.so', a file of 5000 bytes": lambda: other(
        record=lambda text: text.replace(",5000", ",6000")
    ),
    "has ['sha256=AAA": lambda: other(record=lambda text: text.replace("sha256=", "sha256=AAA")),
    "has ['": lambda: other(record=lambda text: text.replace("sha256=", "")),
    "'] for": lambda: other(record=lambda text: text.replace(",5000", "")),
    "cannot be read": lambda: other(record=lambda text: text + '"'),
}


@pytest.mark.parametrize("told", RECORDS)
def test_a_wrong_record_is_refused_unless_pins_decide(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, told: str
) -> None:
    wheel = RECORDS[told]()
    with caplog.at_level(logging.WARNING, "pjrt_hub.store"):
        assert files(unpacked(wheel, tmp_path)) == TAKEN
    (logged,) = caplog.messages
    assert told in logged
    assert logged.startswith("toy.whl: ")
    with pytest.raises(ArchiveError) as caught:
        measure(tmp_path / "archive", TAKEN.__contains__, name="toy.whl")
    assert told in str(caught.value)


def test_a_right_record_is_not_spoken_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "pjrt_hub.store"):
        unpacked(WHEEL, tmp_path)
    assert caplog.messages == []


def test_other_bytes_than_the_pin(tmp_path: Path) -> None:
    pin = PINNED[0]._replace(sha256="0" * 64)
    with pytest.raises(ArchiveError, match=f"the pin says {'0' * 64}"):
        unpacked(WHEEL, tmp_path, (pin,))


@pytest.mark.parametrize("name", ["toy.whl", "toy.tar.gz"])
def test_a_pinned_member_that_is_not_there(tmp_path: Path, name: str) -> None:
    pin = PINNED[0]._replace(path="toy_plugin/other.so")
    with pytest.raises(ArchiveError, match=r"'toy_plugin/other.so' is pinned and not in it"):
        unpacked(WHEEL if name == "toy.whl" else tarball(), tmp_path, (pin,), name)


def test_zlib_inflates_where_isal_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal", None)
    assert runpy.run_path(unpacking.__file__)["zlib"] is zlib


@pytest.mark.parametrize("tool", ["zlib", "isal"])
@pytest.mark.parametrize("name", ["toy.zip", "toy.tar.gz"])
def test_every_inflate_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, name: str
) -> None:
    module = zlib if tool == "zlib" else pytest.importorskip("isal.isal_zlib")
    monkeypatch.setattr(unpacking, "zlib", module)
    rng = random.Random(1)
    mixed = b"".join(rng.randbytes(1000) + bytes(rng.randrange(9000)) for _ in range(900))
    members = {"mixed.so": mixed, "zeros.so": bytes(5 << 20)}
    path = tmp_path / name
    path.write_bytes(tarball(members=members) if "tar" in name else wheels.build(members))
    pins = [Member(name, len(b), hashlib.sha256(b).hexdigest()) for name, b in members.items()]
    assert measure(path, members.__contains__) == tuple(pins)
    damaged = bytearray(path.read_bytes())
    damaged[1000] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(ArchiveError, match=r"cannot be inflated|than it declares|is not a plain"):
        measure(path, members.__contains__)
