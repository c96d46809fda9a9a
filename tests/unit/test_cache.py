"""Entries on disk: published whole or not at all, never wrong bytes, no write on a warm look."""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import wheels

from pjrt_hub.base import digest
from pjrt_hub.errors import ArchiveError, CacheError
from pjrt_hub.finding.store.cache.cache import ROW_NAME, Cache
from pjrt_hub.finding.store.cache.memo import Memo

MEMBERS = wheels.contents(200_000)
WHEEL = wheels.build(MEMBERS)
PIN = wheels.pin(WHEEL, MEMBERS)
NBYTES = len(MEMBERS[wheels.LIBRARY])


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / PIN.file_name
    path.write_bytes(WHEEL)
    return path


def alter(path: Path, change: str, at: int) -> None:
    body = path.read_bytes()
    path.chmod(0o644)
    if change == "flip":
        path.write_bytes(body[:at] + bytes([body[at] ^ 0xFF]) + body[at + 1 :])
    elif change == "zero":
        path.write_bytes(body[:at] + bytes(len(body) - at))
    else:
        path.write_bytes(body[:at])


def test_an_entry_keeps_the_layout_of_the_wheel(cache: Cache, archive: Path) -> None:
    assert cache.lookup(PIN) is None
    assert not cache.root.exists()
    entry = cache.publish(PIN, archive)
    assert entry == cache.lookup(PIN)
    assert entry.root == cache.root / "v1" / PIN.sha256[:2] / PIN.sha256
    assert entry.library_path == entry.root / wheels.LIBRARY
    assert entry.library_path.read_bytes() == MEMBERS[wheels.LIBRARY]
    assert (entry.root / wheels.SIBLING).read_bytes() == MEMBERS[wheels.SIBLING]
    assert cache.entries() == (entry._replace(verified=()),)
    assert stat.S_IMODE(cache.root.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry.root.stat().st_mode) == 0o755
    for path in entry.root.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o444)
    assert cache.nbytes() >= PIN.nbytes


def test_nothing_is_writable_for_others(cache: Cache, archive: Path) -> None:
    before = os.umask(0)
    try:
        cache.publish(PIN, archive)
    finally:
        os.umask(before)
    for path in (cache.root, *cache.root.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o022, path


def test_publishing_again_is_harmless(cache: Cache, archive: Path) -> None:
    first = cache.publish(PIN, archive)
    inode = first.library_path.stat().st_ino
    assert cache.publish(PIN, archive) == first
    assert first.library_path.stat().st_ino == inode
    alter(first.library_path, "flip", 5)
    assert cache.publish(PIN, archive).root == first.root
    assert first.library_path.read_bytes() == MEMBERS[wheels.LIBRARY]


@pytest.mark.parametrize("change", ["flip", "zero", "cut"])
@pytest.mark.parametrize("at", [0, 1, NBYTES // 2, NBYTES - 1])
@pytest.mark.parametrize("known", [True, False], ids=["memo", "no-memo"])
def test_a_corrupted_entry_is_removed_and_told(
    cache: Cache, archive: Path, caplog: pytest.LogCaptureFixture, change: str, at: int, known: bool
) -> None:
    entry = cache.publish(PIN, archive)
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


def test_a_missing_or_replaced_member_is_found(cache: Cache, archive: Path) -> None:
    entry = cache.publish(PIN, archive)
    (entry.root / wheels.SIBLING).unlink()
    assert cache.verify()[0].verdict.reason == f"{wheels.SIBLING} is missing"
    assert cache.lookup(PIN) is None
    entry = cache.publish(PIN, archive)
    entry.library_path.unlink()
    entry.library_path.symlink_to(archive)
    assert cache.verify()[0].verdict.reason == f"{wheels.LIBRARY} is not a plain file"
    assert cache.lookup(PIN) is None


def test_a_memo_of_other_files_vouches_for_nothing(cache: Cache, archive: Path) -> None:
    entry = cache.publish(PIN, archive)
    twin = entry.library_path.with_name("twin")
    twin.write_bytes(bytes(NBYTES))
    before = entry.library_path.stat()
    os.utime(twin, ns=(before.st_atime_ns, before.st_mtime_ns))
    twin.rename(entry.library_path)
    assert cache.lookup(PIN) is None


def test_a_change_that_hides_its_time_is_found(cache: Cache, archive: Path) -> None:
    entry = cache.publish(PIN, archive)
    before = entry.library_path.stat()
    alter(entry.library_path, "flip", 5)
    entry.library_path.chmod(0o444)
    os.utime(entry.library_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = entry.library_path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert cache.lookup(PIN) is None


def test_everything_is_on_disk_before_it_has_its_name(
    cache: Cache, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []
    fsync, rename = os.fsync, os.rename

    def synced(file: int) -> None:
        done.append(("sync", os.readlink(f"/proc/self/fd/{file}")))
        fsync(file)

    def renamed(source: Path, target: Path) -> None:
        if Path(target) == cache.entry_root(PIN):
            done.append(("rename", str(source)))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    entry = cache.publish(PIN, archive)
    at = next(i for i, (call, _) in enumerate(done) if call == "rename")
    private = Path(done[at][1])
    before = {path for _, path in done[:at]}
    assert {path for _, path in done[at + 1 :]} == {
        str(entry.root.parent),
        str(entry.root.parent.parent),
    }
    published = [entry.root, *entry.root.rglob("*")]
    assert before == {str(private / path.relative_to(entry.root)) for path in published}


def test_damaged_memo_is_only_slower(cache: Cache, archive: Path) -> None:
    entry = cache.publish(PIN, archive)
    sound = {memo: memo.read_text() for memo in (cache.root / "v1/memo").iterdir()}
    assert len(sound) == len(PIN.members)
    for text in ("", "[]", "{", '{"x": 3}'):
        for memo in sound:
            memo.write_text(text)
        assert cache.lookup(PIN) == entry
        assert {memo: memo.read_text() for memo in sound} == sound


def test_an_unreadable_row_is_reported(cache: Cache, archive: Path) -> None:
    entry = cache.publish(PIN, archive)
    alter(entry.root / ROW_NAME, "cut", 20)
    assert cache.entries() == ()
    (audit,) = cache.verify()
    assert audit.entry is None
    assert "cannot be read" in audit.verdict.reason


def test_a_bad_archive_publishes_nothing(cache: Cache, archive: Path) -> None:
    wrong = PIN._replace(members=(*PIN.members[:1], PIN.members[1]._replace(sha256="0" * 64)))
    with pytest.raises(ArchiveError):
        cache.publish(wrong, archive)
    assert cache.entries() == ()
    assert list((cache.root / "v1/unpacking").iterdir()) == []


def test_clear_removes_all_but_live_downloads(cache: Cache, archive: Path) -> None:
    cache.publish(PIN, archive)
    with cache.workspace(PIN) as folder:
        (folder / "archive").write_bytes(b"half")
        assert cache.clear().nbytes >= PIN.nbytes
        assert (folder / "archive").read_bytes() == b"half"
    assert cache.entries() == ()
    assert cache.clear().nbytes == 0
    assert Cache(cache.root / "nowhere").clear().nbytes == 0


def test_a_failed_workspace_is_continued_and_a_live_one_is_not(cache: Cache) -> None:
    def interrupted() -> None:
        with cache.workspace(PIN) as folder:
            (folder / "archive").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with cache.workspace(PIN) as first:
        assert (first / "archive").read_bytes() == b"half"
        with cache.workspace(PIN) as second:
            assert list(second.iterdir()) == []
    assert list((cache.root / "v1/partial").iterdir()) == []


def test_workspaces_of_other_machines_wait_a_day(cache: Cache) -> None:
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


def test_what_a_killed_publication_left_is_removed(cache: Cache, archive: Path) -> None:
    cache.publish(PIN, archive)
    unpacking = cache.root / "v1/unpacking"
    with subprocess.Popen([sys.executable, "-c", KILLED.format(root=str(cache.root))]) as process:
        process.wait(60)
    (left,) = unpacking.iterdir()
    assert (left / "half").exists()
    with cache.workspace(PIN):
        cache.publish(PIN, archive)
    assert list(unpacking.iterdir()) == []


KILLED = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
import wheels
from pjrt_hub.finding.store.cache.layout import CacheLayout
members = wheels.contents(9)
private = CacheLayout(Path({{root!r}})).private("unpacking", wheels.pin(b"x", members).sha256)
(private / "half").write_bytes(b"half")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_forty_kills_leave_no_wrong_byte(cache: Cache, archive: Path) -> None:
    code = PUBLISH.format(root=str(cache.root), archive=str(archive))
    draw = random.Random(3)
    for _ in range(40):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(draw.uniform(0, 0.02))
            process.kill()
        assert all(audit.verdict for audit in cache.verify())
        if entry := cache.lookup(PIN):
            assert entry.library_path.read_bytes() == MEMBERS[wheels.LIBRARY]
            cache.clear()
    cache.publish(PIN, archive)
    assert cache.clear().nbytes > 0
    left = [path for path in (cache.root / "v1").rglob("*") if path.is_file()]
    assert left == [cache.root / f"v1/locks/{PIN.sha256}.use"]


PUBLISH = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
import wheels
from pjrt_hub.finding.store.archive import archive
from pjrt_hub.finding.store.cache.cache import Cache
members = wheels.contents(200_000)
pin = wheels.pin(wheels.build(members), members)
print(flush=True)
Cache(Path({{root!r}})).publish(pin, Path({{archive!r}}))
"""


def small_disk(tmp_path: Path, size: str) -> Path:
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting needs privileges")
    return mount


def test_a_small_disk_is_refused_before_writing(tmp_path: Path, archive: Path) -> None:
    mount = small_disk(tmp_path, "100k")
    try:
        cache = Cache(mount / "cache")
        with pytest.raises(CacheError, match=f"{PIN.nbytes:,} bytes needed, .* free") as caught:
            cache.publish(PIN, archive)
        assert "PJRT_HUB_CACHE" in caught.value.hint
        assert cache.entries() == ()
    finally:
        subprocess.run(["umount", str(mount)], check=True)


@pytest.mark.parametrize("kib", [40, 120, 200, 204])
def test_a_disk_that_fills_up_publishes_nothing(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch, kib: int
) -> None:
    mount = small_disk(tmp_path, f"{kib}k")
    try:
        cache = Cache(mount / "cache")
        monkeypatch.setattr(cache, "require_space", lambda nbytes: None)
        with pytest.raises(CacheError, match="no space left") as caught:
            cache.publish(PIN, archive)
        assert f"{PIN.nbytes:,} bytes needed" in caught.value.message
        assert cache.entries() == ()
        assert list((cache.root / "v1/unpacking").glob("*")) == []
    finally:
        subprocess.run(["umount", str(mount)], check=True)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("call", ["fsync", "rename", "fchmod", "mkdir"])
def test_a_failing_call_is_a_cache_error_and_publishes_nothing(
    cache: Cache, archive: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(CacheError, match="cannot publish") as caught:
            cache.publish(PIN, archive)
    assert isinstance(caught.value.__cause__, OSError)
    assert cache.entries() == ()
    assert cache.lookup(PIN) is None
    assert cache.publish(PIN, archive).library_path.exists()


def test_a_read_only_cache_serves_what_it_has(tmp_path: Path, archive: Path) -> None:
    mount = small_disk(tmp_path, "4m")
    try:
        cache = Cache(mount / "cache")
        entry = cache.publish(PIN, archive)
        shutil.rmtree(cache.root / "v1/memo")
        subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
        assert cache.lookup(PIN) == entry
        with pytest.raises(CacheError) as caught:
            cache.publish(PIN, archive)
        assert "PJRT_HUB_CACHE" in caught.value.hint
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_a_corrupted_read_only_entry_is_an_error(
    cache: Cache, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = cache.publish(PIN, archive)
    alter(entry.library_path, "flip", 9)

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(CacheError, match=r"is corrupted .* and cannot be removed"):
        cache.lookup(PIN)


def test_the_root_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Cache.from_env({"PJRT_HUB_CACHE": "/x/y"}).root == Path("/x/y")
    monkeypatch.chdir(tmp_path)
    assert Cache.from_env({"PJRT_HUB_CACHE": "here"}).root == tmp_path / "here"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache.from_env({}).root == tmp_path / "pjrt-hub"


def test_without_a_home_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *a, **k: Path("~/.cache/pjrt-hub"))
    with pytest.raises(CacheError, match="no cache directory") as caught:
        Cache.from_env({})
    assert "PJRT_HUB_CACHE" in caught.value.hint


def test_sha256_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest.of_file(tmp_path / "abc") == known


def test_decay_of_the_medium_is_found_by_verify_alone(cache: Cache, archive: Path) -> None:
    """Nothing is told to the file system, so the file's identity is that of what was hashed."""
    entry = cache.publish(PIN, archive)
    good = digest.of_file(entry.library_path)
    alter(entry.library_path, "flip", 100)
    Memo(cache.root, cache.root / "v1" / "memo").keep(entry.library_path, good)
    assert cache.lookup(PIN) is not None
    (audit,) = cache.verify()
    assert not audit.verdict.ok
    assert "has sha256" in audit.verdict.reason


def test_many_that_lay_out_the_same_files_make_one_folder(cache: Cache, tmp_path: Path) -> None:
    files = {}
    for name in ("a/one.so", "b/lib/two.so"):
        files[name] = tmp_path / name
        files[name].parent.mkdir(parents=True)
        files[name].write_text(name)
    with ThreadPoolExecutor(16) as pool:
        roots = set(pool.map(lambda _: cache.lay_out(files), range(64)))
    (root,) = roots
    assert root is not None
    assert {name: (root / name).read_text() for name in files} == {name: name for name in files}
    assert list((cache.root / "v1/unpacking").iterdir()) == []
    assert list((cache.root / "v1/closures").iterdir()) == [root]
