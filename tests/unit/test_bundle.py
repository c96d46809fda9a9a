"""Bundles: equal rows give equal files, damaged ones are refused, and only known rows trusted."""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import wheels
from fetching import Interrupting, Phases

from pjrt_hub.base import progress
from pjrt_hub.base.listing import size_text
from pjrt_hub.door import bundle as door
from pjrt_hub.errors import ArchiveError, DigestMismatchError, PluginNotFoundError, StoreError
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact, Catalog, shipped_registry
from pjrt_hub.finding.store.pins import Pins
from pjrt_hub.finding.store.transfer import bundle

TOYS = [wheels.build(wheels.contents(5000 + n, n), stored=bool(n % 2)) for n in (1, 2)]
ONE = wheels.pin(TOYS[0], wheels.contents(5001, 1))
NAMED = {"plugin": "two", "file_name": "two-1.0-py3-none-any.whl"}
TWO = wheels.pin(TOYS[1], wheels.contents(5002, 2), **NAMED)
KNOWN = [ONE, TWO]
CONTENT = {ONE.sha256: TOYS[0], TWO.sha256: TOYS[1]}


@contextmanager
def fetch(row: Artifact, folder: Path) -> Iterator[Path]:
    path = folder / "archive"
    path.write_bytes(CONTENT[row.sha256])
    yield path


@pytest.fixture
def made(tmp_path) -> Path:
    path = tmp_path / "plugins.bundle"
    bundle.write(path, [TWO, ONE], fetch)
    return path


def assert_untouched(cache: Cache) -> None:
    assert cache.entries() == ()
    assert not list(cache.root.rglob("*.so"))


def test_a_bundle_brings_plugins_to_another_cache(made, cache):
    heard: list[tuple[str, Phases]] = []

    def listen(label: str) -> Phases:
        heard.append((label, Phases()))
        return heard[-1][1]

    assert bundle.read(made, KNOWN, cache, listen) == (ONE, TWO)
    assert [(label, steps.phases, steps.finished) for label, steps in heard] == [
        ("plugins.bundle", ["checking"], 1),
        ("Toy.Plugin", ["unpacking", "done"], 1),
        ("Toy.Plugin", ["unpacking", "done"], 1),
    ]
    entry = cache.lookup(TWO)
    assert entry is not None
    assert entry.library_path.read_bytes() == wheels.contents(5002, 2)[wheels.LIBRARY]
    assert [audit.verdict.ok for audit in cache.verify()] == [True, True]
    other_files = [ONE._replace(sha256="f" * 64), TWO._replace(size=7)]  # They have the same names.
    assert bundle.read(made, [*KNOWN, *other_files], cache) == (ONE, TWO)


def test_the_same_rows_give_the_same_bytes_which_tar_can_read(made, tmp_path):
    again = tmp_path / "again"
    bundle.write(again, KNOWN, fetch)
    assert again.read_bytes() == made.read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    with tarfile.open(made) as tar:
        names = tar.getnames()
        assert tar.extractfile(names[0]).read() == TOYS[0]
    assert names == [f"archives/{ONE.file_name}", f"archives/{TWO.file_name}"]


def test_a_bundle_does_not_vouch_for_itself(made, cache):
    for known in ([ONE], [ONE, TWO._replace(size=TWO.size + 1)]):
        with pytest.raises(ArchiveError, match="neither the registry nor a lock file") as caught:
            bundle.read(made, known, cache)
        assert f"knows {TWO.file_name} ({TWO.size:,} bytes)" in caught.value.message
        assert "pylock.pjrt.toml" in caught.value.hint
    with pytest.raises(DigestMismatchError):
        bundle.read(made, [ONE, TWO._replace(sha256="f" * 64)], cache)
    assert_untouched(cache)


def test_the_known_row_decides_what_is_unpacked(made, cache):
    narrow = TWO._replace(members=TWO.members[:1])
    bundle.read(made, [ONE, narrow], cache)
    found = cache.lookup(narrow)
    assert found is not None
    assert not (found.root / wheels.SIBLING).exists()


@pytest.mark.parametrize("row", KNOWN)
def test_an_altered_archive_is_refused_before_anything_is_published(made, cache, row):
    data = bytearray(made.read_bytes())
    data[data.index(CONTENT[row.sha256]) + row.size // 2] ^= 1
    made.write_bytes(data)
    with pytest.raises(DigestMismatchError, match=row.file_name) as caught:
        bundle.read(made, KNOWN, cache)
    assert caught.value.expected == f"sha256:{row.sha256}"
    assert_untouched(cache)


@pytest.mark.parametrize("damage", ["cut", "altered"])
def test_every_truncation_and_altered_byte_of_its_frame_is_refused(made, cache, damage):
    whole = made.read_bytes()
    places = {0, 1, 511, 512, 513, len(whole) - 1, *range(0, len(whole), 997)}
    if damage == "altered":
        archives = {at + i for body in TOYS for at in [whole.index(body)] for i in range(len(body))}
        places = {*range(0, len(whole), 7)} - archives
    for at in sorted(places):
        rest = bytes([whole[at] ^ 0x41]) + whole[at + 1 :] if damage == "altered" else b""
        made.write_bytes(whole[:at] + rest)
        with pytest.raises(StoreError):
            bundle.read(made, KNOWN, cache)
    assert_untouched(cache)


def framed(*names: str, **changed: object) -> bytes:
    """A tar file that has the first archive under each of these names."""
    data = b""
    for name in names:
        info = tarfile.TarInfo(name)
        fields = {"size": ONE.size, **changed}
        for key, value in fields.items():
            setattr(info, key, value)
        data += info.tobuf(tarfile.USTAR_FORMAT) + TOYS[0] + bytes(-ONE.size % 512)
    return data + bytes(1024)


NAME = f"archives/{ONE.file_name}"
HOSTILE = {
    "no bundle: bad checksum": b"PK\3\4" + bytes(2000),
    "no bundle: empty header": b"",
    "no bundle: truncated header": framed(NAME)[:-600],
    "does not hold '../toy.whl'": framed("../toy.whl"),
    "does not hold 'pjrt-hub-bundle.toml'": framed("pjrt-hub-bundle.toml"),
    "does not hold 'toy_plugin": framed(NAME, NAME),
    "does not hold 'toy_plugin-1": framed(NAME, type=tarfile.SYMTYPE),
    "does not hold 'toy_plugin-1.0": framed(NAME, mtime=1),
    "knows ../../toy.whl": framed("archives/../../toy.whl"),
    "has bytes after toy_plugin": framed(NAME)[:-1536] + b"x" * 512 + bytes(1024),
    "has bytes after its end": framed(NAME) + b"\0",
}


@pytest.mark.parametrize("told", HOSTILE)
def test_hostile_bundles(tmp_path, cache, told):
    (tmp_path / "hostile").write_bytes(HOSTILE[told])
    with pytest.raises(ArchiveError) as caught:
        bundle.read(tmp_path / "hostile", KNOWN, cache)
    assert told in caught.value.message
    assert caught.value.hint
    assert_untouched(cache)


def test_an_empty_bundle_is_one(tmp_path, cache):
    bundle.write(tmp_path / "empty", [], fetch)
    assert bundle.read(tmp_path / "empty", [], cache) == ()
    assert (tmp_path / "empty").read_bytes() == bytes(1024)


@contextmanager
def fetch_other_bytes(row: Artifact, folder: Path) -> Iterator[Path]:
    with fetch(row, folder) as path:
        path.write_bytes(b"x" * row.size)
        yield path


def test_an_export_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "out"
    with pytest.raises(DigestMismatchError):
        bundle.write(path, [ONE], fetch_other_bytes)
    with pytest.raises(ArchiveError, match="two archives have the name"):
        bundle.write(path, [ONE, TWO._replace(file_name=ONE.file_name)], fetch)
    with pytest.raises(ArchiveError, match="does not fit into a tar file"):
        bundle.write(path, [ONE._replace(file_name="x" * 120 + ".whl")], fetch)
    assert list(tmp_path.iterdir()) == []
    bundle.write(path, [ONE], fetch)
    first = path.read_bytes()
    with pytest.raises(DigestMismatchError):
        bundle.write(path, [ONE], fetch_other_bytes)
    assert path.read_bytes() == first


@pytest.fixture
def exported(tmp_path, monkeypatch) -> Path:
    """The path for an export of one plugin, whose archive is in a mirror."""
    for folder in ("mirror", "out"):
        (tmp_path / folder).mkdir()
    (tmp_path / "mirror" / ONE.file_name).write_bytes(TOYS[0])
    monkeypatch.setenv("PJRT_HUB_MIRRORS", str(tmp_path / "mirror"))
    monkeypatch.setattr(door, "_newest_rows", lambda *names: [ONE])
    return tmp_path / "out" / "plugins.bundle"


def test_who_waits_for_an_export_sees_what_is_done(exported, monkeypatch):
    steps = Phases()
    monkeypatch.setattr(progress, "choose_progress", lambda label: steps)
    said = f"Toy.Plugin 1.0 for linux-x86_64-glibc2.17, {size_text(ONE.size)}, Apache-2.0"
    assert door.export_bundle(exported) == (said,)
    assert (steps.phases, steps.finished) == (["looking", "fetching", "checking", "done"], 1)


def test_ctrl_c_in_an_export_says_that_nothing_is_kept(exported, monkeypatch):
    monkeypatch.setattr(progress, "choose_progress", lambda label: Interrupting("checking"))
    with pytest.raises(KeyboardInterrupt) as caught:
        door.export_bundle(exported)
    said = f"interrupted: {exported} was not written; run it again to start over"
    assert caught.value.__notes__ == [said]
    assert list(exported.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("requests", "command"),
    [(("cpu",), "pjrt-hub lock cpu tpu"), ((), "pjrt-hub lock --upgrade")],
)
def test_what_the_lock_file_leaves_out_is_locked_first(monkeypatch, tmp_path, requests, command):
    [row, *_] = [each for each in Catalog([shipped_registry()]).rows() if each.plugin == "cpu"]
    locked = Pins(tmp_path / "pylock.pjrt.toml", requests, (), (row,))
    monkeypatch.setattr(door, "pins", lambda: locked)
    with pytest.raises(
        PluginNotFoundError, match="locks nothing called 'tpu', which the"
    ) as caught:
        door.export_bundle(tmp_path / "x.bundle", "tpu")
    assert f"`{command}`" in caught.value.hint
    with pytest.raises(PluginNotFoundError, match="neither the lock file nor the registry"):
        door.export_bundle(tmp_path / "x.bundle", "nope")
