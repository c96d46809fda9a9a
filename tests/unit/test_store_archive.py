"""Hostile zips are refused by name; honest ones give exactly the pinned members."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import wheels
from hypothesis import given, settings
from hypothesis import strategies as st

from pjrt_hub.errors import ArchiveError
from pjrt_hub.store.archive import unpack
from pjrt_hub.store.catalog import Member

MEMBERS = wheels.contents(5000)
WHEEL = wheels.build(MEMBERS)
PINNED = wheels.pin(WHEEL, MEMBERS).members


def unpacked(wheel: bytes, tmp_path: Path, members: tuple[Member, ...] = PINNED) -> Path:
    path, destination = tmp_path / "toy.whl", tmp_path / "out"
    path.write_bytes(wheel)
    destination.mkdir()
    unpack(path, members, destination)
    return destination


@pytest.fixture(params=[0o000, 0o077, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest):
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_only_pinned_members_with_fixed_modes(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / "toy.whl"
    path.write_bytes(WHEEL)
    path.chmod(0o600)
    destination = tmp_path / "out"
    destination.mkdir()
    destination.chmod(0o755)
    unpack(path, PINNED, destination)
    files = {p.relative_to(destination).as_posix() for p in destination.rglob("*") if p.is_file()}
    assert files == {wheels.LIBRARY, wheels.SIBLING}
    for name in files:
        assert (destination / name).read_bytes() == MEMBERS[name]
        assert stat.S_IMODE((destination / name).stat().st_mode) == 0o444
    folders = {stat.S_IMODE(p.stat().st_mode) for p in destination.rglob("*") if p.is_dir()}
    assert folders == {0o755}


def test_zip64_fields_on_small_members_are_normal(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in MEMBERS.items():
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as file:
                file.write(body)
    assert out.getvalue().count(struct.pack("<HH", 1, 16)) == len(MEMBERS)
    assert (unpacked(out.getvalue(), tmp_path) / wheels.LIBRARY).read_bytes()


def test_members_written_to_a_pipe_are_normal(tmp_path: Path) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *args: int) -> int:
            raise OSError

        def tell(self) -> int:
            raise OSError

    out = Pipe()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in MEMBERS.items():
            archive.writestr(name, body)
    assert (unpacked(out.getvalue(), tmp_path) / wheels.LIBRARY).read_bytes()


def extra_member(name: str, attributes: int = 0, body: bytes = b"x") -> bytes:
    out = io.BytesIO(WHEEL)
    with zipfile.ZipFile(out, "a") as archive:
        info = zipfile.ZipInfo("placeholder")
        info.filename = name  # the constructor would rewrite it
        info.external_attr = attributes
        archive.writestr(info, body)
    return out.getvalue()


def edited(change: Callable[[bytearray], None]) -> bytes:
    wheel = bytearray(WHEEL)
    change(wheel)
    return bytes(wheel)


def directory(wheel: bytes) -> int:
    return wheel.index(b"PK\x01\x02")


def set_at(offset: Callable[[bytes], int], value: bytes) -> bytes:
    def change(wheel: bytearray) -> None:
        at = offset(bytes(wheel))
        wheel[at : at + len(value)] = value

    return edited(change)


def nul_name() -> bytes:
    return extra_member("evil#so").replace(b"evil#so", b"evil\0so")


def end(wheel: bytes) -> int:
    return wheel.rindex(b"PK\x05\x06")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def duplicate() -> bytes:
    return extra_member(wheels.LIBRARY)


def overlap() -> bytes:
    """One member is the bytes of another, its header included."""
    inner = wheels.build({"inner.so": b"x" * 50}, stored=True)
    record = inner[: directory(inner)]
    wheel = bytearray(wheels.build({"outer": record, "inner.so": b"x" * 50}, stored=True))
    entry = wheel.index(b"PK\x01\x02", directory(bytes(wheel)) + 4)
    struct.pack_into("<L", wheel, entry + 42, 30 + len("outer"))
    return bytes(wheel)


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "parent": (lambda: extra_member("../evil.so"), "'../evil.so' points outside"),
    "inner parent": (lambda: extra_member("a/../../evil.so"), "points outside"),
    "absolute": (lambda: extra_member("/evil.so"), "'/evil.so' points outside"),
    "backslash": (lambda: extra_member("a\\evil.so"), "understand differently"),
    "drive": (lambda: extra_member("C:evil.so"), "understand differently"),
    "nul": (nul_name, "understand differently"),
    "empty part": (lambda: extra_member("a//evil.so"), "has no plain name"),
    "dot": (lambda: extra_member("./evil.so"), "has no plain name"),
    "symlink": (
        lambda: extra_member("evil.so", (stat.S_IFLNK | 0o777) << 16, b"/etc/passwd"),
        "'evil.so' is a link",
    ),
    "device": (lambda: extra_member("evil", (stat.S_IFCHR | 0o666) << 16), "not a plain file"),
    "fifo": (lambda: extra_member("evil", (stat.S_IFIFO | 0o666) << 16), "not a plain file"),
    "duplicate": (duplicate, "appears twice"),
    "case twin": (lambda: extra_member(wheels.LIBRARY.upper()), "appears twice"),
    "below a file": (lambda: extra_member(wheels.LIBRARY + "/x"), "lies below the file"),
    "file for a directory": (lambda: extra_member("toy_plugin/lib"), "lies below the file"),
    "encrypted": (lambda: set_at(lambda w: directory(w) + 8, b"\x01\x00"), "is encrypted"),
    "method": (lambda: set_at(lambda w: directory(w) + 10, b"\x0c\x00"), "by method 12"),
    "local name": (lambda: set_at(lambda w: 30, b"T"), "differs from the directory"),
    "local size": (lambda: set_at(lambda w: 22, b"\x01\x00\x00\x00"), "differs from the directory"),
    "local crc": (lambda: set_at(lambda w: 14, b"\x01\x02\x03\x04"), "differs from the directory"),
    "no local header": (lambda: set_at(lambda w: 0, b"XX"), "has no local header"),
    "crc of both": (
        lambda: bytes(WHEEL).replace(
            struct.pack("<L", zipfile.crc32(MEMBERS[wheels.LIBRARY])), b"\1\2\3\4"
        ),
        "Bad CRC-32",
    ),
    "polyglot head": (lambda: b"#!/bin/sh\n" + WHEEL, "before its first member"),
    "trailing bytes": (lambda: WHEEL + b"trailing", ""),
    "two zips": (lambda: WHEEL + wheels.build({"evil.so": b"x"}), ""),
    "member count": (lambda: set_at(lambda w: end(w) + 10, b"\x01\x00"), "declares 1 members"),
    "overlap": (overlap, "overlaps another member"),
    "truncated": (lambda: WHEEL[:-100], "not a sound zip file"),
    "not a zip": (lambda: b"<html>", "not a sound zip file"),
    "empty": (lambda: b"", "not a sound zip file"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_zip_is_refused(tmp_path: Path, case: str) -> None:
    make, told = HOSTILE[case]
    wheel = make()
    assert wheel != WHEEL
    with pytest.raises(ArchiveError) as caught:
        unpacked(wheel, tmp_path)
    assert told in str(caught.value)
    assert "toy.whl" in str(caught.value)
    assert not any(p.name.startswith("evil") for p in tmp_path.rglob("*"))


def test_a_bomb_is_refused_before_it_unfolds(tmp_path: Path) -> None:
    members = {**MEMBERS, wheels.SIBLING: bytes(50 << 20)}
    with pytest.raises(ArchiveError, match="has 52428800 bytes, the pin says 6000"):
        unpacked(wheels.build(members), tmp_path)


def test_a_member_that_lies_about_its_size(tmp_path: Path) -> None:
    body = bytes(1 << 20)
    wheel = wheels.build({wheels.LIBRARY: body}).replace(
        struct.pack("<L", 1 << 20), struct.pack("<L", 1000)
    )
    pin = Member(wheels.LIBRARY, 1000, hashlib.sha256(body[:1000]).hexdigest())
    with pytest.raises(ArchiveError):
        unpacked(wheel, tmp_path, (pin,))


def test_other_bytes_than_the_pin(tmp_path: Path) -> None:
    pin = replace(PINNED[0], sha256="0" * 64)
    with pytest.raises(ArchiveError, match=f"the pin says {'0' * 64}"):
        unpacked(WHEEL, tmp_path, (pin,))


def test_a_pinned_member_that_is_not_there(tmp_path: Path) -> None:
    pin = replace(PINNED[0], path="toy_plugin/other.so")
    with pytest.raises(ArchiveError, match=r"'toy_plugin/other.so' is pinned and not in it"):
        unpacked(WHEEL, tmp_path, (pin,))


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, len(WHEEL) - 1), value=st.integers(0, 255), cut=st.booleans())
def test_damage_gives_the_pinned_bytes_or_an_archive_error(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int, cut: bool
) -> None:
    wheel = WHEEL[:at] if cut else WHEEL[:at] + bytes([value]) + WHEEL[at + 1 :]
    try:
        destination = unpacked(wheel, tmp_path_factory.mktemp("damage"))
    except ArchiveError:
        return
    for name in (wheels.LIBRARY, wheels.SIBLING):
        assert (destination / name).read_bytes() == MEMBERS[name]
