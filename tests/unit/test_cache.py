"""Entries on disk: published whole or not at all, never wrong bytes, no write on a warm look."""

import errno
import logging
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import wheels

from pjrt_hub.base import digest
from pjrt_hub.errors import ArchiveError, CacheError
from pjrt_hub.finding.store.cache.cache import ROW_NAME, Cache, CacheEntry
from pjrt_hub.finding.store.cache.memo import Memo

MEMBERS = wheels.contents(200_000)
WHEEL = wheels.build(MEMBERS)
PIN = wheels.pin(WHEEL, MEMBERS)
NBYTES = len(MEMBERS[wheels.LIBRARY])


@pytest.fixture
def entry(cache, archive) -> CacheEntry:
    return cache.publish(PIN, archive)


def alter(path: Path, change: str, at: int) -> None:
    body = path.read_bytes()
    rest = {
        "flip": bytes([body[at] ^ 0xFF]) + body[at + 1 :],
        "zero": bytes(len(body) - at),
        "cut": b"",
    }
    path.chmod(0o644)
    path.write_bytes(body[:at] + rest[change])


def test_an_entry_keeps_the_layout_of_the_wheel_and_is_nobody_elses_to_write(cache, archive):
    assert cache.lookup(PIN) is None
    assert not cache.root.exists()
    before = os.umask(0)
    entry = cache.publish(PIN, archive)
    os.umask(before)
    assert entry == cache.lookup(PIN)
    assert entry.root == cache.root / "v1" / PIN.sha256[:2] / PIN.sha256
    assert entry.library_path == entry.root / wheels.LIBRARY
    for path in (wheels.LIBRARY, wheels.SIBLING):
        assert (entry.root / path).read_bytes() == MEMBERS[path]
    assert cache.entries() == (entry._replace(verified=()),)
    assert stat.S_IMODE(cache.root.stat().st_mode) == 0o700
    for path in (entry.root, *entry.root.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o444)
    for path in (cache.root, *cache.root.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o022, path
    assert cache.nbytes() >= PIN.nbytes


def test_publishing_again_is_harmless(cache, archive, entry):
    inode = entry.library_path.stat().st_ino
    assert cache.publish(PIN, archive) == entry
    assert entry.library_path.stat().st_ino == inode
    alter(entry.library_path, "flip", 5)
    assert cache.publish(PIN, archive).root == entry.root
    assert entry.library_path.read_bytes() == MEMBERS[wheels.LIBRARY]


@pytest.mark.parametrize("change", ["flip", "zero", "cut"])
@pytest.mark.parametrize("at", [0, 1, NBYTES // 2, NBYTES - 1])
@pytest.mark.parametrize("known", [True, False], ids=["memo", "no-memo"])
def test_a_corrupted_entry_is_removed_and_told(cache, archive, entry, caplog, change, at, known):
    if not known:
        shutil.rmtree(cache.root / "v1/memo")
    alter(entry.library_path, change, at)
    (audit,) = cache.verify()
    assert not audit.verdict.ok
    assert wheels.LIBRARY in audit.verdict.reason
    told = f"has {at} bytes, the pin says {NBYTES}" if change == "cut" else "has sha256"
    assert told in audit.verdict.reason
    with caplog.at_level(logging.WARNING, "pjrt_hub.store"):
        assert cache.lookup(PIN) is None
    assert audit.verdict.reason in caplog.text
    assert str(entry.root) in caplog.text
    assert not entry.root.exists()
    assert cache.entries() == ()
    assert cache.publish(PIN, archive).library_path.read_bytes() == MEMBERS[wheels.LIBRARY]


@pytest.mark.parametrize("told", ["is missing", "is not a plain file"])
def test_a_missing_or_replaced_member_is_found(cache, archive, entry, told):
    entry.library_path.unlink()
    if told == "is not a plain file":
        entry.library_path.symlink_to(archive)
    assert cache.verify()[0].verdict.reason == f"{wheels.LIBRARY} {told}"
    assert cache.lookup(PIN) is None


@pytest.mark.parametrize("change", ["another file", "the same one"])
def test_a_change_that_hides_its_time_is_found(cache, entry, change):
    before = entry.library_path.stat()
    if change == "another file":
        twin = entry.library_path.with_name("twin")
        twin.write_bytes(bytes(NBYTES))
        twin.rename(entry.library_path)
    else:
        alter(entry.library_path, "flip", 5)
        entry.library_path.chmod(0o444)
    os.utime(entry.library_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = entry.library_path.stat()
    assert after.st_mtime_ns == before.st_mtime_ns
    assert (after.st_ino == before.st_ino) == (change == "the same one")
    assert cache.lookup(PIN) is None


@pytest.mark.parametrize("way", ["publish", "adopt", "adopt a copy"])
def test_everything_is_on_disk_before_it_has_its_name(entry, archive, tmp_path, monkeypatch, way):
    cache = Cache(tmp_path / "another")
    done: list[tuple[str, str]] = []
    fsync, rename = os.fsync, os.rename

    def synced(file: int) -> None:
        done.append(("sync", os.readlink(f"/proc/self/fd/{file}")))
        fsync(file)

    def renamed(source: Path, target: Path) -> None:
        if Path(target) == cache.layout.entry_root(PIN):
            done.append(("rename", str(source)))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    if way == "adopt a copy":
        monkeypatch.setattr(os, "link", fail_with(errno.EXDEV))
    cache.publish(PIN, archive) if way == "publish" else cache.adopt(entry)
    root = cache.layout.entry_root(PIN)
    at = next(i for i, (call, _) in enumerate(done) if call == "rename")
    private = Path(done[at][1])
    before = {path for _, path in done[:at]}
    assert {path for _, path in done[at + 1 :]} == {str(root.parent), str(root.parent.parent)}
    new = (each for each in (root, *root.rglob("*")) if each.is_dir() or way != "adopt")
    assert before == {str(private / path.relative_to(root)) for path in new}
    assert (cache.root / "v1/locks" / f"{PIN.sha256}.use").exists()
    assert list((cache.root / "v1/unpacking").iterdir()) == []


def test_damaged_memo_is_only_slower(cache, entry):
    sound = {memo: memo.read_text() for memo in (cache.root / "v1/memo").iterdir()}
    assert len(sound) == len(PIN.members)
    for text in ("", "[]", "{", '{"x": 3}'):
        for memo in sound:
            memo.write_text(text)
        assert cache.lookup(PIN) == entry
        assert {memo: memo.read_text() for memo in sound} == sound


def test_an_unreadable_row_is_reported(cache, entry):
    alter(entry.root / ROW_NAME, "cut", 20)
    assert cache.entries() == ()
    (audit,) = cache.verify()
    assert audit.entry is None
    assert "cannot be read" in audit.verdict.reason


def test_a_bad_archive_publishes_nothing(cache, archive):
    wrong = PIN._replace(members=(*PIN.members[:1], PIN.members[1]._replace(sha256="0" * 64)))
    with pytest.raises(ArchiveError):
        cache.publish(wrong, archive)
    assert cache.entries() == ()
    assert list((cache.root / "v1/unpacking").iterdir()) == []


def test_clear_removes_all_but_live_downloads(cache, entry):
    with cache.workspace(PIN) as folder:
        (folder / "archive").write_bytes(b"half")
        assert cache.clear().nbytes >= PIN.nbytes
        assert (folder / "archive").read_bytes() == b"half"
    assert cache.entries() == ()
    assert cache.clear().nbytes == Cache(cache.root / "nowhere").clear().nbytes == 0


def test_a_failed_workspace_is_continued_and_a_live_one_is_not(cache):
    with suppress(KeyboardInterrupt), cache.workspace(PIN) as folder:
        (folder / "archive").write_bytes(b"half")
        raise KeyboardInterrupt
    with cache.workspace(PIN) as first:
        assert (first / "archive").read_bytes() == b"half"
        with cache.workspace(PIN) as second:
            assert list(second.iterdir()) == []
    assert list((cache.root / "v1/partial").iterdir()) == []


def test_workspaces_of_other_machines_wait_a_day(cache):
    foreign = cache.root / "v1/partial" / f"{PIN.sha256}.0123456789ab-1-5.abcdefgh"
    foreign.mkdir(parents=True)
    (foreign / "archive").write_bytes(b"theirs")
    with cache.workspace(PIN) as folder:
        assert list(folder.iterdir()) == []
    past = time.time() - 25 * 3600
    for path in (foreign / "archive", foreign):
        os.utime(path, (past, past))
    with cache.workspace(PIN) as folder:
        assert (folder / "archive").read_bytes() == b"theirs"


@pytest.fixture
def disk(tmp_path) -> Iterator[Callable[[str], Path]]:
    """Mount a small disk."""
    mount = tmp_path / "disk"
    mount.mkdir()

    def mounted(size: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("mounting needs privileges")
        return mount

    yield mounted
    if mount.is_mount():
        subprocess.run(["umount", str(mount)], check=True)


def test_a_small_disk_is_refused_before_writing(disk, archive):
    cache = Cache(disk("100k") / "cache")
    with pytest.raises(CacheError, match=f"{PIN.nbytes:,} bytes needed, .* free") as caught:
        cache.publish(PIN, archive)
    assert "PJRT_HUB_CACHE" in caught.value.hint
    assert cache.entries() == ()


def fail_with(code: int) -> Callable[..., None]:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("call", ["fsync", "rename", "fchmod", "mkdir"])
def test_a_failing_call_publishes_nothing(cache, archive, monkeypatch, call, code):
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail_with(code))
        with pytest.raises(CacheError, match="cannot publish") as caught:
            cache.publish(PIN, archive)
    assert isinstance(caught.value.__cause__, OSError)
    assert cache.entries() == ()
    assert cache.lookup(PIN) is None
    assert cache.publish(PIN, archive).library_path.exists()


def test_a_read_only_cache_serves_what_it_has(disk, archive):
    cache = Cache((mount := disk("4m")) / "cache")
    entry = cache.publish(PIN, archive)
    shutil.rmtree(cache.root / "v1/memo")
    subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
    assert cache.lookup(PIN) == entry
    with pytest.raises(CacheError) as caught:
        cache.publish(PIN, archive)
    assert "PJRT_HUB_CACHE" in caught.value.hint


def test_a_corrupted_read_only_entry_is_an_error(cache, entry, monkeypatch):
    alter(entry.library_path, "flip", 9)
    monkeypatch.setattr(os, "rename", fail_with(errno.EROFS))
    with pytest.raises(CacheError, match=r"is corrupted .* and cannot be removed"):
        cache.lookup(PIN)


def test_variables_of_the_cache(tmp_path, monkeypatch):
    env = {"PJRT_HUB_CACHE": "/x", "PJRT_HUB_SYSTEM_CACHE": "/a::/b", "PJRT_HUB_CACHE_NBYTES": "9"}
    cache = Cache.from_env(env)
    assert (cache.root, cache.system, cache.max_nbytes) == (Path("/x"), (Path("/a"), Path("/b")), 9)
    assert Cache.from_env({"PJRT_HUB_CACHE": "/x", "PJRT_HUB_SYSTEM_CACHE": ""}).system == ()
    for name, value in (("PJRT_HUB_SYSTEM_CACHE", "here"), ("PJRT_HUB_CACHE_NBYTES", "9 GB")):
        with pytest.raises(CacheError, match=f"{name} .*'{value}'"):
            Cache.from_env({**env, name: value})
    monkeypatch.chdir(tmp_path)
    assert Cache.from_env({"PJRT_HUB_CACHE": "here"}).root == tmp_path / "here"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache.from_env({}).root == tmp_path / "pjrt-hub"
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *a, **k: Path("~/.cache/pjrt-hub"))
    with pytest.raises(CacheError, match="no cache directory") as caught:
        Cache.from_env({})
    assert "PJRT_HUB_CACHE" in caught.value.hint


def test_decay_of_the_medium_is_found_by_verify_alone(cache, entry):
    """Nothing is told to the file system, so the file's identity is that of what was hashed."""
    good = digest.of_file(entry.library_path)
    alter(entry.library_path, "flip", 100)
    Memo(cache.root, cache.root / "v1" / "memo").keep(entry.library_path, good)
    assert cache.lookup(PIN) is not None
    (audit,) = cache.verify()
    assert not audit.verdict.ok
    assert "has sha256" in audit.verdict.reason


def test_many_that_lay_out_the_same_files_make_one_folder(cache, site):
    files = {name: site.write(name, name) for name in ("a/one.so", "b/lib/two.so")}
    with ThreadPoolExecutor(16) as pool:
        (root,) = set(pool.map(lambda _: cache.lay_out(files), range(64)))
    assert root is not None
    assert {name: (root / name).read_text() for name in files} == {name: name for name in files}
    assert list((cache.root / "v1/unpacking").iterdir()) == []
    assert list((cache.root / "v1/closures").iterdir()) == [root]
