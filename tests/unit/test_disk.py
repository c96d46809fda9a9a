"""A cache that another user could write to is not used, and links in it are not followed."""

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import wheels

from pjrt_hub.base import digest
from pjrt_hub.errors import CacheError
from pjrt_hub.finding.store import disk, lock
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.cache.memo import Memo

MEMBERS = wheels.contents(50_000)
WHEEL = wheels.build(MEMBERS)
PIN = wheels.pin(WHEEL, MEMBERS)
NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


@pytest.fixture
def cache(tmp_path, archive) -> Cache:
    cache = Cache(tmp_path / "cache")
    cache.publish(PIN, archive)
    return cache


def folders(cache: Cache) -> list[Path]:
    """The folders of an entry, from the cache's root down to the library's folder."""
    library = cache.layout.entry_root(PIN) / PIN.library
    return [path for path in library.parents if path.is_relative_to(cache.root)]


@pytest.mark.parametrize("nbytes", [digest.MOST_NBYTES + 1, 1 << 42])
def test_a_file_larger_than_the_bound_is_not_read(cache, nbytes):
    memo, path = Memo(cache.root, cache.root / "v1/memo"), cache.root / "v1/memo/answer.json"
    memo.write("answer", {"sha256": "0"})
    assert memo.read("answer") == {"sha256": "0"}
    os.truncate(path, nbytes)
    assert memo.read("answer") is None
    with pytest.raises(OSError, match="larger than 67,108,864 bytes") as caught:
        digest.content(path)
    assert caught.value.errno == errno.EFBIG


def test_what_has_no_size_is_read_to_its_end_or_to_the_bound():
    assert digest.content(Path("/proc/self/status")).startswith(b"Name:")
    with pytest.raises(OSError, match="larger than 1,000 bytes"):
        digest.content(Path("/dev/zero"), 1000)


def test_every_folder_down_to_the_library_is_looked_at(cache):
    assert len(folders(cache)) == 6
    for path in folders(cache):
        mode = path.stat().st_mode & 0o7777
        for others in (0o020, 0o002):
            path.chmod(mode | others)
            with pytest.raises(CacheError) as caught:
                cache.lookup(PIN)
            told = f"{path} can be written by others (mode {mode | others:04o})"
            assert told in str(caught.value)
            assert f"chmod go-w {path}" in caught.value.hint
            path.chmod(mode)
        assert cache.lookup(PIN) is not None


@pytest.mark.parametrize("area", ["locks", "partial", "unpacking"])
def test_folders_that_are_written_to_are_looked_at(cache, archive, area):
    folder = cache.root / "v1" / area
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    with (
        pytest.raises(CacheError, match=f"{folder} can be written by others"),
        cache.layout.fetch_lock(PIN.sha256, lock.NO_WAIT),
        cache.workspace(PIN),
    ):
        cache.publish(PIN, archive)


def test_no_link_is_followed_below_the_root(cache, tmp_path):
    for path in folders(cache)[:-1]:
        aside = tmp_path / "aside"
        path.rename(aside)
        path.symlink_to(aside)
        with pytest.raises(CacheError, match=f"{path} is a symbolic link"):
            cache.lookup(PIN)
        path.unlink()
        aside.rename(path)
    (tmp_path / "link").symlink_to(cache.root)
    assert Cache(tmp_path / "link").lookup(PIN) is not None


def test_a_memo_that_others_can_write_vouches_for_nothing(cache):
    folder = cache.root / "v1/memo"
    memo, said = Memo(cache.root, folder), folder / "said.json"
    memo.write("said", {"x": 1})
    assert memo.read("said") == {"x": 1}
    said.chmod(0o666)
    assert memo.read("said") is None
    said.chmod(0o644)
    folder.chmod(0o777)
    assert memo.read("said") is None
    memo.write("more", {})
    assert not (folder / "more.json").exists()
    folder.chmod(0o755)
    (folder / "link.json").symlink_to(said)
    assert memo.read("link") is None


@needs_root
def test_what_belongs_to_somebody_else_is_refused(cache):
    for path in folders(cache):
        os.chown(path, NOBODY, NOBODY)
        with pytest.raises(CacheError) as caught:
            cache.lookup(PIN)
        told = f"{path} belongs to user {NOBODY}, this process is user 0"
        assert told in caught.value.message
        assert f"chown -R 0 {path}" in caught.value.hint
        os.chown(path, 0, 0)
    os.chown(cache.layout.entry_root(PIN) / PIN.library, NOBODY, NOBODY)
    assert cache.lookup(PIN) is None  # the entry is moved to the quarantine


@needs_root
def test_a_foreign_link_to_the_root_is_refused(cache, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(cache.root)
    os.lchown(link, NOBODY, NOBODY)
    with pytest.raises(CacheError, match=f"{link} is a link that belongs to user {NOBODY}"):
        Cache(link).lookup(PIN)


AS_NOBODY = """
import os, sys
sys.path[:0] = {path!r}
from pathlib import Path
from test_disk import PIN as pin, Cache
import pjrt_hub.finding.store.cache.audit, concurrent.futures.thread, fcntl
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
{action}
"""


def as_nobody(action: str) -> str:
    """The output of a child process that runs as another user."""
    code = AS_NOBODY.format(path=sys.path, nobody=NOBODY, action=action)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's temporary folders."""
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


@needs_root
def test_a_cache_of_root_serves_another_user(open_path, archive):
    shared, own = Cache(open_path / "shared"), open_path / "own"
    shared.root.mkdir(mode=0o755)
    shared.publish(PIN, archive)
    action = f"""
cache = Cache(Path({str(own)!r}), system=(Path({str(shared.root)!r}),))
with cache.lease(pin) as entry:
    print(entry.root)
"""
    for _ in range(2):
        assert as_nobody(action) == str(shared.layout.entry_root(PIN))
        assert own.stat().st_uid == NOBODY


@needs_root
@pytest.mark.parametrize(
    "made", ["Cache(path).layout.area('locks')", "os.makedirs(path / 'v1' / pin.sha256[:2])"]
)
def test_a_cache_that_somebody_else_made_is_refused(open_path, archive, made):
    cache = Cache(open_path / "cache")
    as_nobody(f"path = Path({str(cache.root)!r}); {made}")
    os.chmod(cache.root, 0o755)
    with pytest.raises(CacheError, match=f"belongs to user {NOBODY}"):
        cache.publish(PIN, archive)
    assert not any(path.is_file() for path in cache.root.rglob("*"))


@pytest.mark.parametrize(("write", "rounds"), [("lock", 10_000), ("memo", 1_000)])
def test_a_race_of_links_never_reaches_the_victim(tmp_path, write, rounds):
    victim = tmp_path / "victim"
    victim.mkdir()
    names = ("lock", "said.json", ".said.partial")
    for name in names:
        (victim / name).write_text("precious")
    before = {path: path.stat() for path in (victim, *victim.iterdir())}
    root = tmp_path / "cache"
    folder = disk.make(root, root / "v1/area")
    code = f"import sys; sys.path[:0] = {sys.path!r}; import test_disk as test\n"
    code += f"test.swap(test.Path({str(folder)!r}), test.Path({str(victim)!r}))"
    memo, done, refused = Memo(root, folder), 0, 0

    def act() -> None:
        if write == "memo":
            return memo.write("said", {"x": 1})
        with disk.open_folder(root, folder) as file, lock.acquire(folder / "lock", folder=file):
            pass

    def is_seen() -> bool:
        """Whether the lock encountered both the folder and the link."""
        return write == "memo" or 0 < refused < done

    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout.readline() == b"swapping\n"
        deadline = time.monotonic() + 60
        while done < rounds or (not is_seen() and time.monotonic() < deadline):
            done += 1
            try:
                act()
            except (CacheError, OSError):
                refused += 1
        assert swapper.poll() is None
        swapper.kill()
    assert {path: path.stat() for path in before} == before
    assert sorted(path.name for path in victim.iterdir()) == sorted(names)
    assert all((victim / name).read_text() == "precious" for name in names)
    assert is_seen()


def swap(folder: Path, victim: Path) -> None:
    """Keep replacing a folder by a link to the victim and back, and put links into the folder."""
    aside, link = folder.with_name("aside"), folder.with_name("link")
    print("swapping", flush=True)
    while True:
        shutil.rmtree(aside, ignore_errors=True)
        link.unlink(missing_ok=True)
        link.symlink_to(victim)
        with suppress(OSError):  # the other process also makes folders
            folder.rename(aside)
            link.rename(folder)
            folder.unlink()
            aside.rename(folder)
        for name in ("lock", "said.json"):
            with suppress(OSError):
                (folder / name).unlink(missing_ok=True)
                (folder / name).symlink_to(victim / name)


def test_a_file_is_written_in_one_step_by_many_threads(tmp_path):
    path, contents = tmp_path / "kept", [bytes([number]) * (1 << 16) for number in range(4)]

    def write(content: bytes) -> None:
        for _ in range(20):
            disk.replace(path, content)
            assert path.read_bytes() in contents

    with ThreadPoolExecutor(len(contents)) as pool:
        list(pool.map(write, contents))
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        disk.replace(tmp_path / "folder", b"three")
    assert sorted(os.listdir(tmp_path)) == ["folder", "kept"]
